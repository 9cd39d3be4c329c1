"""gzip and zlib streams as files, with an error of their own where they are damaged.

Unlike Python's `gzip`, whose error is an OSError as that of a lost connection is.
"""

import io
import zlib
from typing import Any, BinaryIO

INPUT_BYTES = 64 << 10  # 64 KiB
OUTPUT_BYTES = 64 << 10
WINDOW = zlib.MAX_WBITS | 32  # gzip or zlib, by its header
NO_MEMORY = "Error -4 "  # Z_MEM_ERROR


class DamagedDataError(Exception):
    """The compressed data is damaged or cut off."""


class Inflated(io.BufferedReader):
    """The decompressed bytes of a gzip (of one member or more) or zlib stream; it cannot seek.

    Reading raises:
        DamagedDataError: the data is no such stream, damaged or cut off.
        OSError: the file cannot be read.
    """

    def __init__(self, file: BinaryIO) -> None:
        """`file` stands at the stream's start."""
        self._inflating = _Inflating(file)
        super().__init__(self._inflating, OUTPUT_BYTES)

    @property
    def consumed(self) -> int:
        """About how many bytes of the file what was read was made of; at least 1."""
        return max(1, self._inflating.consumed)


class _Inflating(io.RawIOBase):
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream = zlib.decompressobj(WINDOW)
        self._input = b""

    @property
    def consumed(self) -> int:
        return self._file.tell() - len(self._input)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._stream.eof and not self._next_member():
                return 0
            source = self._input or self._file.read(INPUT_BYTES)
            try:
                data = self._stream.decompress(source, len(buffer))
            except zlib.error as error:
                if str(error).startswith(NO_MEMORY):
                    raise MemoryError from None
                raise DamagedDataError(str(error).rpartition(": ")[2]) from None
            self._input = self._stream.unused_data or self._stream.unconsumed_tail
            if data:
                buffer[: len(data)] = data
                return len(data)
            if not source and not self._stream.eof:
                raise DamagedDataError("it is cut off")

    def _next_member(self) -> bool:
        """Begins the stream behind the one that has ended, if there is one; zeros may fill the end of a file."""
        while not (rest := self._input.lstrip(b"\0")):
            self._input = self._file.read(INPUT_BYTES)
            if not self._input:
                return False
        self._input, self._stream = rest, zlib.decompressobj(WINDOW)
        return True
