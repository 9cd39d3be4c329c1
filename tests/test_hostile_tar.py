"""Tar files with false sizes or endless headers are read in bounded memory."""

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import reader_of, tar_samples
from recordmill.pipeline.sources.formats.tar_samples import Tar, samples
from recordmill.pipeline.sources.options import WebDataset
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import TEXT, read

MIB = 1 << 20
END = bytes(2 * tarfile.BLOCKSIZE)


def member(name: str, data: bytes = b"") -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


GOOD = member("0001.txt", b"hello")


def sparse(claims: int, more: bool = False) -> bytes:
    """A sparse file as GNU tar writes it: 512 stored bytes, with `more` map parts after the header."""
    info = tarfile.TarInfo("0000.txt")
    info.size, info.type = 512, tarfile.GNUTYPE_SPARSE
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[386:410], head[482], head[483:495] = b"%011o\0%011o\0" % (0, 512), more, b"%011o\0" % claims
    head[148:156] = b"%06o\0 " % (sum(head) - sum(head[148:156]) + 8 * ord(" "))
    return bytes(head) + (b"" if more else bytes(512))


def of_pax(headers: dict[str, str], data: bytes) -> bytes:
    info = tarfile.TarInfo("x")
    info.size, info.pax_headers = len(data), headers
    return info.tobuf(tarfile.PAX_FORMAT) + data


def map_of_pax(claims: int, data: bytes) -> bytes:
    named = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "0000.txt"}
    return of_pax(named | {"GNU.sparse.realsize": str(claims)}, data)


@pytest.mark.parametrize(
    "data", [sparse((8 << 30) - 1), map_of_pax(10 << 30, b"1\n0\n512\n".ljust(512, b"\0"))], ids=["GNU", "PAX"]
)
def test_a_sparse_member_is_no_part_of_a_sample(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data + GOOD + END)
    found = read(reader_of(WebDataset(format="webdataset", path=str(tmp_path / "a.tar"))), {"txt": TEXT})
    assert found.rows == [{"txt": "hello"}]
    [note] = found.plan.notes
    assert_names(note, "members", ": 1 (0000.txt)")


def endless_map() -> Iterator[bytes]:
    part = b"%011o\0%011o\0" % (1, 1)
    yield sparse(1, more=True)
    yield from [(part * 21 + b"\1").ljust(512, b"\0") * 1024] * 16


def endless_text() -> Iterator[bytes]:
    yield map_of_pax(10, b"9999999\n")
    yield from [b"1\n" * (MIB // 2)] * 16


def globals_without_end() -> Iterator[bytes]:
    for number in range(20):
        yield tarfile.TarInfo.create_pax_global_header({f"k{number}": "v" * (MIB // 2)})
        yield member(f"{number}.txt")


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (endless_map, ["member's headers", "4194304 bytes"]),
        (endless_text, ["member's headers", "4194304 bytes"]),
        (globals_without_end, ["too many global headers"]),
    ],
)
def test_headers_without_end_are_refused_early(make: Callable[[], Iterator[bytes]], facts: list[str]) -> None:
    tar = Tar(io.BytesIO(gzip.compress(GOOD + b"".join(make()), 1)), None)
    with raises(tar_samples.DamagedTarError, *facts):
        list(samples(tar, (), print))
    assert tar._file.tell() < 5 * MIB


def test_names_that_are_too_long_are_no_sample() -> None:
    left_out = list[str]()
    data = GOOD + b"".join(member(f"{number}{'x' * MIB}"[: MIB - 600] + ".txt") for number in range(3)) + END
    assert [sample.key for sample in samples(Tar(io.BytesIO(data), len(data)), (), left_out.append)] == ["0001"]
    assert [len(name) for name in left_out] == [tar_samples.MAX_NAME] * 3


@constants(tar_samples, MAX_MEMBERS=3)
def test_a_sample_of_too_many_members_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"".join(member(f"1.e{number}") for number in range(5)) + END)
    with raises(SourceError, "sample", "3 members"):
        read(reader_of(WebDataset(format="webdataset", path=str(tmp_path / "a.tar"))), {"txt": TEXT})
