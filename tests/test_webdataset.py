"""WebDataset's tar files: samples and members, pictures read in place, hostile and damaged files."""

import gzip
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.sources import batches
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import tar_samples
from recordmill.pipeline.sources.formats.tar_samples import split_name
from recordmill.pipeline.sources.formats.webdataset import parts
from recordmill.pipeline.sources.images import parse
from tests import tables
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, INTEGER, NUMBER, TEXT, FarFiles, read, tar, write

source = partial(tables.source, "webdataset")
ASKED = {"__key__": CATEGORY, "txt": TEXT}


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def texts(count: int) -> bytes:
    return tar(*((f"{row:04}.txt", f"text {row}") for row in range(count)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0001.jpg", ("0001", "jpg")),
        ("./train/0001.SEG.Png", ("train/0001", "seg.png")),
        ("a.b/c.txt", ("a.b/c", "txt")),
        ("../0001.jpg", ("../0001", "jpg")),
        ("/etc/0001.jpg", ("/etc/0001", "jpg")),
        ("README", None),
        (".DS_Store", None),
        ("x/._0001.jpg", None),
        ("0001.", None),
        ("__meta__/0001.jpg", None),
        ("__urls__", None),
    ],
)
def test_names(name: str, expected: tuple[str, str] | None) -> None:
    assert split_name(name) == expected
    found = parts("JPG; png;meta.json.a.b")
    assert found == [("jpg", None), ("png", None), ("meta.json.a.b", None), ("meta.json", "a.b")]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_samples(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    info = {"caption": "a cat", "size": {"h": 3}, "boxes": [{"x": [1, 2]}, {"x": [3, 4]}]}
    asked = {
        "jpg;png": IMAGE,
        "txt": TEXT,
        "cls": INTEGER,
        "name;cls": CATEGORY,
        "json.caption": TEXT,
        "json.size.h": NUMBER,
        "json.boxes.x": replace(NUMBER, many=True),
        "tags": replace(CATEGORY, many=True),
        "__key__": CATEGORY,
    }
    rest = {"txt": "a cat\n", "cls": "7\n", "json": json.dumps(info), "tags": "a, b\n", "npy": "?"}
    samples = [{"JPG": b"\xff\xd8", "name": "cat\r\n", **rest}, {"png": b"png", **rest}]
    members = [(f"x/{row}.{end}", data) for row, sample in enumerate(samples, 1) for end, data in sample.items()]
    name = "a.tar" if pack is bytes else "a.tar.gz"
    path = write(tmp_path / name, pack(tar(("README", "?"), special("x", tarfile.DIRTYPE), *members)))
    found = read(source(tmp_path), asked)
    pictures = [parse(row.pop("jpg;png")) for row in found.rows]
    if pack is bytes:
        data = path.read_bytes()
        pictures = [replace(one, data=data[one.offset : one.offset + (one.length or 0)]) for one in pictures]
        assert {one.path for one in pictures} == {name}
    assert [one.data for one in pictures] == [b"\xff\xd8", b"png"]
    common = {"txt": "a cat\n", "cls": 7, "json.caption": "a cat", "json.size.h": 3, "json.boxes.x": [1, 2, 3, 4]}
    common["tags"] = ["a", "b"]
    own = {"x/1": "cat", "x/2": "7"}
    assert found.rows == [{**common, "name;cls": name, "__key__": key} for key, name in own.items()]
    assert found.keys == [b"x/1", b"x/2"]
    assert (found.plan.rows, found.rejects) == (2, [])
    members, columns = found.plan.notes
    assert_names(members, "members", ": 1 (README)")
    assert_names(columns, "columns", ": npy")


def test_byte_order_marks_belong_to_no_value(tmp_path: Path) -> None:
    members = [(f"{row}.{end}", mark + data) for row, mark in enumerate((b"", b"\xef\xbb\xbf")) for end, data in
               (("txt", b"a cat"), ("cls", b"7"), ("json", b'{"n": 3}'))]  # fmt: skip
    found = read(source(write(tmp_path / "a.tar", tar(*members))), {"txt": TEXT, "cls": CATEGORY, "json.n": NUMBER})
    assert found.rows == [{"txt": "a cat", "cls": "7", "json.n": 3}] * 2


def test_rows_do_not_depend_on_chunks(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", texts(50))
    found = read(source(path), ASKED, chunk_bytes=3000)
    assert found.rows == [{"__key__": f"{row:04}", "txt": f"text {row}"} for row in range(50)]
    assert (len(found.plan.chunks), found.plan.rows) == (17, 50)
    with constants(batches, BLOCK_BYTES=20):
        assert read(source(path), ASKED).rows == found.rows


def test_files_that_are_far_away_are_not_walked_through() -> None:
    found = read(source("mem://far/a.tar"), ASKED, 1000, files=FarFiles(a_tar=texts(500)))
    assert (len(found.rows), len(found.plan.chunks)) == (500, 1)
    assert 480 < found.plan.rows < 520


def test_rows_of_compressed_files_are_estimated(tmp_path: Path) -> None:
    write(tmp_path / "a.tar.gz", gzip.compress(texts(5000)))
    write(tmp_path / "b.tgz", gzip.compress(texts(3)))
    found = read(source(tmp_path), ASKED)
    assert len(found.rows) == 5003
    assert 2500 < found.plan.rows < 10_000


ABSENT, NO_OBJECT, INVALID = ["absent"], [".json", "JSON object"], ["UTF-8"]
FAULTS: dict[str, tuple[str, bytes | str, dict[str, Any], str, list[str]]] = {
    "no member": ("1.txt", "a", {"txt": TEXT, "cls": INTEGER}, "missing_value", ABSENT),
    "an empty picture": ("1.jpg", "", {"jpg": IMAGE}, "missing_value", ABSENT),
    "no UTF-8": ("1.txt", b"\xff", {"txt": TEXT}, "invalid_utf8", INVALID),
    "two lines": ("1.cls", "a\nb\n", {"cls": CATEGORY}, "wrong_type", ["category", "line break"]),
    "a list": ("1.json", "[1]", {"json.a": TEXT}, "malformed_row", NO_OBJECT),
    "cut JSON": ("1.json", '{"a": ', {"json.a": TEXT}, "malformed_row", [*NO_OBJECT, "Expecting value, character 7"]),
    "JSON of bytes": ("1.json", b'{"a": "\xff"}', {"json.a": TEXT}, "invalid_utf8", INVALID),
    "deep JSON": ("1.json", "[" * 100_000, {"json.a": TEXT}, "malformed_row", NO_OBJECT),
    "a surrogate": ("1.json", r'{"a": "\ud800"}', {"json.a": TEXT}, "invalid_utf8", INVALID),
    "a path": ("1.json", '{"a": "/a.png"}', {"json.a": IMAGE}, "forbidden_path", ["absolute"]),
    "a name": ("\udcff.txt", "a", {"txt": TEXT}, "invalid_utf8", ["name", "UTF-8"]),
}


@pytest.mark.parametrize(("name", "content", "asked", "reason", "facts"), FAULTS.values(), ids=FAULTS)
def test_faults(tmp_path: Path, name: str, content: bytes | str, asked: Any, reason: str, facts: list[str]) -> None:
    good: list[tuple[str, bytes | str]] = [("0.txt", "a"), ("0.cls", "1"), ("0.json", '{"a": 1}'), ("0.jpg", "x")]
    data = tar(*good, (name, content), format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape")
    (fault,) = read(source(write(tmp_path / "a.tar", data)), asked).rejects[-1:]
    assert (fault.position, fault.reason) == (1, reason)
    assert_names(fault.message, *facts)
    assert fault.key == ("1" if name.startswith("1") else None)


@constants(tar_samples, MAX_DATA_BYTES=10)
def test_a_text_that_is_too_large(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", tar(("1.txt", "x" * 11), ("2.txt", "x" * 10), ("2.jpg", "y" * 99)))
    found = read(source(path), ASKED)
    [(reason, column, message)] = found.faults
    assert (reason, column) == ("too_large", "txt")
    assert_names(message, ".txt", "64 MiB")
    assert len(read(source(path), {"jpg": replace(IMAGE, optional=True)}).rows) == 2


def test_a_member_that_comes_twice_and_a_name_that_comes_later_again(tmp_path: Path) -> None:
    found = read(source(write(tmp_path / "a.tar", tar(("1.txt", "a"), ("1.TXT", "b"), ("2.txt", "c")))), ASKED)
    [(reason, _, message)] = found.faults
    assert reason == "malformed_row"
    assert_names(message, "two members .txt")
    assert found.keys == [b"2"]
    path = write(tmp_path / "a.tar", tar(("1.txt", "a"), ("2.txt", "b"), ("1.txt", "c"), ("./3.txt", "d")))
    assert read(source(path), ASKED).keys == [b"1", b"2", b"1", b"3"]


def test_nothing_is_followed_or_written(tmp_path: Path) -> None:
    members = [
        special("1.jpg", tarfile.SYMTYPE, "/etc/passwd"),
        special("1.png", tarfile.LNKTYPE, "../x"),
        special("1.dev", tarfile.CHRTYPE),
        special("1.fifo", tarfile.FIFOTYPE),
        ("../../1.txt", "a"),
        ("/etc/2.txt", "b"),
        ("x" * 300 + "/3.txt", "c"),
    ]
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        folder = tmp_path / str(kind)
        folder.mkdir()
        found = read(source(write(folder / "a.tar", tar(*members, format=kind))), ASKED)
        assert [row["__key__"] for row in found.rows] == ["../../1", "/etc/2", "x" * 300 + "/3"]
        assert_names(found.plan.notes, ": 4 (1.jpg, 1.png, 1.dev and 1 more)")
        assert [file.name for file in folder.iterdir()] == ["a.tar"]


def test_headers_for_all_members_keep_a_file_whole(tmp_path: Path) -> None:
    data = tar(*((f"{row}.txt", "a") for row in range(9)), format=tarfile.PAX_FORMAT, pax_headers={"comment": "x"})
    found = read(source(write(tmp_path / "a.tar", data)), ASKED, chunk_bytes=1)
    assert (len(found.rows), len(found.plan.chunks)) == (9, 1)


GOOD = tar(("0.txt", "z"), ("0.cls", "0"), ("1.txt", "a"), ("1.cls", "1"), ("2.txt", "b" * 600), ("2.cls", "2"))
AT = 4096  # where the header of 2.txt begins; its last member's begins at 5632


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """Changes a header of a tar file, and corrects its checksum."""
    header = bytearray(data[at // 512 * 512 :][:512])
    header[at % 512 : at % 512 + len(new)] = new
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return data[: at // 512 * 512] + bytes(header) + data[at // 512 * 512 + 512 :]


HUGE = patched(GOOD, AT + 124, b"%011o" % (1 << 30))
CHAIN = patched(patched(GOOD[AT : AT + 512], 124, b"0" * 11), 156, b"x") * 5000
DAMAGE: dict[str, tuple[bytes, int, list[str]]] = {
    "a header": (GOOD[:AT] + b"?" + GOOD[AT + 1 :], 1, ["damaged", "byte 4096"]),
    "another file": (GOOD[:AT] + b"GIF89a" + bytes(9000), 1, ["damaged", "byte 4096"]),
    "cut in a header": (GOOD[: AT + 99], 1, ["damaged", "byte 4096"]),
    "cut in a member": (GOOD[: AT + 700], 2, ["cut off", "byte 4096"]),
    "cut in the last member": (GOOD[: AT + 2048], 2, ["cut off", "byte 5632"]),
    "1 GB": (HUGE, 2, ["cut off", "byte 4096"]),
    "a negative size": (patched(GOOD, AT + 124, b"\xff" * 12), 1, ["damaged (a negative size)", "byte "]),
    "a long name": (patched(HUGE, AT + 156, b"L"), 1, ["damaged (", "1073741824 bytes"]),
    "headers that never end": (GOOD[:AT] + CHAIN, 1, ["damaged (RecursionError)", "byte "]),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(("data", "good", "facts"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_files(
    tmp_path: Path, data: bytes, good: int, facts: list[str], pack: Callable[[bytes], bytes]
) -> None:
    name = "a.tar" if pack is bytes else "a.tar.gz"
    found = read(source(write(tmp_path / name, pack(data))), {"txt": TEXT, "cls": INTEGER})
    assert found.rows == [{"txt": "z", "cls": 0}, {"txt": "a", "cls": 1}][:good]
    ((reason, column, said),) = found.faults
    assert (reason, column) == ("damaged_record", None)
    assert_names(said, *(facts if pack is bytes else ()), "rest of ")
    assert found.plan.rows == good + 1


@pytest.mark.parametrize("spoil", [lambda data: data[:-500], lambda data: data[:-500] + bytes(500)])
def test_compressed_data_that_is_damaged(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    found = read(source(write(tmp_path / "a.tar.gz", spoil(gzip.compress(texts(5000))))), ASKED)
    assert [fault[0] for fault in found.faults] == ["damaged_record"]
    assert len(found.rows) > 4000


def test_a_missing_end_is_noted(tmp_path: Path) -> None:
    found = read(source(write(tmp_path / "a.tar", GOOD[:6656])), {"txt": TEXT, "cls": INTEGER})
    assert len(found.rows) == 3
    [note] = found.plan.notes
    assert_names(note, "cut off", ": 1 (a.tar)")


@pytest.mark.parametrize(
    ("data", "asked", "facts"),
    [
        (b"no tar file" * 99, ASKED, ["no sample", "0001.jpg and 0001.txt", "damaged"]),
        (tar(("README", "a")), ASKED, ["no sample", "0001.jpg and 0001.txt"]),
        (GOOD, {"text": TEXT}, ["'text'", "cls, txt", "mean 'txt'"]),
        (tar(("1.json", '{"caption": 1}')), {"json.captoin": TEXT}, ["'json.captoin'", "mean 'json.caption'"]),
    ],
)  # fmt: skip
def test_sources_that_cannot_be_read(tmp_path: Path, data: bytes, asked: Any, facts: list[str]) -> None:
    with raises(SourceError, "a.tar", *facts):
        source(write(tmp_path / "a.tar", data)).plan(FILES, asked, 1)


@constants(tar_samples, SKIPPED_BYTES=1000)
def test_no_walk_holds_a_file_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar.gz", gzip.compress(tar(("1.jpg", bytes(100_000)), ("1.txt", "a"))))
    assert len(read(source(path), ASKED).rows) == 1
