"""`recordmill verify`: every way to damage a version is found, and named with shard, record and byte."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, read_manifest
from recordmill.pipeline.dataset.tfrecord import frame
from recordmill.pipeline.graphs import UnsafeGraphError
from recordmill.pipeline.reader import records as walk
from recordmill.pipeline.verify import verify as whole
from recordmill.pipeline.verify.files import MOST, serving_model
from recordmill.pipeline.verify.verify import verify
from tests import published
from tests.constants import constants
from tests.memory_store import memory_store
from tests.messages import assert_names, raises

SHARD = "small-train.tfrecord-00001-of-00004"
INDEX = "small-train.index-00001-of-00004"
MODEL = "serving/saved_model.pb"
TEXT_WORDS = published.FEATURES["text"]["vocabulary"]
INFO = "dataset_info.json"
TFDS = b'{"featuresDict": {"features": {"key": {}}}}'
Change = Callable[[Path], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published.write_version(tmp_path)


def offsets(folder: Path, shard: str = SHARD) -> list[int]:
    return [int(at) for at in np.fromfile(folder / shard.replace("tfrecord", "index"), "<u8")]


def frames(folder: Path, shard: str = SHARD) -> list[bytes]:
    return published.frames(folder, shard)


def numbers(folder: Path) -> list[int]:
    """The rows that the shard's records were made of."""
    return [int(one.partition(b"row/")[2].partition(b"\n")[0].partition(b"\x12")[0]) for one in frames(folder)]


def said(folder: Path) -> list[str]:
    return [str(problem) for problem in verify(str(folder)).findings.problems]


def change_byte(record: int, at: int) -> Change:
    """Flips a bit of a record, at a byte counted from its first, or from behind its last."""

    def change(folder: Path) -> None:
        content, places = bytearray((folder / SHARD).read_bytes()), offsets(folder)
        content[(places[record] if at >= 0 else places[record + 1]) + at] ^= 16
        (folder / SHARD).write_bytes(content)

    return change


def rewrite(folder: Path, written: Sequence[bytes]) -> None:
    published.replace_shard(folder, "train", 1, written)


def change_records(change: Callable[[list[bytes]], None]) -> Change:
    def changed(folder: Path) -> None:
        written = frames(folder)
        change(written)
        rewrite(folder, written)

    return changed


def change_row(record: int, **values: Any) -> Change:
    """Writes other values into a record; None takes a feature out."""

    def changed(folder: Path) -> None:
        row = published.row(numbers(folder)[record]) | values
        written = frames(folder)
        written[record] = frame(published.example({name: one for name, one in row.items() if one is not None}))
        rewrite(folder, written)

    return changed


def from_another_shard(folder: Path) -> None:
    other = frames(folder, "small-train.tfrecord-00002-of-00004")
    rewrite(folder, [*frames(folder), other[0]])


def from_another_split(folder: Path) -> None:
    other = frames(folder, "small-test.tfrecord-00000-of-00002")
    rewrite(folder, [other[0], *frames(folder)])


def cut(record: int, at: int) -> Change:
    return lambda folder: os.truncate(folder / SHARD, offsets(folder)[record] + at)


def swap(written: list[bytes]) -> None:
    written[3], written[4] = written[4], written[3]


def write_graph(*operations: str) -> Change:
    def write(folder: Path) -> None:
        (folder / MODEL).write_bytes(published.graph([*published.OPERATIONS, *operations]))
        published.write_manifest(folder, read_manifest(folder))

    return write


def change_file(path: str, content: bytes) -> Change:
    """Another content, with the manifest's digest of it."""

    def write(folder: Path) -> None:
        (folder / path).write_bytes(content)
        published.write_manifest(folder, read_manifest(folder))

    return write


def change_index(folder: Path) -> None:
    index = np.fromfile(folder / INDEX, "<u8")
    index[2] += 1
    change_file(INDEX, index.tobytes())(folder)


def change_manifest(**changes: Any) -> Change:
    return lambda folder: published.write_manifest(folder, replace(read_manifest(folder), **changes))


def change_labels(folder: Path) -> None:
    splits = dict(read_manifest(folder).splits)
    splits["test"] = replace(splits["test"], label_counts=(10, 66))
    change_manifest(splits=splits)(folder)


def append(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes() + b"more than a header")


def double(written: list[bytes]) -> None:
    written.insert(6, written[5])


def scribble(written: list[bytes]) -> None:
    written[2] = frame(b"\xff no Example")


def make_pipe(folder: Path) -> None:
    (folder / SHARD).unlink()
    os.mkfifo(folder / SHARD)


DAMAGES: dict[str, tuple[Change, int | None, tuple[str, ...]]] = {
    "a bit of a length": (change_byte(3, 2), 3, ("length", "checksum")),
    "a bit of a length's checksum": (change_byte(0, 9), 0, ("length", "checksum")),
    "a bit of data": (change_byte(5, 40), 5, ("data (", "checksum")),
    "a bit of the data's checksum": (change_byte(5, -2), 5, ("data (", "checksum")),
    "a bit of the last length": (change_byte(-2, 1), -2, ("length", "checksum")),
    "cut at a boundary": (cut(7, 0), None, (f"{SHARD}: ", "7 records")),
    "cut inside a header": (cut(7, 5), 7, ("header", "5 of 12 bytes")),
    "cut inside data": (cut(7, 30), 7, ("inside", "missing")),
    "bytes at the end": (append, -1, ("length", "checksum")),
    "a swapped pair": (change_records(swap), 4, ("key 'row/", "previous record")),
    "a doubled record": (change_records(double), 6, ("key 'row/", "duplicate")),
    "a record of another shard": (from_another_shard, -2, ("shard 2", "'train'")),
    "a record of another split": (from_another_split, 0, ("split 'test'",)),
    "a record that is gone": (change_records(list.pop), None, (f"{MANIFEST_FILE}: 200 rows", "199")),
    "another type": (change_row(2, price=7), 2, ("'price'", "int64", "float32")),
    "another shape": (change_row(2, label=[1, 0]), 2, ("'label'", "2 values", "expected 1")),
    "a feature too few": (change_row(2, note=None), 2, ("features", "'note'")),
    "a feature too many": (change_row(2, more=1), 2, ("features", "'more'")),
    "no Example": (change_records(scribble), 2, ("tf.train.Example",)),
    "a label that is no class": (change_row(2, label=2), 2, ("'label'", "id 2", "0 to 1")),
    "a word beyond the vocabulary": (change_row(2, text=[9]), 2, ("'text'", "id 9", "0 to 4")),
    "other labels": (change_labels, None, (MANIFEST_FILE, "'test'", "label 0", "expected 10")),
    "other rows": (change_manifest(rows={"read": 9}), None, (MANIFEST_FILE, "rows: 9", "duplicates")),
    "other rejects": (change_manifest(rejects={}), None, (MANIFEST_FILE, "2 rows", "0 by reason")),
    "lost rejects": (change_file(published.REJECTS, b"{}\n"), None, (published.REJECTS, "1 rejects", "expected 2")),
    "a stray file": (lambda folder: (folder / "core.1").touch(), None, ("core.1: ", "manifest")),
    "a stray name": (lambda folder: (folder / "a\x1b[2J").touch(), None, ("a\\x1b[2J: ", "manifest")),
    "a missing shard": (lambda folder: (folder / SHARD).unlink(), None, (f"{SHARD}: ", "missing")),
    "a missing index": (lambda folder: (folder / INDEX).unlink(), None, (f"{INDEX}: ", "missing")),
    "a missing file": (lambda folder: (folder / "features.json").unlink(), None, ("features.json: ", "missing")),
    "a pipe": (make_pipe, None, (f"{SHARD}: ", "pipe")),
    "a wrong index": (change_index, None, (f"{INDEX}, record 2 at byte 16", "index says")),
    "a cut index": (lambda folder: os.truncate(folder / INDEX, 64), None, (f"{INDEX}: ", "64 bytes")),
    "other words": (change_file(TEXT_WORDS, b"a\n"), None, (f"{TEXT_WORDS}: 1 words", "'text'", "5 ids")),
    "other splits for TFDS": (change_file(INFO, b'{"splits": []}'), None, (f"{INFO}: ", "'train'")),
    "other features for TFDS": (change_file("features.json", TFDS), None, ("features.json: ", "'label'")),
    "no JSON": (change_file("features.json", b"{"), None, ("features.json: ", "JSON")),
    "Python in the graph": (write_graph("PyFunc"), None, (f"{MODEL}: ", "'PyFunc'", "2 times")),
    "reading in the graph": (write_graph("ReadFile"), None, (f"{MODEL}: ", "'ReadFile'", "2 times")),
    "writing in the graph": (write_graph("WriteFile"), None, (f"{MODEL}: ", "'WriteFile'", "2 times")),
    "saving in the graph": (write_graph("SaveV2"), None, (f"{MODEL}: ", "'SaveV2'", "2 times")),
    "no graph": (change_file(MODEL, b"\xff\xff"), None, (f"{MODEL}: ", "SavedModel")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(damage: str, folder: Path) -> None:
    change, record, facts = DAMAGES[damage]
    change(folder)
    found = verify(str(folder)).findings.problems
    fitting = [problem for problem in found if all(fact in str(problem) for fact in facts)]
    assert fitting, found
    if record is not None:
        places = offsets(folder)
        place = fitting[0].file, fitting[0].record, fitting[0].offset
        assert place == (SHARD, range(len(places))[record], places[record])


def test_nothing_is_found_where_nothing_is_wrong(folder: Path) -> None:
    report = verify(str(folder))
    assert (report.is_whole, report.findings.problems) == (True, [])
    assert_names([*report.lines()][-1], f"small {published.VERSION}: ", "manifest")
    checked = report.findings.checked
    assert (checked["records"], checked["shards"], checked["operations"]) == (200, 6, 20)
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_FILE]
    assert (checked["files"], checked["bytes"]) == (len(files), sum(path.stat().st_size for path in files))


def test_every_bit_flip_is_found(tmp_path: Path) -> None:
    """80 bits anywhere in the version; in a shard the record is named."""
    folder = published.write_version(tmp_path, rows=60)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_FILE)
    sizes = np.array([path.stat().st_size for path in files])
    random = np.random.default_rng(5)
    for number in random.integers(0, sizes.sum(), 80).tolist():
        place = int(np.searchsorted(np.cumsum(sizes), number, side="right"))
        at, path = number - int(sizes[:place].sum()), files[place]
        content = path.read_bytes()
        changed = bytearray(content)
        changed[at] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        of_file = [one for one in verify(str(folder)).findings.problems if one.file == str(path.relative_to(folder))]
        path.write_bytes(content)
        assert of_file, (path, at)
        if "tfrecord" in path.name:
            record = int(np.searchsorted(offsets(folder, path.name), at, side="right")) - 1
            assert [one.record for one in of_file] == [None, record]  # the file's digest first


def test_behind_damage_the_rest_is_read(folder: Path) -> None:
    for record, at in ((1, 3), (4, 40), (9, 0)):
        change_byte(record, at)(folder)
    found = verify(str(folder)).findings
    assert [problem.record for problem in found.problems] == [None, 1, 4, 9]
    assert found.checked["records"] == 200
    (folder / INDEX).unlink()
    assert any("rest" in line and "index" in line for line in said(folder)), "without an index the rest is given up"


def test_records_of_any_size_are_walked(folder: Path) -> None:
    """Blocks smaller than a header, and than most records: everything lies across a border once."""
    change_byte(6, 5)(folder)
    expected = said(folder)
    for size in (1, 7, 50, 1000):
        with constants(walk, BLOCK=size):
            assert said(folder) == expected


def test_of_many_problems_some_are_named(folder: Path) -> None:
    def rename(written: list[bytes]) -> None:
        written[:] = [frame(b"nothing") for _ in range(MOST + 15)]

    change_records(rename)(folder)
    report = verify(str(folder))
    assert sum(problem.file == SHARD for problem in report.findings.problems) == MOST
    assert report.findings.unnamed == {SHARD: 15}
    assert f"{SHARD}: and 15 more" in report.lines()


def test_many_bytes_are_checked_by_processes(folder: Path) -> None:
    change_byte(5, 40)(folder)
    expected = verify(str(folder)).findings
    with constants(whole, MANY_BYTES=0):
        assert verify(str(folder)).findings == expected


def test_quick_compares_sizes_and_digests(folder: Path) -> None:
    report = verify(str(folder), quick=True)
    assert report.is_whole
    assert report.findings.unchecked == [whole.QUICK]
    change_byte(5, 40)(folder)
    (problem,) = verify(str(folder), quick=True).findings.problems
    assert_names(problem, f"{SHARD}: ", "SHA-256")


def test_a_linked_folder_is_a_stray_file(folder: Path, tmp_path: Path) -> None:
    (folder / "serving/assets.extra").symlink_to(tmp_path)
    (problem,) = said(folder)
    assert_names(problem, "serving/assets.extra: ", "manifest")


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"spec": {"splits": {"train": "many", "test": 1}}}, ("spec in dataset.json", "restore it")),
        ({"features": {**published.FEATURES, "price": {"kind": "number"}}}, ("'price'", "number", "`stored`")),
        ({"features": {**published.FEATURES, "note": {"kind": "sound"}}}, ("'note'", "'sound'")),
        ({"rejects": {"by_reason": ["x"]}}, ("rejects.by_reason", "a list")),
    ],
)
def test_a_broken_manifest_is_one_clear_line(changes: dict[str, Any], facts: tuple[str, ...], folder: Path) -> None:
    change_manifest(**changes)(folder)
    with raises(DatasetError, *facts):
        verify(str(folder))


def test_a_version_in_an_object_store(folder: Path) -> None:
    change_byte(5, 40)(folder)
    url = "memory://bucket/verified"
    with memory_store() as memory:
        files = [path for path in folder.rglob("*") if path.is_file()]
        memory.objects |= {f"{url}/{path.relative_to(folder)}": path.read_bytes() for path in files}
        local, remote = verify(str(folder)).findings, verify(url).findings
        assert (local.problems, local.checked) == (remote.problems, remote.checked)
        del memory.objects[f"{url}/{SHARD}"]
        memory.objects[f"{url}/stray"] = b""
        shard, stray = verify(url).findings.problems
        assert_names(shard, f"{SHARD}: ", f"/{SHARD}", "missing")
        assert_names(stray, "stray: ", "manifest")


SAVER = "__inference__traced_save_7"


def saving_graph(*, callers: Sequence[str] = ("saver",), taken: str = "", function: str = SAVER) -> bytes:
    """A graph with a function that writes files, called by nodes of the graph; `taken` is what another node takes."""
    called = published.field(10, published.field(1, function.encode()))
    calls = published.field(5, published.field(1, b"f") + published.field(2, called))
    nodes = [_node(name, "StatefulPartitionedCall") + calls for name in callers]
    nodes.append(_node("result", "Identity") + published.field(3, taken.encode()))
    writes = published.field(1, published.field(1, function.encode())) + published.field(3, _node("save", "SaveV2"))
    graph = b"".join(published.field(1, node) for node in nodes) + published.field(2, published.field(1, writes))
    return published.field(2, published.field(2, graph))


def _node(name: str, operation: str) -> bytes:
    return published.field(1, name.encode()) + published.field(2, operation.encode())


@pytest.mark.parametrize(
    ("graph", "refused"),
    [
        (saving_graph(), False),
        (saving_graph(taken="^saver"), True),
        (saving_graph(taken="saver:0"), True),
        (saving_graph(callers=("saver", "again")), True),
        (saving_graph(callers=()), True),
        (saving_graph(function="__inference_serve_7"), True),
    ],
)
def test_a_graph_writes_files_only_where_it_is_saved(graph: bytes, refused: bool, folder: Path) -> None:
    change_file(MODEL, graph)(folder)
    problems = said(folder)
    assert len(problems) == refused
    for problem in problems:
        assert_names(problem, f"{MODEL}: ", "'SaveV2'", "1 times")


def test_a_serving_model_is_given_once_it_was_checked(folder: Path) -> None:
    assert serving_model(folder) == str(folder / "serving")
    with raises(DatasetError, "[v2]", "rename"):
        serving_model(shutil.copytree(folder, folder.parent / "photos [v2]"))
    write_graph("PyFunc")(folder)
    with raises(UnsafeGraphError, "'PyFunc'", "2 times", "build again"):
        serving_model(folder)
    (folder / "serving/saved_model.pbtxt").touch()
    with raises(UnsafeGraphError, "saved_model.pbtxt", "1 more"):
        serving_model(folder)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "recordmill", "verify", *arguments]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_says_it_and_ends_with_a_status(folder: Path) -> None:
    good = command(str(folder.parents[1]))
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, [*verify(str(folder)).lines()][-1]), good.stderr
    change_byte(5, 40)(folder)
    bad = command(str(folder), "--json")
    report = json.loads(bad.stdout)
    assert (bad.returncode, report["is_whole"], report["checked"]["records"]) == (1, False, 200)
    assert report["problems"][1]["record"] == 5
