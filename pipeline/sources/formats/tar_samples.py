"""The members of a tar file in order, read by Python's `tarfile`, and the WebDataset samples that they form.

Nothing is extracted. Reading only goes forward, and a hostile file costs no more memory than a member's headers may
take.

A sample is consecutive members with the same name up to its first dot, by WebDataset's own rule: `train/0001.seg.png`
has the key `train/0001` and the extension `seg.png`, in small letters. Members without such a name, such as `README` or
`.DS_Store`, and irregular files, such as links, belong to no sample.
"""

import re
import tarfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from recordmill.pipeline.sources.encoded import BYTE_ORDER_MARK, DamagedDataError, Inflated

BLOCK = tarfile.BLOCKSIZE
MAX_HEADER_BYTES = 1 << 20  # 1 MiB, for a header with a long name or PAX records
MAX_HEADERS_BYTES = 4 << 20  # 4 MiB, for all headers of a member: a sparse one's may continue without end
MAX_GLOBALS = 1000  # values for all later members, together 1 MiB; some programs write one
MAX_NAME = 4096  # letters, like a path in Linux
MAX_MEMBERS = 100_000  # of a sample
SKIPPED_BYTES = 1 << 20  # skipped at once
METADATA = re.compile("__[^/]*__($|/)")  # names reserved by WebDataset
MAX_DATA_BYTES = 64 << 20  # 64 MiB, like a line


class DamagedTarError(Exception):
    """Raised if the tar file is damaged from here on; the message says where."""


class Tar:
    """A tar file, open for reading at a header."""

    def __init__(self, file: BinaryIO, size: int | None) -> None:
        """Takes a file at a member's header, or, with `size` None, at the start of a gzip file."""
        self._stream = Inflated(file) if size is None else None
        self._file = _Forward(self._stream or file, can_seek=size is not None)
        self._size = size
        self.has_end = False  # true once the end mark was read
        self.has_global_headers = False  # true once a header for all later members was read

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """Yields the members; a regular one's bytes are at `offset_data`. Raises: DamagedTarError."""
        try:
            yield from self._members()
        except (OSError, MemoryError, ImportError, DamagedTarError):
            raise
        except DamagedDataError as error:
            raise DamagedTarError(f"the compressed data is damaged ({error}) {self._where()}") from None
        except Exception as error:  # `tarfile` raises anything for a damaged header
            reason = str(error) if isinstance(error, tarfile.TarError) else type(error).__name__
            raise DamagedTarError(f"the tar file is damaged ({reason}) {self._where()}") from None

    def read(self, member: tarfile.TarInfo) -> bytes:
        """Reads a member's bytes, before the next member. Raises: DamagedTarError: cut off."""
        try:
            self._file.seek(member.offset_data)
            data = self._file.take(member.size)
        except DamagedDataError as error:
            raise DamagedTarError(f"the compressed data is damaged ({error}) {self._where()}") from None
        if len(data) < member.size:
            raise DamagedTarError(f"the tar file is cut off in the member at byte {member.offset}")
        return data

    @property
    def consumed(self) -> int:
        """The number of bytes of the file read so far, approximate if compressed."""
        return self._stream.consumed if self._stream else self._file.tell()

    def _members(self) -> Iterator[tarfile.TarInfo]:
        file: Any = self._file  # has less than the type stubs ask, but all that reading needs
        with tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape") as tar:
            while (member := tar.next()) is not None:
                vars(tar)["members"].clear()  # which would grow with the file
                self.has_global_headers = bool(tar.pax_headers)
                self._file.headers = 0
                if member.size < 0:
                    raise DamagedTarError(f"the tar file is damaged (a negative size) {self._where()}")
                values = tar.pax_headers.values()
                if len(values) > MAX_GLOBALS or sum(map(len, values)) > MAX_HEADER_BYTES:
                    raise DamagedTarError(f"the tar file has too many global headers {self._where()}")
                yield member
                end = 0 if member.issparse() else member.offset_data + member.size  # a sparse member stores fewer bytes
                if self._size is not None and end > self._size:
                    raise DamagedTarError(f"the tar file is cut off in the member at byte {member.offset}")
        self.has_end = self._file.last == bytes(BLOCK)
        if self._file.last and not self.has_end:  # `tarfile` takes anything as the end
            raise DamagedTarError(f"the tar file is damaged {self._where()}")

    def _where(self) -> str:
        return f"after byte {self._file.header}"


class _Forward:
    """A file for `tarfile`: reads only forward, and never much at once."""

    def __init__(self, file: BinaryIO, can_seek: bool) -> None:
        self._file, self._can_seek = file, can_seek
        self._offset = file.tell() if can_seek else 0
        self.last = b""  # the bytes read last
        self.header = self._offset  # their offset
        self.headers = 0  # the bytes of the current member's headers so far

    def tell(self) -> int:
        return self._offset

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self.headers += size
        if self.headers > MAX_HEADERS_BYTES:
            raise tarfile.ReadError(f"a member's headers of more than {MAX_HEADERS_BYTES} bytes")
        self.header = self._offset
        self.last = self.take(size)
        return self.last

    def take(self, size: int) -> bytes:
        data = self._file.read(size)
        self._offset += len(data)
        return data

    def seek(self, to: int) -> None:
        if to < self._offset:
            raise tarfile.ReadError("a negative size")
        if self._can_seek:
            self._file.seek(to)
            self._offset = to
        while self._offset < to and self.take(min(to - self._offset, SKIPPED_BYTES)):
            pass


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a sample."""

    offset: int
    size: int
    data: bytes | None = None  # the bytes, if asked for and not too many


@dataclass
class TarSample:
    """Members with the same name."""

    key: str
    start: int  # the offset of the first member's header
    members: dict[str, Member] = field(default_factory=dict)  # by extension; the first of duplicates
    twice: str | None = None  # an extension of two members
    objects: dict[str, Any] = field(default_factory=dict)  # parsed contents of members, by extension


def split_name(name: str) -> tuple[str, str] | None:
    """Splits a member's name into key and extension; None if it belongs to no sample, or is too long.

    >>> split_name("./train/0001.SEG.png")
    ('train/0001', 'seg.png')
    """
    while name.startswith("./"):
        name = name[2:]
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    if not stem or not extension or len(name) > MAX_NAME or METADATA.match(name):
        return None
    return folder + slash + stem, extension.lower()


def samples(tar: Tar, read: Collection[str], left_out: Callable[[str], None]) -> Iterator[TarSample]:
    """Yields samples, with the bytes of extensions in `read`; `left_out` takes other names. Raises: DamagedTarError."""
    sample: TarSample | None = None
    for member in tar:
        named = split_name(member.name) if member.isreg() and not member.issparse() else None
        if named is None:
            if not member.isdir():
                left_out(member.name[:MAX_NAME])
            continue
        key, extension = named
        if sample is None or key != sample.key:
            if sample is not None:
                yield sample
            sample = TarSample(key, member.offset)
        if extension in sample.members:
            sample.twice = extension
            continue
        if len(sample.members) == MAX_MEMBERS:
            raise DamagedTarError(f"a sample has more than {MAX_MEMBERS} members")
        data = tar.read(member) if extension in read and member.size <= MAX_DATA_BYTES else None
        sample.members[extension] = Member(member.offset_data, member.size, data and data.removeprefix(BYTE_ORDER_MARK))
    if sample is not None:
        yield sample
