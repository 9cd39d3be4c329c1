"""The rows of CSV files, in the types that are asked for. What a record is: `pipeline.sources.csv.records`.

A record's position is the line, counted from 0, where it starts; the header's lines and blank lines are positions too,
and no rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from recordmill.pipeline.sources.base import Chunk, Files, SourceError
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.csv.cells import CellReader, Cells, cells_of
from recordmill.pipeline.sources.csv.records import Dialect, Places, Records, read_records
from recordmill.pipeline.sources.encoded import open_utf8
from recordmill.pipeline.sources.paths import is_utf8
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.typing.checks import Faults, RawRows
from recordmill.pipeline.sources.typing.image_cells import references
from recordmill.pipeline.sources.typing.string_cells import typed_cells

BATCH_RECORDS = 16_384  # of 550 bytes: about 8 MiB
HEADER_BYTES = 64 << 10  # 64 KiB: what is read at once for a header


@dataclass(frozen=True)
class CsvFile:
    """How a file is read, and the records of it that are: those that start in the bytes `[start, end)`."""

    dialect: Dialect = Dialect()
    encoding: str = "utf-8"
    names: tuple[str, ...] = ()
    """The columns."""
    has_header: bool = True
    """Whether the file's first record is the header."""
    start: int = 0
    """Where a record starts."""
    end: int | None = None
    first_line: int = 0
    """The line of the file, counted from 0, that `start` is in."""


def first_record(files: Files, path: str, dialect: Dialect, encoding: str) -> list[str]:
    """Gives the cells of the first record, which is the header; none where the file is empty.

    Raises:
        SourceError: the header is no CSV, or not of the encoding.
        OSError: the file cannot be read.
    """
    with open_utf8(files, path, encoding) as file:
        for records in read_records(file, dialect, HEADER_BYTES):
            for record in records.filled[:1].tolist():
                if record in records.faults:
                    raise SourceError(f"{path}: {records.faults[record].replace('record', 'header', 1)}")
                [names] = cells_of([records.text(record)], dialect)
                if not all(map(is_utf8, names)):
                    other = "utf-16 or cp1252" if encoding == "utf-8" else "utf-8"
                    raise SourceError(f"{path}: the header is not {encoding}; set `encoding`, such as {other}")
                return names
    return []


def check_once(path: str, names: Sequence[str], asked: Iterable[str]) -> None:
    """Checks that no column that is asked for is there twice.

    Raises:
        SourceError: one is.
    """
    for name in asked:
        if names.count(name) > 1:
            raise SourceError(f"{path} has two columns {name!r}; rename one")


def read_csv(
    chunk: Chunk,
    path: str,
    files: Files,
    columns: Columns,
    pictures: tuple[str, str],
    form: CsvFile,
    with_key: bool,
) -> Iterator[RawRows]:
    """Reads rows, some thousand at a time.

    Args:
        chunk: The chunk that they are.
        path: The file's full path.
        files: What opens it.
        columns: What is asked for; a column that the header lacks is null in every row.
        pictures: What paths of pictures are relative to (`typing.image_cells`): a root, and a folder below it.
        form: Which records are read, and how.
        with_key: Whether the default keys are asked for.

    Raises:
        OSError: the file cannot be read.
    """
    places = {name: form.names.index(name) for name in columns if name in form.names}
    cells = CellReader(form.dialect, len(form.names), sorted(set(places.values())), with_key)
    rows = _Rows(chunk, columns, places, pictures, cells)
    to_skip, first = int(form.has_header and not form.start), 0
    with open_utf8(files, path, form.encoding, form.start, form.end) as file:
        for records in read_records(file, form.dialect):
            skipped, to_skip = to_skip, max(0, to_skip - len(records.filled))
            yield from rows.read(records, records.filled[skipped:], first)
            first += records.line_count


@dataclass(frozen=True)
class _Rows:
    """Makes rows of records."""

    chunk: Chunk
    columns: Columns
    places: Mapping[str, int]
    """Where the columns stand in the header; a column that it lacks is not there."""
    pictures: tuple[str, str]
    cells: CellReader

    def read(self, records: Records, chosen: Places, first: int) -> Iterator[RawRows]:
        """Gives some records' rows; they cover all lines of `records`, the first of which is line `first`."""
        for batch, covered in records.batches(chosen, BATCH_RECORDS):
            cells = self.cells.read(records, batch)
            yield self._raw_rows(cells, records.lines + first, records.is_too_large, covered)

    def _raw_rows(self, cells: Cells, lines: Places, is_too_large: bool, covered: int) -> RawRows:
        faults: Faults = {}
        reason = "too_large" if is_too_large else "malformed_row"
        return RawRows(
            columns={name: self._typed(name, cells, faults) for name in self.columns},
            positions=lines[cells.good],
            keys=cells.keys,
            faults=faults,
            unparsed=[
                Reject(self.chunk.index, int(lines[record]), reason, message, key)
                for record, (message, key) in cells.faults.items()
            ],
            covered=covered,
        )

    def _typed(self, name: str, cells: Cells, faults: Faults) -> pa.Array:
        column = self.columns[name]
        values = cells.columns[self.places[name]] if name in self.places else pa.nulls(len(cells.good), pa.string())
        typed = typed_cells(name, column, values, faults)
        return references(name, typed, *self.pictures, faults) if column.type is ColumnType.IMAGE else typed
