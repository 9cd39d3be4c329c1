"""Reads text files in any encoding, compressed or not, as UTF-8, from the start or from a byte offset.

Undecodable bytes become one byte that is invalid UTF-8: one check finds them in every encoding. A leading byte order
mark is skipped.
"""

import codecs
import io
import posixpath
import re
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from errno import EBADMSG
from typing import Any, BinaryIO, cast

import pyarrow as pa

from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.lines import BYTE_ORDER_MARK
from recordmill.pipeline.sources.source_reader import SourceError

CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}  # by the file's ending, in any case


def codec(path: str) -> str | None:
    """Returns a file's codec; None if uncompressed."""
    return CODECS.get(posixpath.splitext(path)[1].lower())


def uncompressed_name(path: str) -> str:
    """Strips the compression's ending: `rows.csv` of `rows.csv.gz`."""
    return posixpath.splitext(path)[0] if codec(path) else path


@contextmanager
def naming_damage(path: str) -> Iterator[None]:
    """Turns an error of decompression into a SourceError that names the file."""
    try:
        yield
    except OSError as error:
        if codec(path) is None:
            raise
        raise SourceError(f"{path} cannot be read as {codec(path)}: {error}; is it cut off or damaged?") from error


def open_plain(files: Files, path: str) -> BinaryIO:
    """Opens a file, decompressed; a compressed one cannot seek. Raises OSError, also while reading damaged data."""
    file, name = files.open(path), codec(path)
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, "r"), name)) if name else file


INVALID = b"\xff"  # never occurs in UTF-8
MARK_INVALID = "recordmill.mark_invalid"
PLAIN = re.compile(r"utf-8(-sig)?|ascii|iso8859-\d+|cp125\d|koi8-[rtu]")
"""Encodings in which bytes below 128 are always ASCII."""


def _mark_invalid(error: UnicodeError) -> tuple[str | bytes, int]:
    """Handles errors of `codecs`: undecodable bytes become a surrogate, and surrogates an invalid byte."""
    if isinstance(error, UnicodeEncodeError):
        return INVALID, error.end
    assert isinstance(error, UnicodeDecodeError)  # noqa: S101  # the type of the handlers of `codecs`
    return "\udcff", error.end


codecs.register_error(MARK_INVALID, _mark_invalid)


def is_utf8(encoding: str) -> bool:
    """Whether an encoding is UTF-8, by any name."""
    return codecs.lookup(encoding).name.startswith("utf-8")


def is_plain(encoding: str) -> bool:
    """Whether lines and quotes can be found without decoding."""
    return PLAIN.fullmatch(codecs.lookup(encoding).name) is not None


def can_start_anywhere(path: str, encoding: str) -> bool:
    """Whether reading may start at any line: uncompressed, with lines found without decoding."""
    return codec(path) is None and is_plain(encoding)


class EncodedFile(AbstractContextManager["EncodedFile"]):
    """An open file, read forward as UTF-8."""

    def __init__(self, file: BinaryIO, path: str, encoding: str, start: int, end: int | None) -> None:
        """Reads the bytes `[start, end)` of a file at its first byte; `path` is for messages."""
        if start:
            file.seek(start)
        self._file, self._path = file, path
        self._left = end and end - start
        self._decoder = None if is_utf8(encoding) else codecs.getincrementaldecoder(encoding)(MARK_INVALID)
        self._waiting = b""
        self.mark_bytes = 0
        """The length of the skipped byte order mark."""
        if not start and (head := self.read(len(BYTE_ORDER_MARK))) == BYTE_ORDER_MARK:
            self.mark_bytes = len(BYTE_ORDER_MARK)
        elif not start:
            self._waiting = head + self._waiting

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Reads `size` bytes, fewer only at the end. Raises: OSError: unreadable or damaged."""
        while len(self._waiting) < size and (more := self._more(size - len(self._waiting))):
            self._waiting += more
        data, self._waiting = self._waiting[:size], self._waiting[size:]
        return data

    def _raw(self, size: int) -> bytes:
        try:
            raw = self._file.read(size if self._left is None else min(size, self._left))
        except OSError as error:  # damaged compressed data names no file
            raise OSError(error.errno or EBADMSG, error.strerror or str(error), self._path) from error
        if self._left is not None:
            self._left -= len(raw)
        return raw

    def _more(self, size: int) -> bytes:
        """Reads some UTF-8; empty at the end."""
        while True:
            raw = self._raw(size)
            if self._decoder is None:
                return raw
            try:
                more = self._decoder.decode(raw, final=not raw).encode("utf-8", MARK_INVALID)
            except UnicodeError as error:  # not marked: UTF-16 or UTF-32 of unknown byte order
                raise SourceError(f"{self._path}: {error}; set `encoding`, such as utf-8 or utf-16-le") from error
            if more or not raw:
                return more


def open_utf8(files: Files, path: str, encoding: str = "utf-8", start: int = 0, end: int | None = None) -> EncodedFile:
    """Opens a file as UTF-8; `start` needs `can_start_anywhere`. Raises: SourceError: no byte order mark."""
    return EncodedFile(open_plain(files, path), path, encoding, start, end)


INPUT_BYTES = 64 << 10  # 64 KiB
OUTPUT_BYTES = 64 << 10
WINDOW = zlib.MAX_WBITS | 32  # gzip or zlib, by its header
NO_MEMORY = "Error -4 "  # Z_MEM_ERROR


class DamagedDataError(Exception):
    """The compressed data is damaged or cut off."""


class Inflated(io.BufferedReader):
    """The decompressed bytes of a gzip or zlib stream, without seeking. Reading raises DamagedDataError, OSError."""

    def __init__(self, file: BinaryIO) -> None:
        """Takes a file at the stream's start."""
        self._inflating = _Inflating(file)
        super().__init__(self._inflating, OUTPUT_BYTES)

    @property
    def consumed(self) -> int:
        """The approximate number of compressed bytes read so far; at least 1."""
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
        """Starts the next member of the stream, skipping zero padding; False at the end."""
        while not (rest := self._input.lstrip(b"\0")):
            self._input = self._file.read(INPUT_BYTES)
            if not self._input:
                return False
        self._input, self._stream = rest, zlib.decompressobj(WINDOW)
        return True
