"""Files of lines: byte ranges cut into pieces of whole lines, and the lines of a piece.

A line ends with a newline (LF) or the file. A range `[start, end)` holds the lines that start in it, so the ranges that
cover a file hold each line once. A byte order mark at the file's start is no part of its first line.
"""

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

PIECE_BYTES = 8 << 20  # 8 MiB: what is parsed at once
TAIL_BYTES = 64 << 10  # 64 KiB: how far beyond a range its last line is looked for at once
MAX_LINE_BYTES = 64 << 20  # 64 MiB: far below Arrow's 2 GiB, and a worker's memory
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SPACES = b" \t\r"  # what JSON calls whitespace
OPEN, CLOSE, BRACKET, CARRIAGE_RETURN, NEWLINE = b"{}[\r\n"

Rows = npt.NDArray[np.int64]
"""Numbers of lines or records in a piece, or of their bytes, rising."""


def pieces(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """Returns the lines that start in the bytes `[start, end)`, a piece of whole lines at a time.

    A piece has at most about `PIECE_BYTES` or is one longer line. Of a line of more than `MAX_LINE_BYTES` only the
    beginning may come, still longer than that. No piece is empty; an empty range gives none. From a start of 0 nothing
    is sought, so a stream that is decompressed will do.
    """
    if start:
        file.seek(start - 1)
        offset, rest = _next_line(file, start - 1)
        if offset >= end:
            return
    else:
        head = file.read(len(BYTE_ORDER_MARK))
        offset, rest = (len(head), b"") if head == BYTE_ORDER_MARK else (0, head)
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


def _next_line(file: BinaryIO, offset: int) -> tuple[int, bytes]:
    """Reads from `offset`, where the file is, past a newline: where the next line starts, and what was read of it."""
    while tail := file.read(TAIL_BYTES):
        newline = tail.find(b"\n")
        if newline >= 0:
            return offset + newline + 1, tail[newline + 1 :]
        offset += len(tail)
    return offset, b""


class Lines:
    """The lines of a piece, without the whitespace around them."""

    def __init__(self, data: bytes) -> None:
        """Finds the lines of some bytes, which must not be empty."""
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
        objects = (buffer[starts] == OPEN) & (buffer[ends - 1] == CLOSE) & (ends > starts)
        self._strip(objects)
        self._objects = objects & ~self._with_nul()
        self._objects[self.too_long] = False

    def __len__(self) -> int:
        """The number of lines, blank ones included."""
        return len(self._starts)

    def __getitem__(self, line: int) -> bytes:
        """The bytes of a line."""
        return self.data[self._starts[line] : self._ends[line]]

    def each(self, lines: Rows) -> Iterator[bytes]:
        """The bytes of some lines, one after another."""
        bounds = zip(self._starts[lines].tolist(), self._ends[lines].tolist(), strict=True)
        return (self.data[start:end] for start, end in bounds)

    @property
    def filled(self) -> Rows:
        """The lines that are not blank."""
        return np.flatnonzero(self._ends > self._starts)

    @property
    def others(self) -> Rows:
        """The lines that are neither blank nor `objects`."""
        return np.flatnonzero((self._ends > self._starts) & ~self._objects)

    @property
    def objects(self) -> Rows:
        """The lines that may be a JSON object: `{` first, `}` last, no NUL and not too long."""
        return np.flatnonzero(self._objects)

    def opening_more_than(self, count: int) -> Rows:
        """Finds `objects` with more `{` and `[` than so many, and long enough to hold as many `}` and `]`."""
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
        """The bytes of some lines, a newline between them."""
        if len(lines) == len(self):
            return self.data
        return b"\n".join(self.each(lines))

    def _strip(self, objects: npt.NDArray[np.bool_]) -> None:
        """Takes off whitespace where a line does not begin or end as an object; few lines have any."""
        starts, ends = self._starts, self._ends
        for line in np.flatnonzero(~objects).tolist():
            stripped = self[line].lstrip(SPACES)
            starts[line] = ends[line] - len(stripped)
            stripped = stripped.rstrip(SPACES)
            ends[line] = starts[line] + len(stripped)
            objects[line] = stripped.startswith(b"{") and stripped.endswith(b"}")

    def _with_nul(self) -> npt.NDArray[np.bool_]:
        """The lines that hold a NUL: no JSON, and the parser would take it for the end."""
        result = np.zeros(len(self), bool)
        if b"\0" in self.data:
            offsets = np.flatnonzero(np.frombuffer(self.data, np.uint8) == 0)
            result[np.searchsorted(self._starts, offsets, side="right") - 1] = True
        return result
