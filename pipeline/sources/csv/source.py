"""CSV and TSV as sources: a row is a record. What a record is: `pipeline.sources.csv.records`.

    source: {format: csv, path: rows.csv}

The plan reads every file once, to count the rows and to find where records start: so files that are not compressed are
read in ranges, and each record is read once, whatever its quoted cells hold. A record's position is the line, counted
from 0, where it starts; the header's lines and blank lines are positions too, and no rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.sources.base import Block, Chunk, FileInfo, Files, Plan, SourceError
from recordmill.pipeline.sources.columns import Columns, required
from recordmill.pipeline.sources.csv.cells import CellReader, Cells, read_header
from recordmill.pipeline.sources.csv.records import Dialect, RecordRange, cut_file, read_range
from recordmill.pipeline.sources.options import DelimitedOptions
from recordmill.pipeline.sources.paths import check_names, is_image, join
from recordmill.pipeline.sources.table import TableReader
from recordmill.pipeline.sources.typing.blocks import RawRows, as_reject, make_block
from recordmill.pipeline.sources.typing.faults import Fault, Faults
from recordmill.pipeline.sources.typing.values import typed_values

SEPARATORS = ",;\t|"
BATCH_RECORDS = 16_384  # of 550 bytes: about 8 MiB
LONG_NAME = 64  # characters of a column's name; sentences are longer


class CsvReader(TableReader[DelimitedOptions]):
    """Reads files of records whose cells have a separator between them."""

    @property
    def endings(self) -> tuple[str, ...]:
        """The ending of the names that are read of a folder."""
        return (f".{self.source.format}",)

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts the files where records start, into ranges of about `chunk_bytes`; `rows` is exact.

        Raises:
            SourceError: a header is no CSV, or not of the encoding, or lacks a column, or has it twice.
            OSError: a file cannot be read, or its compressed data is damaged.
        """
        chunks, rows, names = list[Chunk](), 0, dict[str, None]()
        for file in inputs:
            whole = self._whole(files, join(root, file.path), columns)
            ranges, count = cut_file(files, root, file, whole, chunk_bytes)
            chunks += ranges
            rows += count
            names |= dict.fromkeys(whole.names)
        return Plan(chunks, rows, names=list(names), is_exact=True)

    def _whole(self, files: Files, path: str, columns: Columns) -> RecordRange:
        """All records of a file, whose columns are checked."""
        dialect = Dialect(self.source.separator, self.source.quote)
        names = (
            read_header(files, path, dialect, self.source.encoding)
            if self.source.header is True
            else self.source.header
        )
        needed = required(columns)
        if len(names) == 1 and needed and names[0] not in needed:
            near = max(SEPARATORS, key=names[0].count)
            if near in names[0] and near != self.source.separator:
                raise SourceError(f"{path} has one column; set `separator`, maybe to {near!r}")
        if self.source.header is True and _is_row(names):
            _check_header(path, needed, names)
        check_names(path, needed, names)
        for name in columns:
            if names.count(name) > 1:
                raise SourceError(f"{path} has two columns {name!r}; rename one")
        return RecordRange(dialect, self.source.encoding, tuple(names), has_header=self.source.header is True)

    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads the records of a chunk; a row's default key is the digest of its cells.

        Raises:
            OSError: the file cannot be read any more.
        """
        part: RecordRange = chunk.work
        numbers = {name: part.names.index(name) for name in columns if name in part.names}
        reader = CellReader(part.dialect, len(part.names), sorted(set(numbers.values())), key is None)
        base = self.image_base(files, chunk)
        for records, rows, first in read_range(files, join(self.root(files), chunk.file), part):
            reason = "too_large" if records.is_too_large else "malformed_row"
            lines = records.lines + first
            for batch, covered in records.batches(rows, BATCH_RECORDS):
                cells, faults = reader.read(records, batch), Faults()
                raw = RawRows(
                    {
                        name: typed_values(name, column, _cells(cells, numbers, name), base, faults, as_cells=True)
                        for name, column in columns.items()
                    },
                    lines[cells.good],
                    cells.keys,
                    covered,
                    faults,
                    [
                        as_reject(chunk, int(lines[record]), Fault(reason, message), row_key)
                        for record, (message, row_key) in cells.faults.items()
                    ],
                )
                yield make_block(chunk, raw, columns, key, self.source.encoding)


def _check_header(path: str, needed: Sequence[str], cells: Sequence[str]) -> None:
    """Raises: SourceError: a column is missing, and the first record looks like a row; it shows none of its values."""
    for name in needed:
        if name not in cells and not did_you_mean(name, cells):
            raise SourceError(
                f"{path} has no column {name!r}, and its first line looks like a row, not like the columns' names: "
                f"if the file has no header, give its {len(cells)} columns their names in order, such as "
                f"`header: [{', '.join([*needed, *['…'] * (len(cells) > len(needed))])}]`"
            )


def _is_row(cells: Sequence[str]) -> bool:
    """Whether half of the cells or more are hardly names of columns; an empty first one is that of pandas' index."""
    named = cells[1:] if len(cells) > 1 and not cells[0] else cells
    return bool(named) and 2 * sum(map(_is_value, named)) >= len(named)


def _is_value(cell: str) -> bool:
    """Whether a cell is hardly a column's name: empty, long, an image's path, or a number."""
    if not cell.strip() or len(cell) > LONG_NAME or is_image(cell):
        return True
    with suppress(ValueError):
        float(cell)
        return True
    return False


def _cells(cells: Cells, numbers: Mapping[str, int], name: str) -> pa.Array:
    """The cells of a column, null where the header lacks it."""
    return cells.columns[numbers[name]] if name in numbers else pa.nulls(len(cells.good), pa.string())
