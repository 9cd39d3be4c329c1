"""Cuts byte ranges of files into pieces of whole lines, and pieces into lines.

A line ends at a newline (LF) or the file's end. A range `[start, end)` holds the lines that start in it: ranges that
cover a file hold each line once. A leading byte order mark is not part of the first line.
"""

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

PIECE_BYTES = 8 << 20  # 8 MiB, parsed at once
TAIL_BYTES = 64 << 10  # 64 KiB, read at once beyond a range to finish its last line
MAX_LINE_BYTES = 64 << 20  # 64 MiB: far below Arrow's 2 GiB, and a worker's memory
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SPACES = b" \t\r"  # JSON's whitespace
OPEN, CLOSE, BRACKET, CARRIAGE_RETURN, NEWLINE = b"{}[\r\n"

Rows = npt.NDArray[np.int64]
"""Ascending numbers of lines, records or bytes in a piece."""


def pieces(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """Yields the lines that start in the bytes `[start, end)`, in pieces of whole lines; none is empty.

    A piece has at most about `PIECE_BYTES`, or is one longer line. A line over `MAX_LINE_BYTES` may be truncated, still
    to more than that. A start of 0 does not seek, which suits decompressed streams.
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
        """Finds the lines of non-empty bytes."""
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
        return len(self._starts)

    def __getitem__(self, line: int) -> bytes:
        return self.data[self._starts[line] : self._ends[line]]

    def each(self, lines: Rows) -> Iterator[bytes]:
        """The bytes of the given lines, in order."""
        bounds = zip(self._starts[lines].tolist(), self._ends[lines].tolist(), strict=True)
        return (self.data[start:end] for start, end in bounds)

    @property
    def filled(self) -> Rows:
        """The non-blank lines."""
        return np.flatnonzero(self._ends > self._starts)

    @property
    def others(self) -> Rows:
        """The lines, not blank, outside `objects`."""
        return np.flatnonzero((self._ends > self._starts) & ~self._objects)

    @property
    def objects(self) -> Rows:
        """The possible JSON objects: `{` first, `}` last, no NUL, not too long."""
        return np.flatnonzero(self._objects)

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

    def _strip(self, objects: npt.NDArray[np.bool_]) -> None:
        """Strips whitespace of lines that do not look like an object at both ends; they are few."""
        starts, ends = self._starts, self._ends
        for line in np.flatnonzero(~objects).tolist():
            stripped = self[line].lstrip(SPACES)
            starts[line] = ends[line] - len(stripped)
            stripped = stripped.rstrip(SPACES)
            ends[line] = starts[line] + len(stripped)
            objects[line] = stripped.startswith(b"{") and stripped.endswith(b"}")

    def _with_nul(self) -> npt.NDArray[np.bool_]:
        """Marks the lines with a NUL: invalid JSON, and the parser would end there."""
        result = np.zeros(len(self), bool)
        if b"\0" in self.data:
            offsets = np.flatnonzero(np.frombuffer(self.data, np.uint8) == 0)
            result[np.searchsorted(self._starts, offsets, side="right") - 1] = True
        return result
