"""CSV with a header as rows: RFC 4180, comma, UTF-8 with or without a byte order mark.

A quoted cell may hold commas and newlines. A record's position is the line, counted from 0, where it starts; the
header's line and blank lines are positions too, and no rows.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from pipeline.columns import Columns
from pipeline.rejects import Reject
from pipeline.sources.base import Chunk, Files, SourceError
from pipeline.sources.cells import typed_column
from pipeline.sources.checks import Faults, RawRows
from pipeline.sources.lines import MAX_LINE_BYTES

BATCH_CHARACTERS = 4 << 20
BATCH_RECORDS = 16_384

Record = tuple[int, list[str] | str]
"""The line where a record starts, and its cells or what is wrong with it."""

csv.field_size_limit(MAX_LINE_BYTES)  # Python's own limit is 128 KiB, less than a long text


def csv_header(files: Files, path: str) -> list[str]:
    """Gives the names of the columns; none where the file is empty.

    Raises:
        SourceError: two columns have the same name, or the header is no CSV.
        OSError: the file cannot be read.
    """
    with files.open(path) as file:
        try:
            names: list[str] = next(filter(None, _reader(file)), [])
        except csv.Error as error:
            raise SourceError(f"{path}: the header is not CSV: {error}") from error
    for name in names:
        if names.count(name) > 1:
            raise SourceError(f"{path} has two columns {name!r}; rename one")
    return names


def read_csv(chunk: Chunk, path: str, files: Files, columns: Columns, fields: Mapping[str, str]) -> Iterator[RawRows]:
    """Reads the rows of a whole file, some thousand at a time.

    Args:
        chunk: The chunk that the file is.
        path: The file's full path.
        files: What opens it.
        columns: What is asked for; a column that the header lacks is null in every row.
        fields: The name in the header of a column, where it is another one.

    Raises:
        OSError: the file cannot be read.
    """
    with files.open(path) as file:
        reader = _reader(file)
        header: list[str] = next(filter(None, reader), [])
        names = {name: fields.get(name, name) for name in columns}
        places = {name: header.index(field) if field in header else None for name, field in names.items()}
        covered = 0
        for batch in _batches(_records(reader, len(header))):
            yield _raw_rows(chunk, batch, columns, places, reader.line_num - covered)
            covered = reader.line_num


def _reader(file: BinaryIO) -> Any:
    """A CSV reader; bytes that are not UTF-8 come as surrogates. Text behind a closing quote is an error."""
    text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
    return csv.reader(text, strict=True)


def _records(reader: Any, cells: int) -> Iterator[Record]:
    """Gives the records that are not blank, with the lines where they start; a string says what is wrong with one."""
    while True:
        line = reader.line_num
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, f"the record is not CSV: {error}"
            continue
        if record:
            yield line, record if len(record) == cells else f"{len(record)} cells, the header has {cells}"


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    batch, characters = list[Record](), 0
    for record in records:
        batch.append(record)
        characters += sum(map(len, record[1]))
        if characters >= BATCH_CHARACTERS or len(batch) == BATCH_RECORDS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _raw_rows(
    chunk: Chunk, batch: list[Record], columns: Columns, places: Mapping[str, int | None], covered: int
) -> RawRows:
    good = [(line, record) for line, record in batch if not isinstance(record, str)]
    faults: Faults = {}
    arrays = {}
    for name, kind in columns.items():
        place = places[name]
        cells = [None if place is None else record[place] for _, record in good]
        arrays[name] = typed_column(name, kind, cells, faults)
    return RawRows(
        columns=arrays,
        positions=np.array([line for line, _ in good], np.int64),
        keys=None,
        faults=faults,
        unparsed=[Reject(chunk.index, line, "malformed_row", bad) for line, bad in batch if isinstance(bad, str)],
        covered=covered,
    )
