"""The members of a tar file, one after another, by Python's `tarfile`, and the samples of a WebDataset that they make.

Nothing is ever extracted. A hostile file costs no more memory than a member's headers may have, and the walk goes
forward alone.

A sample is members one after another with the same name up to its first dot. The rule is WebDataset's own: of
`train/0001.seg.png` the key is `train/0001` and the extension `seg.png`, in small letters. A member without such a
name, such as `README` or `.DS_Store`, is no part of a sample, nor is one that is no regular file, such as a link.

>>> with open("shard.tar", "rb") as file:                  # doctest: +SKIP
...     print([(member.name, member.offset_data, member.size) for member in Tar(file, 10_240)])
[('cat/1.jpg', 512, 4711)]
"""

import re
import tarfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from recordmill.pipeline.sources.encoded import DamagedDataError, Inflated

BLOCK = tarfile.BLOCKSIZE
MAX_HEADER_BYTES = 1 << 20  # 1 MiB: of a header that holds a long name, or PAX records
MAX_HEADERS_BYTES = 4 << 20  # 4 MiB: of all headers of a member; those of a sparse one may go on without end
MAX_GLOBALS = 1000  # values that hold for all members behind them, together 1 MiB; some programs write one
MAX_NAME = 4096  # letters, as of a path in Linux
MAX_MEMBERS = 100_000  # of a sample
SKIPPED_BYTES = 1 << 20  # read at a time of what is passed over
METADATA = re.compile("__[^/]*__($|/)")  # names that WebDataset keeps for itself
MAX_DATA_BYTES = 64 << 20  # 64 MiB, as of a line


class DamagedTarError(Exception):
    """The file is no tar file from here on; the message says where."""


class Tar:
    """A tar file that is open for reading at a header."""

    def __init__(self, file: BinaryIO, size: int | None) -> None:
        """The file is at a member's header, or at its start, compressed by gzip, where its `size` is None."""
        self._stream = Inflated(file) if size is None else None
        self._file = _Forward(self._stream or file, can_seek=size is not None)
        self._size = size
        self.has_end = False
        """True once the mark was met that a tar file ends with."""
        self.has_global_headers = False
        """True once a header was met that holds for all members behind it."""

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """Yields the members; a regular one's bytes are at `offset_data`. Raises: DamagedTarError."""
        try:
            yield from self._members()
        except (OSError, MemoryError, ImportError, DamagedTarError):
            raise
        except DamagedDataError as error:
            raise DamagedTarError(f"the compressed data is damaged ({error}) {self._where()}") from None
        except Exception as error:  # of a damaged header `tarfile` raises what it likes
            reason = str(error) if isinstance(error, tarfile.TarError) else type(error).__name__
            raise DamagedTarError(f"the tar file is damaged ({reason}) {self._where()}") from None

    def read(self, member: tarfile.TarInfo) -> bytes:
        """Reads a member's bytes, before the next member is asked for. Raises: DamagedTarError: it is cut off."""
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
        """The number of bytes of the file that were read; about, where it is compressed."""
        return self._stream.consumed if self._stream else self._file.tell()

    def _members(self) -> Iterator[tarfile.TarInfo]:
        file: Any = self._file  # less than the type stubs want, all that reading needs
        with tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape") as tar:
            while (member := tar.next()) is not None:
                vars(tar)["members"].clear()  # the file keeps them
                self.has_global_headers = bool(tar.pax_headers)
                self._file.headers = 0
                if member.size < 0:
                    raise DamagedTarError(f"the tar file is damaged (a negative size) {self._where()}")
                values = tar.pax_headers.values()
                if len(values) > MAX_GLOBALS or sum(map(len, values)) > MAX_HEADER_BYTES:
                    raise DamagedTarError(f"the tar file has too many global headers {self._where()}")
                yield member
                end = 0 if member.issparse() else member.offset_data + member.size  # a sparse one stores fewer bytes
                if self._size is not None and end > self._size:
                    raise DamagedTarError(f"the tar file is cut off in the member at byte {member.offset}")
        self.has_end = self._file.last == bytes(BLOCK)
        if self._file.last and not self.has_end:  # `tarfile` takes anything for the end
            raise DamagedTarError(f"the tar file is damaged {self._where()}")

    def _where(self) -> str:
        return f"behind byte {self._file.header}"


class _Forward:
    """A file as `tarfile` reads it: forward alone, and never much at once."""

    def __init__(self, file: BinaryIO, can_seek: bool) -> None:
        self._file, self._can_seek = file, can_seek
        self._offset = file.tell() if can_seek else 0
        self.last = b""
        """The bytes that were read last."""
        self.header = self._offset
        """The offset where they began."""
        self.headers = 0
        """The bytes of the headers of the member at hand, up to here."""

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
    """One member of a sample."""

    offset: int
    size: int
    data: bytes | None = None
    """Its bytes, where they were asked for and are not too many."""


@dataclass
class TarSample:
    """Members of one name."""

    key: str
    start: int
    """The byte where its first member's header begins."""
    members: dict[str, Member] = field(default_factory=dict)
    """By extension; of two of one extension the first."""
    twice: str | None = None
    """An extension that two members have."""
    objects: dict[str, Any] = field(default_factory=dict)
    """The contents of members, by extension, once they are parsed."""


def split_name(name: str) -> tuple[str, str] | None:
    """Splits a member's name into its key and its extension; None where it is no part of a sample, or too long.

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
    """Yields the samples of a tar file that is at a header, with the bytes of members whose extensions are in `read`.

    `left_out` is called with the names of the members that are no part of a sample, folders aside.

    Raises: DamagedTarError: the file is damaged or cut off; the sample that it happened in is not yielded.
    """
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
        sample.members[extension] = Member(member.offset_data, member.size, data)
    if sample is not None:
        yield sample
