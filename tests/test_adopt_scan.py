"""The pass over a file to adopt: offsets, checksums, layouts and figures, also of damaged, cut-off and odd files."""

import gzip
import hashlib
import itertools
import os
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from recordmill import UserError
from recordmill.pipeline.adopt import files as listing
from recordmill.pipeline.adopt.files import AdoptError
from recordmill.pipeline.adopt.scanned import DAMAGED, NAMED, FeatureFacts, Scanned, scan_file
from recordmill.pipeline.reader import records as record_files
from recordmill.pipeline.sources.files import LocalFiles
from tests import tfrecords
from tests.messages import raises

RECORDS = 20


def scan(path: Path, folder: Path, key: str | None = None, **shares: float) -> Scanned:
    (found,) = listing.find(LocalFiles(), {"train": [str(path)]}, str(folder))
    read: list[int] = []
    scan_file(LocalFiles(), found, folder / "scan", key, shares, read.append)
    assert sum(read) == path.stat().st_size
    return Scanned.of(folder / "scan", found)


def starts(rows: Sequence[Any]) -> list[int]:
    sizes = [len(tfrecords.framed(tfrecords.example(row))) for row in rows]
    return [0, *itertools.accumulate(sizes)]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return list(map(tfrecords.row, range(RECORDS)))


@pytest.fixture
def file(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    return tfrecords.write(tmp_path / "old/a.tfrecord", rows)


def test_a_pass_finds_offsets_digest_layout_and_counts(file: Path, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    scanned = scan(file, tmp_path)
    assert scanned.offsets.tolist() == starts(rows)
    assert scanned.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert scanned.layouts == ({"id": "int64", "label": "int64", "size": "float32", "text": "bytes"},)
    assert scanned.groups.tolist() == [[0, 0]] * RECORDS
    assert (scanned.records, scanned.damaged, scanned.lost) == (RECORDS, (), False)
    facts = scanned.facts
    label, text, size = facts["int64 label"], facts["bytes text"], facts["float32 size"]
    assert (label.records, label.low, label.high, label.fewest, label.most) == (RECORDS, 0, 2, 1, 1)
    assert label.counts == {"0 0": {"0": 7, "1": 7, "2": 6}}
    assert (text.low, text.high) == (len("number 0"), len("number 10"))
    assert (size.low, size.high, size.counts) == (0, (RECORDS - 1) / 4, None)


def test_figures_of_files_add_up(file: Path, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    total = FeatureFacts()
    for half in (rows[:7], rows[7:]):
        total.add(scan(tfrecords.write(tmp_path / "old/half.tfrecord", half), tmp_path).facts["int64 label"])
    whole = scan(file, tmp_path).facts["int64 label"]
    ours, wanted = asdict(total), asdict(whole)
    assert ours.pop("lengths") != wanted.pop("lengths")  # depends on the files, alike for features of equal lengths
    assert ours == wanted


def test_a_second_pass_writes_the_same_bytes(file: Path, tmp_path: Path) -> None:
    both = []
    for _ in range(2):
        scan(file, tmp_path)
        both.append([(tmp_path / f"scan{suffix}").read_bytes() for suffix in (".index", ".scan")])
    assert both[0] == both[1]


@pytest.mark.parametrize("damage", ["flipped length", "cut data", "cut header"])
def test_a_rest_that_cannot_be_read_is_named(damage: str, file: Path, tmp_path: Path, rows: list[Any]) -> None:
    begin, end = starts(rows)[RECORDS - 1 :]
    data = bytearray(file.read_bytes())
    data[begin] ^= damage == "flipped length"
    file.write_bytes(data[: {"cut data": end - 5, "cut header": begin + 7}.get(damage)])
    scanned = scan(file, tmp_path)
    assert [each[:2] for each in scanned.damaged] == [(RECORDS - 1, begin)]
    assert (scanned.records, scanned.lost) == (RECORDS - 1, True)
    assert scanned.offsets.tolist() == starts(rows)[:RECORDS]


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    scanned = scan(tfrecords.write(tmp_path / "old/a.tfrecord", []), tmp_path)
    assert (scanned.records, scanned.layouts, scanned.lost) == (0, (), False)
    assert scanned.offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("head", "facts"),
    [
        (gzip.compress, ["compressed by gzip", "format: tfrecord"]),
        (zlib.compress, ["compressed by zlib", "format: tfrecord"]),
        (lambda data: b"a,b\n1,2\n" + data, ["no TFRecord file"]),
        (lambda data: data[:8], ["no TFRecord file"]),
    ],
)
def test_other_files_are_refused_by_name(
    head: Callable[[bytes], bytes], facts: list[str], file: Path, tmp_path: Path
) -> None:
    file.write_bytes(head(file.read_bytes()))
    with raises(AdoptError, str(file), *facts):
        scan(file, tmp_path)
    assert not (tmp_path / "scan.scan").exists()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_only_files_are_listed(make: Callable[[Path], None], file: Path, tmp_path: Path) -> None:
    make(other := file.with_name("other.tfrecord"))
    assert [each.name for each in listing.find(LocalFiles(), {"": [str(file.parent)]}, "out")] == [file.name]
    with raises(UserError, other, "give TFRecord files"):
        listing.find(LocalFiles(), {"": [str(other)]}, "out")


def test_records_that_are_no_example_have_a_layout(tmp_path: Path) -> None:
    rows = [b"", b"\xff\xff text", tfrecords.row(1)]
    scanned = scan(tfrecords.write(tmp_path / "old/a.tfrecord", rows), tmp_path)
    numbers = scanned.groups[:, 1].tolist()
    assert numbers[0] == numbers[1] != numbers[2]
    assert scanned.layouts[numbers[0]] == {"": "no example"}


def test_layouts_and_named_damage_have_a_limit(tmp_path: Path) -> None:
    rows = [{f"f{number}": 1} for number in range(256)]
    assert len(scan(tfrecords.write(tmp_path / "old/a.tfrecord", rows[:255]), tmp_path).layouts) == 255
    with raises(UserError, "255 layouts", "f255"):
        scan(tfrecords.write(tmp_path / "old/a.tfrecord", rows), tmp_path)
    one = tfrecords.framed(tfrecords.example({"a": 1}))
    (tmp_path / "a.tfrecord").write_bytes((one[:-1] + bytes([one[-1] ^ 1])) * (NAMED + 5))
    scanned = scan(tmp_path / "a.tfrecord", tmp_path)
    assert len(scanned.damaged) == NAMED
    assert scanned.damaged[-1].record == NAMED - 1
    assert (scanned.groups[:, 1] == DAMAGED).sum() == NAMED + 5


@pytest.mark.nightly
def test_memory_is_flat_however_many_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "BLOCK", 1 << 17)  # 128 KiB: many blocks in a small file
    some = b"".join(tfrecords.framed(tfrecords.example(tfrecords.row(number))) for number in range(1000))
    peaks = []
    for times in (10, 40):
        (tmp_path / "a.tfrecord").write_bytes(some * times)
        tracemalloc.start()
        assert scan(tmp_path / "a.tfrecord", tmp_path).records == 1000 * times
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + (1 << 17), peaks
