"""Counter files: cumulative, one a step, added up by whoever looks."""

from pathlib import Path

from recordmill.pipeline.build.context.reports import SECONDS, Progress, ProgressReader
from recordmill.pipeline.versions.stores.local import LocalStore


def test_counters_of_all_steps_add_up(tmp_path: Path) -> None:
    workspace = LocalStore(str(tmp_path))
    chunk, shard = Progress(workspace, "chunk-000000"), Progress(workspace, "shard-000000")
    chunk.add(read=5)
    chunk.add(read=2, chunks=1)
    shard.add(written=3)
    for step in (chunk, shard):
        step.write()
    assert dict(ProgressReader(LocalStore(str(tmp_path))).read()) == {"read": 7, "chunks": 1, "written": 3}


def test_a_file_is_written_at_most_every_third_of_a_second(tmp_path: Path) -> None:
    now = 100.0
    workspace = LocalStore(str(tmp_path))
    step, reader = Progress(workspace, "chunk", lambda: now), ProgressReader(workspace)
    seen = []
    for _ in range(5):
        step.add(read=1)
        seen.append(reader.read()["read"])
        now += SECONDS / 2 + 0.01
    assert seen == [1, 1, 3, 3, 5]


def test_a_repeated_step_counts_once_and_keeps_counting(tmp_path: Path) -> None:
    step, reader = Progress(LocalStore(str(tmp_path)), "chunk"), ProgressReader(LocalStore(str(tmp_path)))
    for total in (1, 2, 3):
        step.add(read=1)
        step.write()
        assert reader.read() == {"read": total}
    for count in (5, 3):
        again = Progress(LocalStore(str(tmp_path)), "chunk")
        again.add(read=count)
        again.write()
        assert reader.read() == {"read": count}


def test_files_on_their_way_and_of_a_build_that_is_over_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "chunk.json.0123abcd").write_text('{"rea')
    for folder in (tmp_path, tmp_path / "gone"):
        assert ProgressReader(LocalStore(str(folder))).read() == {}
