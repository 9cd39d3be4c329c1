"""Reads text files in any encoding, compressed or not, as UTF-8, from any byte offset, and cuts them into lines.

Undecodable bytes become one byte that is invalid UTF-8: one check finds them in every encoding. A leading byte order
mark is skipped. A line ends at a newline (LF) or the file's end. A range `[start, end)` holds the lines that start in
it: ranges that cover a file hold each line once.
"""

import codecs
import io
import posixpath
import re
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from errno import EBADMSG
from itertools import pairwise
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import Files

PIECE_BYTES = 8 << 20  # 8 MiB, parsed at once
PIECE_LINES = 1 << 18  # a fault takes some hundred bytes
TAIL_BYTES = 64 << 10  # 64 KiB, read at once beyond a range to finish its last line
MAX_LINE_BYTES = 64 << 20  # 64 MiB: far below Arrow's 2 GiB, and a worker's memory
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SPACES = b" \t\r"  # JSON's whitespace
OPEN, CLOSE, BRACKET, CARRIAGE_RETURN, NEWLINE = b"{}[\r\n"

Rows = npt.NDArray[np.int64]  # ascending numbers of lines, records or bytes in a piece
CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}  # by the file's ending, in any case
INVALID = b"\xff"  # never occurs in UTF-8
MARK_INVALID = "recordmill.mark_invalid"
PLAIN = re.compile(r"utf-8(-sig)?|ascii|iso8859-\d+|cp125\d|koi8-[rtu]")
"""Encodings in which bytes below 128 are always ASCII."""
FOREIGN = re.compile(rb"(\xff\xfe|\xfe\xff)|\x1f\x8b|\xfd7zXZ|PK\x03\x04|BZh[1-9]1AY|\x28\xb5\x2f\xfd")  # or UTF-16
INFLATED_BYTES = 64 << 10  # 64 KiB, read and returned at once
WINDOW = zlib.MAX_WBITS | 32  # gzip or zlib, by its header
NO_MEMORY = "Error -4 "  # Z_MEM_ERROR


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


def _mark_invalid(error: Any) -> tuple[str | bytes, int]:
    """Handles errors of `codecs`: undecodable bytes become a surrogate, and surrogates an invalid byte."""
    return INVALID if isinstance(error, UnicodeEncodeError) else "\udcff", error.end


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
        self.before = b""  # the byte before `start`
        if start:
            file.seek(start - 1)
            self.before = file.read(1)
        self._file, self.path = file, path
        self._left = end and end - start
        self._decoder = None if is_utf8(encoding) else codecs.getincrementaldecoder(encoding)(MARK_INVALID)
        self._waiting = b""
        self.mark_bytes = 0  # the length of the skipped byte order mark
        if not start and (head := self.read(len(BYTE_ORDER_MARK))) == BYTE_ORDER_MARK:
            self.mark_bytes = len(BYTE_ORDER_MARK)
        elif not start:
            self._waiting = head + self._waiting

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Reads `size` bytes, fewer only at the end. Raises: OSError: unreadable or damaged."""
        data = self.peek(size)
        self._waiting = self._waiting[size:]
        return data

    def peek(self, size: int) -> bytes:
        """Returns the next bytes as `read` does, without reading past them."""
        while len(self._waiting) < size and (more := self._more(size - len(self._waiting))):
            self._waiting += more
        return self._waiting[:size]

    def check_start(self) -> None:
        """Raises: SourceError: the file begins as no text in this encoding does."""
        if found := FOREIGN.match(self.peek(7)):
            other = "compressed, or an archive: unpack it, or name it by its codec, .gz, .zst or .bz2"
            raise SourceError(f"{self.path} is {'UTF-16: set `encoding: utf-16`' if found[1] else other}")

    def _more(self, size: int) -> bytes:
        """Reads some UTF-8; empty at the end."""
        while True:
            try:
                raw = self._file.read(size if self._left is None else min(size, self._left))
            except OSError as error:  # damaged compressed data names no file
                raise OSError(error.errno or EBADMSG, error.strerror or str(error), self.path) from error
            if self._left is not None:
                self._left -= len(raw)
            if self._decoder is None:
                return raw
            try:
                more = self._decoder.decode(raw, final=not raw).encode("utf-8", MARK_INVALID)
            except UnicodeError as error:  # not marked: UTF-16 or UTF-32 of unknown byte order
                raise SourceError(f"{self.path}: {error}; set `encoding`, such as utf-8 or utf-16-le") from error
            if more or not raw:
                return more


Readable = BinaryIO | EncodedFile


def open_utf8(files: Files, path: str, encoding: str = "utf-8", start: int = 0, end: int | None = None) -> EncodedFile:
    """Opens a file as UTF-8; `start` needs `can_start_anywhere`. Raises: SourceError: no byte order mark."""
    return EncodedFile(open_plain(files, path), path, encoding, start, end)


class DamagedDataError(Exception):
    """The compressed data is damaged or cut off."""


class Inflated(io.BufferedReader):
    """Decompressed bytes of a gzip (of any members) or zlib stream, no seek; raises DamagedDataError and OSError."""

    def __init__(self, file: BinaryIO) -> None:
        self._inflating = _Inflating(file)
        super().__init__(self._inflating, INFLATED_BYTES)

    @property
    def consumed(self) -> int:
        """The approximate number of compressed bytes read so far; at least 1."""
        return max(1, self._inflating.file.tell() - len(self._inflating.input))


class _Inflating(io.RawIOBase):
    def __init__(self, file: BinaryIO) -> None:
        self.file, self.input = file, b""
        self._stream = zlib.decompressobj(WINDOW)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._stream.eof:  # perhaps another member follows, behind zero padding
                self.input = self.input.lstrip(b"\0")
                while not self.input and (more := self.file.read(INFLATED_BYTES)):
                    self.input = more.lstrip(b"\0")
                if not self.input:
                    return 0
                self._stream = zlib.decompressobj(WINDOW)
            source = self.input or self.file.read(INFLATED_BYTES)
            try:
                data = self._stream.decompress(source, len(buffer))
            except zlib.error as error:
                if str(error).startswith(NO_MEMORY):
                    raise MemoryError from None
                raise DamagedDataError(str(error).rpartition(": ")[2]) from None
            self.input = self._stream.unused_data or self._stream.unconsumed_tail
            if data:
                buffer[: len(data)] = data
                return len(data)
            if not source and not self._stream.eof:
                raise DamagedDataError("it is cut off")


def pieces(files: Files, path: str, encoding: str, start: int, end: int) -> Iterator[bytes]:
    """Yields a file's lines that start in the bytes `[start, end)`, in pieces of whole lines; none is empty.

    A piece has at most `PIECE_LINES` and about `PIECE_BYTES`, or is one longer line. A line over `MAX_LINE_BYTES` may
    be truncated, still to more than that. `start` is as of `open_utf8`. Raises: SourceError: damaged, or of another
    encoding.
    """
    with naming_damage(path), open_utf8(files, path, encoding, max(0, start - 1)) as file:
        offset, rest = _next_line(file, start - 1 + file.mark_bytes) if start else (file.mark_bytes, b"")
        if offset < end or not start:
            for piece in _pieces(file, offset, rest, end):
                cuts = np.flatnonzero(np.frombuffer(piece, np.uint8) == NEWLINE)[PIECE_LINES - 1 :: PIECE_LINES] + 1
                yield from (piece[at:to] for at, to in pairwise((0, *cuts.tolist(), len(piece))) if at < to)


def _pieces(file: EncodedFile, offset: int, rest: bytes, end: int) -> Iterator[bytes]:
    """Yields the lines from a file's byte `offset`, of which it has read `rest`."""
    while True:
        left = end - offset - len(rest)
        more = file.read(min(PIECE_BYTES, max(left, len(rest))) + TAIL_BYTES)
        rest += more
        stop = rest.find(b"\n", max(0, end - 1 - offset))
        if stop >= 0 or not more:
            if rest:
                yield rest[: stop + 1] if stop >= 0 else rest
            return
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            offset, rest = offset + cut, rest[cut:]
        elif len(rest) > MAX_LINE_BYTES:
            yield rest
            offset, rest = _next_line(file, offset + len(rest))
            if offset >= end:
                return


def _next_line(file: EncodedFile, offset: int) -> tuple[int, bytes]:
    """Reads from `offset`, the file's position, past a newline; returns the next line's start and its bytes so far."""
    while tail := file.read(TAIL_BYTES):
        newline = tail.find(b"\n")
        if newline >= 0:
            return offset + newline + 1, tail[newline + 1 :]
        offset += len(tail)
    return offset, b""


class Lines:
    """The lines of a piece, stripped of whitespace."""

    def __init__(self, data: bytes) -> None:
        buffer = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(buffer == NEWLINE)
        starts = np.concatenate([[0], newlines + 1])
        ends = np.concatenate([newlines, [len(data)]])
        if data.endswith(b"\n"):
            starts, ends = starts[:-1], ends[:-1]
        self.data = data
        self.too_long: Rows = np.flatnonzero(ends - starts > MAX_LINE_BYTES)
        ends = ends - ((buffer[ends - 1] == CARRIAGE_RETURN) & (ends > starts))
        self._starts, self._ends = starts, ends
        self._objects = (buffer[starts] == OPEN) & (buffer[ends - 1] == CLOSE) & (ends > starts)
        for line in np.flatnonzero(~self._objects).tolist():  # those that do not look like an object are few
            stripped = self[line].lstrip(SPACES)
            starts[line] = ends[line] - len(stripped)
            stripped = stripped.rstrip(SPACES)
            ends[line] = starts[line] + len(stripped)
            self._objects[line] = stripped.startswith(b"{") and stripped.endswith(b"}")
        self._objects[self.too_long] = False
        if b"\0" in data:  # invalid JSON, and the parser would end there
            self._objects[np.searchsorted(starts, np.flatnonzero(buffer == 0), side="right") - 1] = False
        self.filled: Rows = np.flatnonzero(ends > starts)  # the non-blank lines
        self.objects: Rows = np.flatnonzero(self._objects)  # may be JSON: `{` first, `}` last, no NUL, not too long
        self.others: Rows = np.flatnonzero((ends > starts) & ~self._objects)  # the lines, not blank, outside `objects`

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, line: int) -> bytes:
        return self.data[self._starts[line] : self._ends[line]]

    def each(self, lines: Rows) -> Iterator[bytes]:
        """The bytes of the given lines, in order."""
        bounds = zip(self._starts[lines].tolist(), self._ends[lines].tolist(), strict=True)
        return (self.data[start:end] for start, end in bounds)

    def longer_than(self, size: int) -> Rows:
        """Finds `objects` of more bytes."""
        return np.flatnonzero(self._objects & (self._ends - self._starts > size))

    def opening_more_than(self, count: int) -> Rows:
        """Finds `objects` with more than `count` of `{` and `[`, and room for as many `}` and `]`."""
        long = self._objects & (self._ends - self._starts > 2 * count)
        if not long.any():
            return np.zeros(0, np.int64)
        buffer = np.frombuffer(self.data, np.uint8)
        opens = buffer == OPEN
        opens |= buffer == BRACKET
        if np.count_nonzero(opens) - np.count_nonzero(self._objects) < count:
            return np.zeros(0, np.int64)
        bounds = np.searchsorted(np.flatnonzero(opens), np.stack([self._starts, self._ends]))
        return np.flatnonzero(long & (bounds[1] - bounds[0] > count))

    def take(self, lines: Rows) -> bytes:
        """The bytes of the given lines, joined by newlines."""
        if len(lines) == len(self):
            return self.data
        return b"\n".join(self.each(lines))
