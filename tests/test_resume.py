"""What an attempt at a build takes over from the one before, and what is swept away."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import MagicMock

import pytest
from PIL import Image

from recordmill.pipeline.build.attempt.attempts import Run, begin
from recordmill.pipeline.build.attempt.failures import DiskError
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.context.reports import FOLDERS, ChunkReport, chunk_step, shard_step, write_report
from recordmill.pipeline.dataset.counts import Counts, ShardReport
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.build_folders import building_folder, builds, remove_build, remove_run
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.local import LocalStore
from tests.messages import assert_names, raises

KEY = "4f1c9a2e" + "0" * 56
PIECES = [(0, "a.jsonl", 100), (0, "a.jsonl", 80), (1, "b.jsonl", 7)]
GROUPS = ({0: 2, 1: 3}, {1: 1, 3: 4}, {3: 2})
"""The groups of each chunk's rows, and how many there are of each."""


def work_done(folder: str, finished: tuple[int, ...] = (0, 1, 3), *, analyzed: bool = True, read: int = 3) -> Path:
    """Leaves what an attempt leaves that has come so far."""
    run = Path(folder)
    for number in range(read):
        report = ChunkReport(sum(GROUPS[number].values()), groups=GROUPS[number])
        write_report(LocalStore(str(run)), f"reports/{chunk_step(number)}", vars(report))
    if analyzed:
        LocalStore(str(run)).write("analysis/export.1.tar", b"graph")
        write_report(LocalStore(str(run)), "reports/analysis", {"export": "analysis/export.1.tar"})
    for group in finished:
        shard(run, group)
    (run / "scratch/rows.arrow").write_bytes(b"rows")
    (run / "version/d.tfrecord-9.0123").write_bytes(b"half")
    LocalStore(str(run)).write("analysis/export.2.tar", b"half")
    for step in (chunk_step(0), chunk_step(2), shard_step(1)):
        (run / f"progress/{step}.json").write_text("{}")
    LocalStore(str(run)).write("placement/words/000000.feather", b"words")
    return run


def shard(run: Path, group: int, rejects: str | None = None) -> None:
    (run / f"version/{group}.tfrecord").write_bytes(b"x" * group)
    (run / f"version/{group}.index").write_bytes(bytes(8 * 3))
    files = Shard(f"{group}.tfrecord", group, 2, "", f"{group}.index")
    report = ShardReport("train", group, files, "", Counts(written_by_source={0: 2}), rejects)
    write_report(LocalStore(str(run)), f"reports/{shard_step(group)}", report.to_json())


def again(building: Path, **changes: Any) -> Run:
    return begin("out", str(building), **{"build_key": KEY, "pieces": PIECES, **changes})


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_first_attempt_has_empty_folders(tmp_path: Path) -> None:
    run = again(tmp_path / "out/.building")
    folder = Path(run.folder)
    assert folder.parent == tmp_path / "out/.building" / KEY[:16]
    assert folder.name.startswith("run-")
    assert len(folder.name) == len("run-") + 12
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FOLDERS, "reports"])
    assert (run.kept, names(folder)) == (None, ["reports/plan.json"])


def test_the_next_attempt_keeps_what_is_finished_under_its_own_name(tmp_path: Path) -> None:
    first = work_done(again(tmp_path).folder, finished=(0, 1))
    run = again(tmp_path)
    folder = Path(run.folder)
    assert run.kept is not None
    assert_names(run.kept, "transform graph", "2 of 3 shards")
    assert (run.kept.groups, run.kept.chunks, run.kept.bytes) == ({3}, {1, 2}, 1)
    assert run.kept.export == "analysis/export.1.tar"
    assert os.listdir(folder.parent) == [folder.name] != [first.name]
    assert names(folder / "version") == ["0.index", "0.tfrecord", "1.index", "1.tfrecord"]
    assert (names(folder / "scratch"), os.listdir(folder / "analysis")) == ([], ["export.1.tar"])
    assert names(folder / "progress") == []
    assert run.kept.counts == {
        "chunks": 1, "read": 5, "refused": 0, "left_out": 0, "analyzed": 1, "written": 4, "dropped": 0,
    }  # fmt: skip
    assert names(folder / "placement") == ["words/000000.feather"]


def test_who_writes_for_an_earlier_attempt_finds_no_folder(tmp_path: Path) -> None:
    first = work_done(again(tmp_path).folder)
    with open(first / "version/late.0123", "wb") as file:
        second = Path(again(tmp_path).folder)
        file.write(b"late")
    with pytest.raises(FileNotFoundError):
        os.replace(first / "version/late.0123", first / "version/late")
    with pytest.raises(FileNotFoundError):
        write_report(LocalStore(str(first)), f"reports/{shard_step(3)}", {})
    assert "late" not in " ".join(names(second))


def test_a_file_that_a_killed_worker_wrote_is_no_result(tmp_path: Path) -> None:
    run = again(tmp_path)
    work_done(run.folder)
    run.workspace.write("digests/0003.json.4f1c9a2e4f1c9a2e4f1c9a2e4f1c9a2e", b'{"half"')
    run.workspace.write("digests/0003.json", b"{}")
    assert run.workspace.names("digests") == list(run.workspace.sizes("digests")) == ["digests/0003.json"]
    assert os.listdir(Path(again(tmp_path).folder, "digests")) == ["0003.json"]


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        ({}, "3 of 3 shards"),
        ({"finished": ()}, "0 of 3 shards"),
        ({"finished": (), "analyzed": False}, None),
        ({"analyzed": False}, None),
        ({"read": 2}, None),
    ],
)
def test_what_is_kept_of_how_far_a_build_came(tmp_path: Path, left: dict[str, Any], kept: str | None) -> None:
    work_done(again(tmp_path).folder, **left)
    run = again(tmp_path)
    assert (run.kept is None) == (kept is None)
    assert_names(run.kept, kept)
    if kept is None:
        assert names(Path(run.folder)) == ["placement/words/000000.feather", "reports/plan.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: (run / "version/3.tfrecord").write_bytes(b"xx"),
        lambda run: (run / "version/3.index").write_bytes(b"xx"),
        lambda run: (run / "version/3.tfrecord").unlink(),
        lambda run: (run / "reports/shard-000003.json").unlink(),
    ],
    ids=["cut", "index cut", "gone", "no report"],
)
def test_a_shard_that_is_not_whole_is_built_again(tmp_path: Path, damage: Any) -> None:
    damage(work_done(again(tmp_path).folder))
    run = again(tmp_path)
    assert run.kept is not None
    assert (sorted(run.kept.shards), run.kept.groups) == ([0, 1], {3})
    assert not [name for name in names(Path(run.folder)) if "3." in name.partition("/")[2]]


@pytest.mark.parametrize(("reason", "is_kept"), [("unreadable", False), ("undecodable_image", True)])
def test_nothing_is_kept_where_a_reject_is_doubtful(tmp_path: Path, reason: str, is_kept: bool) -> None:
    run = work_done(again(tmp_path).folder)
    reject = {"chunk": 0, "position": 0, "reason": reason, "message": "", "key": "k", "column": None}
    line = json.dumps(reject | {"first_chunk": None, "first_position": None}) + "\n"
    LocalStore(str(run)).write("rejects/some.jsonl", line.encode())
    shard(run, 3, rejects="some.jsonl")
    found = again(tmp_path, is_doubtful=lambda reject: reject.reason == "unreadable")
    assert (found.kept is not None) == is_kept
    assert bool(names(Path(found.folder) / "placement")) == is_kept


def test_an_analysis_without_its_graph_or_a_plan_of_other_chunks_keeps_nothing(tmp_path: Path) -> None:
    (work_done(again(tmp_path).folder) / "analysis/export.1.tar").unlink()
    run = again(tmp_path)
    assert run.kept is None
    work_done(run.folder)
    run = again(tmp_path, pieces=PIECES[:2])
    assert (run.kept, names(tmp_path / KEY[:16])) == (None, [f"{Path(run.folder).name}/reports/plan.json"])


def test_the_most_finished_of_several_is_kept_and_the_others_go(tmp_path: Path) -> None:
    folders = [tmp_path / KEY[:16] / f"run-{number:012}" for number in range(3)]
    for folder, finished in zip(folders, [(0,), (0, 1, 3), ()], strict=True):
        parked = Path(again(tmp_path / "elsewhere").folder)
        folder.parent.mkdir(exist_ok=True)
        os.rename(parked, folder)
        work_done(str(folder), finished)
    run = again(tmp_path)
    assert_names(run.kept, "transform graph", "3 of 3 shards")
    assert os.listdir(tmp_path / KEY[:16]) == [Path(run.folder).name]


def test_a_run_that_is_done_leaves_the_others_alone(tmp_path: Path) -> None:
    building = tmp_path / ".building"
    mine, other = (again(building, build_key=key).folder for key in (KEY, "ff" * 32))
    remove_run(mine)
    assert os.listdir(building) == ["ff" * 8]
    remove_run(other)
    assert os.listdir(tmp_path) == []
    remove_run(other)  # once more does no harm


def test_a_build_that_is_removed_leaves_the_others_alone(tmp_path: Path) -> None:
    building = tmp_path / ".building"
    for key in (KEY, "ff" * 32):
        work_done(again(building, build_key=key).folder)
    mine, other = builds(str(building)).values()
    os.rename(next(mine.iterdir()), mine / "gone-0123456789ab")  # half removed
    again(building)
    remove_build(mine)
    assert list(builds(str(building))) == ["ff" * 8]
    remove_build(other)
    assert os.listdir(tmp_path) == []
    assert builds(str(building)) == {}


def test_where_builds_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert building_folder("out") == f"{tmp_path}/out/.building"
    mine, other = building_folder("s3://bucket/d", "work"), building_folder("s3://bucket/e", "work")
    assert mine != other
    assert Path(mine).parent.parent == tmp_path / "work"
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/cache")
    assert Path(building_folder("s3://bucket/d")).parent == tmp_path / "cache/recordmill" / Path(mine).parent.name
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert building_folder("gs://bucket/d").startswith(f"{tmp_path}/.cache/recordmill/")
    with raises(UserError, "--work", "outputs at a URL", "out/.building"):
        building_folder("out", "work")


def test_a_link_is_no_folder_of_builds_and_folders_of_others_are_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "docs/run-1").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.building").symlink_to(home)
    assert builds(str(tmp_path / "out/.building")) == {}
    remove_build(tmp_path / "out/.building")
    assert (home / "docs/run-1").is_dir()
    (tmp_path / ".building/mine/notes").mkdir(parents=True)
    remove_build(tmp_path / ".building/mine")
    assert (tmp_path / ".building/mine/notes").is_dir()


def test_no_attempt_works_through_a_link(tmp_path: Path) -> None:
    victim, run = tmp_path / "victim", work_done(again(tmp_path / "building").folder)
    victim.mkdir()
    for name in ("scratch", "progress"):
        shutil.rmtree(run / name)
        (run / name).symlink_to(victim)
    taken = Path(again(tmp_path / "building").folder)
    assert [path for path in taken.rglob("*") if path.is_symlink()] == []
    assert {*FOLDERS} <= {*os.listdir(taken)}
    shutil.rmtree(taken.parent)
    taken.parent.symlink_to(victim)
    with raises(UserError, "link"):
        again(tmp_path / "building")
    assert os.listdir(victim) == []


DISK_FULL = OSError(errno.ENOSPC, "No space left on device")
CAPTIONED = (
    "{format: image_folder, path: in}\nlabel: null\nfeatures: {image: {kind: image, size: 4}, text: {kind: text}}"
)
SOURCES = {
    "2.txt": "{format: text, path: in, document: file}\nfeatures: {text: {kind: text}}",
    "2.txt beside an image": CAPTIONED,
    "2.png": CAPTIONED,
}


def write_inputs(folder: Path, contents: Iterable[int], *, with_images: bool) -> None:
    """Writes a text for each content, and an image beside it; equal contents are equal files."""
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number}.txt").write_text(f"text {content}")
        if with_images:
            Image.new("RGB", (5, 4), (9 * content, 30, 90)).save(folder / f"{number}.png")


def all_but(away: str) -> Callable[[BeamFiles, str], BinaryIO]:
    """Gives a way to open files of which one is away."""
    open_file = BeamFiles.open

    def open_others(files: BeamFiles, path: str) -> BinaryIO:
        if path.endswith(f"/{away}"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return open_file(files, path)

    return open_others


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["2.txt", *(pytest.param(name, marks=pytest.mark.nightly) for name in SOURCES if name != "2.txt")]
)
def test_a_file_that_was_away_for_a_moment_costs_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source, away = SOURCES[name], name.partition(" ")[0]
    write_inputs(tmp_path / "in", range(8), with_images="image" in source)
    write = ShardWriter.write

    def stop_at_the_third_shard(writer: ShardWriter, records: list[bytes]) -> None:
        if len(list(tmp_path.glob("out/.building/*/*/reports/shard-*.json"))) == 2:
            raise DISK_FULL
        write(writer, records)

    with monkeypatch.context() as patch:
        patch.setattr(BeamFiles, "open", all_but(away))
        patch.setattr(ShardWriter, "write", stop_at_the_third_shard)
        with raises(DiskError, "No space left on device"):
            build_of(source)
    assert build_of(source).manifest.rows == {"read": 8, "written": 8, "rejected": 0, "duplicates": 0}


COMPARED = {
    "2.png": CAPTIONED.replace("label: null", "label: null\nduplicates: drop"),
    "2.txt": "{format: text, path: in, document: file}\nduplicates: drop\nfeatures: {text: {kind: text}}",
}


@pytest.mark.nightly
@pytest.mark.parametrize("away", COMPARED)
def test_a_pass_before_the_job_forgets_no_file_that_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path / "in", [0, 1, 5, 3, 4, 5, 6, 7], with_images=away.endswith("png"))

    with monkeypatch.context() as patch:
        patch.setattr(BeamFiles, "open", all_but(away))
        patch.setattr("recordmill.pipeline.build.make_version.run_job", MagicMock(side_effect=DISK_FULL))
        for _ in range(2):
            with raises(DiskError, "No space left on device"):
                build_of(COMPARED[away])
    assert build_of(COMPARED[away]).manifest.rows == {"read": 8, "written": 7, "rejected": 0, "duplicates": 1}


def build_of(source: str) -> Published:
    rest = "splits: {train: 100}\nshards: 8\nrejects: {max_share: 1}"
    return build(parse_spec(f"name: d\nsource: {source}\n{rest}"), "out")
