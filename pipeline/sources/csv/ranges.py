"""Cuts CSV files into ranges that can be read at the same time, each record in one of them."""

from dataclasses import replace

import numpy as np

from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.csv.records import read_records
from recordmill.pipeline.sources.csv.rows import CsvFile
from recordmill.pipeline.sources.encoded import can_start_anywhere, open_utf8


def cut_file(files: Files, path: str, size: int, form: CsvFile, chunk_bytes: int) -> tuple[list[CsvFile], int]:
    """Cuts a file of `size` bytes where records start, into ranges of about `chunk_bytes`, and counts its rows.

    All of it is read, at about 1 s a GB: where a record starts depends on every quote before it. A compressed file is
    not cut, nor one whose lines cannot be found without decoding.

    Raises:
        SourceError: it is not of the encoding at all.
        OSError: the file cannot be read, or its compressed data is damaged.
    """
    can_cut = can_start_anywhere(path, form.encoding)
    parts = -(-size // chunk_bytes) if can_cut else 1
    starts, wanted = [form], np.array([size * part // parts for part in range(1, parts)], np.int64)
    seen, line = -int(form.has_header), 0
    with open_utf8(files, path, "utf-8" if can_cut else form.encoding) as file:
        first = file.mark_bytes
        for records in read_records(file, form.dialect):
            rows = records.filled[max(0, 1 - seen) :]  # the first range has the header, and a row
            places = records.starts[rows] + first
            while len(wanted) and len(rows) and places[-1] >= wanted[0]:
                at = np.searchsorted(places, wanted[0])
                starts.append(replace(form, start=int(places[at]), first_line=line + int(records.lines[rows[at]])))
                wanted = wanted[wanted > places[at]]
            seen += len(records.filled)
            first += records.end
            line += records.line_count
    ends = [*(part.start for part in starts[1:]), size if can_cut else None]
    return [replace(part, end=end) for part, end in zip(starts, ends, strict=True)], max(0, seen)
