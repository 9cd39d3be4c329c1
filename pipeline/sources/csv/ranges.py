"""Ranges of files of records: cut where records start, so that they can be read at the same time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from recordmill.pipeline.sources.base import Chunk, FileInfo, Files
from recordmill.pipeline.sources.csv.records import Dialect, Records, Rows, read_records
from recordmill.pipeline.sources.encoded import can_start_anywhere, open_utf8
from recordmill.pipeline.sources.paths import join


@dataclass(frozen=True)
class RecordRange:
    """The records of a file that start in the bytes `[start, end)`, and the options that they are read with."""

    dialect: Dialect = Dialect()
    encoding: str = "utf-8"
    names: tuple[str, ...] = ()
    """The columns."""
    has_header: bool = True
    """Whether the file's first record is the header."""
    start: int = 0
    """A byte where a record starts."""
    end: int | None = None
    first_line: int = 0
    """The line of the file, counted from 0, that `start` is in."""


def cut_file(files: Files, root: str, file: FileInfo, whole: RecordRange, chunk_bytes: int) -> tuple[list[Chunk], int]:
    """Cuts a file where records start, into ranges of about `chunk_bytes`, and counts its rows.

    All of it is read, at about 1 s a GB: where a record starts depends on every quote before it. A compressed file is
    not cut, nor one whose lines cannot be found without decoding.

    Raises:
        SourceError: it is not of the encoding at all.
        OSError: the file cannot be read, or its compressed data is damaged.
    """
    path = join(root, file.path)
    can_cut = can_start_anywhere(path, whole.encoding)
    parts = -(-file.bytes // chunk_bytes) if can_cut else 1
    starts, wanted = [whole], np.array([file.bytes * part // parts for part in range(1, parts)], np.int64)
    seen, line = -int(whole.has_header), 0
    with open_utf8(files, path, "utf-8" if can_cut else whole.encoding) as opened:
        first = opened.mark_bytes
        for records in read_records(opened, whole.dialect):
            rows = records.filled[max(0, 1 - seen) :]  # the first range has the header, and a row
            offsets = records.starts[rows] + first
            while len(wanted) and len(rows) and offsets[-1] >= wanted[0]:
                row = np.searchsorted(offsets, wanted[0])
                starts.append(replace(whole, start=int(offsets[row]), first_line=line + int(records.lines[rows[row]])))
                wanted = wanted[wanted > offsets[row]]
            seen += len(records.filled)
            first += records.end
            line += records.line_count
    ends = [*(part.start for part in starts[1:]), file.bytes if can_cut else None]
    ranges = [replace(part, end=end) for part, end in zip(starts, ends, strict=True)]
    chunks = [Chunk(0, 0, file.path, (part.end or file.bytes) - part.start, part) for part in ranges]
    return chunks, max(0, seen)


def read_range(files: Files, path: str, part: RecordRange) -> Iterator[tuple[Records, Rows, int]]:
    """Reads the records of a range, some MiB at a time.

    Yields:
        Records; which of them are rows: neither blank nor the header; and the line of the first one in the range.

    Raises:
        OSError: the file cannot be read.
    """
    to_skip, line = int(part.has_header and not part.start), 0
    with open_utf8(files, path, part.encoding, part.start, part.end) as file:
        for records in read_records(file, part.dialect):
            filled = records.filled
            yield records, filled[to_skip:], line
            to_skip = max(0, to_skip - len(filled))
            line += records.line_count
