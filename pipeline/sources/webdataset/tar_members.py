"""The members of a tar file, one after another, by Python's `tarfile`: their names and the places of their bytes.

Nothing is ever extracted. A hostile file costs no more memory than a header may have, and the walk goes forward alone.

>>> with open("shard.tar", "rb") as file:                  # doctest: +SKIP
...     print([(member.name, member.offset_data, member.size) for member in Tar(file, 10_240)])
[('cat/1.jpg', 512, 4711)]
"""

import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from recordmill.pipeline.sources.inflate import DamagedDataError, Inflated

BLOCK = tarfile.BLOCKSIZE
MAX_HEADER_BYTES = 1 << 20  # 1 MiB: of a header that holds a long name, or PAX records
SKIPPED_BYTES = 1 << 20  # read at a time of what is passed over


class DamagedTarError(Exception):
    """The file is no tar file from here on; the message says where."""


class Tar:
    """A tar file that is open for reading at a header."""

    def __init__(self, file: BinaryIO, size: int | None) -> None:
        """Takes the file.

        Args:
            file: stands at a member's header; where it is compressed, at its start.
            size: the file's bytes; None: it is compressed, by gzip.
        """
        self._stream = Inflated(file) if size is None else None
        self._file = _Forward(self._stream or file, can_seek=size is not None)
        self._size = size
        self.has_end = False
        """True once the mark was met that a tar file ends with."""
        self.has_global_headers = False
        """True once a header was met that holds for all members behind it."""

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """Yields the members; `offset_data` and `size` say where the bytes of a regular one lie.

        Raises:
            DamagedTarError: what follows is no tar file, or cut off.
            OSError: the file cannot be read.
        """
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
        """Reads a member's bytes, before the next member is asked for.

        Raises:
            DamagedTarError: it is cut off.
            OSError: the file cannot be read.
        """
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
                if member.size < 0:
                    raise DamagedTarError(f"the tar file is damaged (a negative size) {self._where()}")
                yield member
                if self._size is not None and member.offset_data + member.size > self._size:
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

    def tell(self) -> int:
        return self._offset

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
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
