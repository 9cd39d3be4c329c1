"""The plan: chunks, shards, how many images are sampled, and a key of all that decides a byte of the result."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.build.base import live_analysis
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.plan import plan as module
from recordmill.pipeline.build.plan import processes as choice
from recordmill.pipeline.build.plan.plan import BuildPlan, make_plan, planned_build
from recordmill.pipeline.build.plan.processes import processes_for
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.sources.files import FileInfo, FileList, LocalFiles
from recordmill.pipeline.spec.model import MOST_SHARDS, Spec, parse_spec
from tests.constants import constants

FEATURES = "n: {kind: number}"
LINES = "".join(f'{{"n": {number}, "i": "a.png"}}\n' for number in range(100))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two files of 100 rows each, last changed long ago."""
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(LINES)
        os.utime(tmp_path / name, (1_000_000, 1_000_000))
    return tmp_path


def spec(rows: Path, features: str = FEATURES, more: str = "", sources: tuple[str, ...] = ("*.jsonl",)) -> Spec:
    listed = ", ".join(f"{{format: jsonl, path: {rows}/{source}}}" for source in sources)
    return parse_spec(f"name: d\nsource: [{listed}]\nfeatures: {{{features}}}\n{more}")


def planned(rows: Path, **changes: Any) -> BuildPlan:
    chunk_bytes = changes.pop("chunk_bytes", module.CHUNK_BYTES)
    return make_plan(spec(rows, **changes), BeamFiles(), RunOptions(chunk_bytes=chunk_bytes))


def test_chunks_are_numbered_by_source_and_file(rows: Path) -> None:
    plan = planned(rows, sources=("b.jsonl", "a.jsonl"), chunk_bytes=1500)
    assert [chunk.index for chunk in plan.chunks] == list(range(len(plan.chunks)))
    found = [(chunk.source, chunk.file) for chunk in plan.chunks]
    assert found == sorted(found)
    assert set(found) == {(0, "b.jsonl"), (1, "a.jsonl")}
    assert len(found) > 2
    assert plan.roots == (str(rows), str(rows))
    assert plan.rows == pytest.approx(200, rel=0.05)


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("more", "shards"),
    [
        ("", {"train": 4, "validation": 1, "test": 1}),  # 3.8 times the size of a shard in train
        ("shards: 8", {"train": 8, "validation": 8, "test": 8}),
        ("shards: {test: 2}", {"train": 4, "validation": 1, "test": 2}),
        ("splits: {test: 1, train: 1}", {"test": 4, "train": 4}),
        ("splits: {train: 1, test: 0}", {"train": 8, "test": 1}),
    ],
)
@constants(module, SHARD_BYTES=4 << 20, ROW_BYTES=0)
def test_shards(rows: Path, more: str, shards: dict[str, int]) -> None:
    for file in rows.iterdir():
        os.truncate(file, int(2.39 * module.SHARD_BYTES))  # a hole, which is not read
    layout = planned(rows, more=more).layout
    assert dict(layout.shards) == shards
    assert list(layout.weights) == list(shards)


@constants(module, SHARD_BYTES=1 << 10, ROW_BYTES=128)
def test_short_rows_make_more_shards_than_their_bytes_do(rows: Path) -> None:
    assert planned(rows, more="splits: {train: 1}").layout.shards == {"train": 32}  # 200 rows of 23 bytes


@pytest.mark.parametrize(
    ("seconds", "shards", "cores", "gib", "processes"),
    [
        (3600, 512, 2, 64, 1),  # one process fills two cores
        (3600, 512, 3, 64, 1),
        (3600, 512, 8, 64, 4),
        (3600, 512, 64, 256, 32),
        (3600, 512, 16, 8, 3),  # the driver takes memory, too
        (3600, 512, 16, 0, 1),
        (3600, 2, 16, 64, 2),
        (25, 512, 16, 64, 2),
        (5, 512, 16, 64, 1),
    ],
)
def test_processes_by_work_shards_cores_and_memory(
    seconds: float, shards: int, cores: int, gib: int, processes: int
) -> None:
    assert processes_for(seconds, shards, cores, gib << 30) == processes


@pytest.mark.parametrize(
    ("features", "count", "size", "chosen"),
    [
        ("i: {kind: image, size: 8}", 50_000, 0, 2),
        ("i: {kind: image, size: 8}", 50_000, 110_000, 8),
        ("t: {kind: text, column: i}", 50_000, 550, 1),
        ("t: {kind: text, column: i}", 1_000_000, 550, 5),
    ],
)
def test_processes_by_rows_bytes_and_kinds(
    features: str, count: int, size: int, chosen: int, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "cores", lambda: 16)
    monkeypatch.setattr(choice, "free_bytes", lambda: 64 << 30)
    seconds = choice.seconds_of(spec(rows, features), count, count * size)
    number, notes = choice.choose_processes(seconds, 64, RunOptions())
    assert number == chosen
    assert [note.split()[0] for note in notes] == [str(chosen)] * (chosen > 1)
    assert choice.choose_processes(seconds, 64, RunOptions(processes=3)) == (3, [])


@pytest.mark.parametrize(("store", "shards"), [("raw", 64), ("png", 64), ("auto", 32), ("jpeg", 32)])
def test_shards_of_images_are_by_their_pixels(rows: Path, store: str, shards: int) -> None:
    images = f"i: {{kind: image, size: [5000, 2684], store: {store}}}"  # 200 images of 40 MB, 60 shards
    assert planned(rows, features=images, more="splits: {train: 1}").layout.shards == {"train": shards}


@constants(module, SHARD_BYTES=1)
def test_a_plan_makes_no_more_shards_than_a_spec_may_ask_for(rows: Path) -> None:
    images = "i: {kind: image, size: [5000, 2684]}"
    assert planned(rows, features=images, more="splits: {train: 1}").layout.shards == {"train": MOST_SHARDS}


def test_a_planned_file_takes_few_bytes(tmp_path: Path) -> None:
    names = [f"n{number // 100:08d}/n{number // 100:08d}_{number}.jpg" for number in range(20_000)]

    class Listed(LocalFiles):
        def match(self, pattern: str) -> FileList:
            return FileList(FileInfo(f"{tmp_path}/{name}", 7, 0.0) for name in names)

    source = f"source: {{format: image_folder, path: {tmp_path}}}"
    plan = make_plan(parse_spec(f"name: d\n{source}\nfeatures: {{image: {{kind: image, size: 8}}}}"), Listed())
    assert [name for chunk in plan.chunks for name in chunk.work.names] == names
    assert len(pickle.dumps(plan.chunks)) < 12 * len(names)


def test_rows_are_packed_when_a_batch_of_each_shard_is_worth_it(rows: Path) -> None:
    sizes = [planned(rows, more=f"shards: {shards}").pack_bytes for shards in (1, 256, 65536)]
    assert sizes == [module.CHUNK_BYTES, 3 * 256 * module.BATCH_BYTES, module.MAX_PACK_BYTES]


def test_a_sample_of_the_images_is_measured(rows: Path) -> None:
    def share() -> float:
        plan = planned(rows, more="splits: {train: 1, test: 1}")
        return planned_build(plan, str(rows), BeamFiles(), inline=False, threads=1).sample_share

    assert share() == 1.0
    (rows / "a.jsonl").write_text(LINES * 2000)  # as many rows in train as ten samples have
    assert share() == pytest.approx(0.1, rel=0.05)


def test_the_same_inputs_have_the_same_key_by_the_same_packages(rows: Path) -> None:
    before = planned(rows).build_key
    assert before == planned(rows, chunk_bytes=1000).build_key
    assert len(before) == 64
    assert {"recordmill", "tensorflow", "apache-beam"} < set(live_analysis.package_versions())
    with constants(live_analysis, VERSION="99.0"):
        assert planned(rows).build_key != before


CHANGES = {
    "a file's name": (lambda rows: (rows / "a.jsonl").rename(rows / "c.jsonl"), {}),
    "one more file": (lambda rows: (rows / "c.jsonl").write_text(LINES), {}),
    "a feature": (lambda rows: None, {"features": "n: {kind: number, normalize: none}"}),
    "the splits": (lambda rows: None, {"more": "splits: {train: 1}"}),
    "the order of splits": (lambda rows: None, {"more": "splits: {test: 10, validation: 10, train: 80}"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_decides_a_byte_is_in_the_key(rows: Path, what: str) -> None:
    before = planned(rows).build_key
    change, options = CHANGES[what]
    change(rows)
    assert planned(rows, **options).build_key != before
