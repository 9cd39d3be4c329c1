"""Text files joined line by line: a row has line n of each.

    source: {format: text, columns: {en: train.en, de: train.de}}

The plan reads each file once, counts its lines, and notes the byte of every `STRIDE`-th line: chunks begin at the same
lines of all files.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from recordmill.pipeline.sources.encoded import EncodedFile, Rows, can_start_anywhere, open_utf8
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.csv_records import Dialect, read_records
from recordmill.pipeline.sources.paths import join
from recordmill.pipeline.sources.source_reader import Chunk, SourceError
from recordmill.pipeline.sources.table import at_once

LINES = Dialect(quote=None)
STRIDE = 1_024  # lines: a billion take 8 MB a file
Cells = tuple[bytes | None, ...]
"""A row's line of each file, without line breaks; None for one over 64 MiB."""


@dataclass(frozen=True)
class JoinedLines:
    """The work of a chunk: the lines between two places of each file."""

    paths: Sequence[str]
    """The files, relative to the source's root."""
    encoding: str
    starts: Sequence[int]
    ends: Sequence[int | None]
    """None: the file's end."""
    first_line: int
    """The number of the first line in the files, from 0."""

    def read(self, files: Files, root: str) -> Iterator[Cells]:
        """Yields the rows, blank ones too. Raises: ValueError: the files changed since the plan; OSError."""
        with ExitStack() as stack:
            places = zip(self.paths, self.starts, self.ends, strict=True)
            ranges = ((join(root, path), self.encoding, start, end) for path, start, end in places)
            opened = [stack.enter_context(open_utf8(files, *each)) for each in ranges]
            yield from zip(*map(_lines, opened), strict=True)


def _lines(file: EncodedFile) -> Iterator[bytes | None]:
    for records in read_records(file, LINES):
        yield from [None] if records.is_too_large else map(records.text, range(len(records.starts)))


def cut_joined(
    files: Files, root: str, inputs: Sequence[FileInfo], encoding: str, chunk_bytes: int
) -> tuple[list[Chunk], int]:
    """Cuts files into chunks of about `chunk_bytes` in all, and counts the rows, with blank ones.

    Compressed files, and encodings without visible lines, stay whole. Raises: SourceError: unequal numbers of lines.
    """
    looked = at_once(lambda file: _places(files, join(root, file.path), encoding), inputs)
    counts = [lines for _, lines in looked]
    if len(set(counts)) > 1:
        listed = ", ".join(f"{file.path} has {lines:,}" for file, lines in zip(inputs, counts, strict=True))
        remedy = "line n of one belongs to line n of the others: add or remove lines, or read them as separate sources"
        raise SourceError(f"{root}: the files in `columns` have unequal numbers of lines: {listed}; {remedy}")
    bounds = _bounds([places for places, _ in looked], chunk_bytes)
    if not all(can_start_anywhere(file.path, encoding) for file in inputs):
        bounds = bounds[:1]
    starts = [[int(places[at]) if at else 0 for places, _ in looked] for at in bounds]
    paths, sizes = [file.path for file in inputs], [file.bytes for file in inputs]
    chunks = []
    for at, first, last in zip(bounds, starts, [*starts[1:], None], strict=True):
        work = JoinedLines(paths, encoding, first, last or [None] * len(paths), at * STRIDE)
        chunks.append(Chunk(0, 0, paths[0], sum(last or sizes) - sum(first), work))
    return chunks, counts[0]


def count_lines(files: Files, path: str, encoding: str) -> int:
    """Counts the lines of a file, with blank ones."""
    return _places(files, path, encoding)[1]


def _places(files: Files, path: str, encoding: str) -> tuple[Rows, int]:
    """Returns the byte of every `STRIDE`-th line of a file, and the number of its lines."""
    places, lines = [np.empty(0, np.int64)], 0
    with open_utf8(files, path, "utf-8" if can_start_anywhere(path, encoding) else encoding) as opened:
        first = opened.mark_bytes
        for records in read_records(opened, LINES):
            places.append(records.starts[-lines % STRIDE :: STRIDE] + first)
            first += records.end
            lines += len(records.starts)
    return np.concatenate(places), lines


def _bounds(places: Sequence[Rows], chunk_bytes: int) -> list[int]:
    """Returns the places at which chunks begin, the first at 0."""
    total, bounds = np.sum(places, axis=0), [0]
    while (at := int(np.searchsorted(total, total[bounds[-1]] + chunk_bytes))) < len(total):
        bounds.append(max(at, bounds[-1] + 1))
    return bounds
