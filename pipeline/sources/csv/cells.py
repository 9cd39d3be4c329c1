"""The cells of CSV records, as Arrow columns of strings, and the default keys that are made of them.

Records are read by Arrow, thousands at a time. Where one of them is broken or has another number of cells than the
header, Python's `csv` reads them one by one, with the same result.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.sources.base import Files, SourceError
from recordmill.pipeline.sources.csv.records import Dialect, Records, Rows, read_records
from recordmill.pipeline.sources.encoded import open_utf8
from recordmill.pipeline.sources.lines import BYTE_ORDER_MARK, MAX_LINE_BYTES
from recordmill.pipeline.sources.paths import is_utf8
from recordmill.pipeline.sources.typing.arrays import strings

HEADER_BYTES = 64 << 10  # 64 KiB: read at once for a header
KEYED_CELLS = 10_000  # of a record with more, as of a line of commas, there is no key
csv.field_size_limit(MAX_LINE_BYTES)  # Python's own limit is 128 KiB, less than a long text


class Cells(NamedTuple):
    """The cells of some records."""

    good: Rows
    """The records that are rows."""
    columns: Mapping[int, pa.Array]
    """The cells by the columns' numbers: Arrow `string` of shape [good], any bytes."""
    keys: pa.Array | None
    """The default keys as Arrow `binary`, shape [good]; None where they are not asked for."""
    faults: Mapping[int, tuple[str, str | None]]
    """The other records: a message, and the default key where it is asked for and known."""


@dataclass(frozen=True)
class CellReader:
    """Reads the cells of records."""

    dialect: Dialect
    width: int
    """The number of cells of the header."""
    columns: Sequence[int]
    """The columns that are read, rising."""
    with_keys: bool

    def read(self, records: Records, batch: Rows) -> Cells:
        """Reads some records, none blank, that follow one another; each comes out as it would alone."""
        is_broken = records.faults and not records.faults.keys().isdisjoint(batch.tolist())
        columns = None if is_broken else self._by_arrow(records, batch)
        good, columns, faults = self._by_python(records, batch) if columns is None else (batch, columns, {})
        keys = digests(list(columns.values())) if self.with_keys else None
        return Cells(good, columns, keys, faults)

    @property
    def _needed(self) -> Sequence[int]:
        """The columns that are read; a key is made of all."""
        return range(self.width) if self.with_keys else self.columns

    def _by_arrow(self, records: Records, batch: Rows) -> dict[int, pa.Array] | None:
        """The columns; None where a record is not as long as the header."""
        if not len(batch) or not self._needed:
            return None
        start, stop = int(records.starts[batch[0]]), int(records.stops[batch[-1]])
        if records.data.startswith(BYTE_ORDER_MARK, start):  # Arrow would leave it out
            return None
        names = [str(column) for column in self._needed]
        try:
            table = pyarrow.csv.read_csv(
                pa.py_buffer(records.data).slice(start, stop - start),
                pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=stop - start + 1, column_names=list(map(str, range(self.width)))
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=self.dialect.separator, quote_char=self.dialect.quote or False, newlines_in_values=True
                ),
                pyarrow.csv.ConvertOptions(
                    check_utf8=False, include_columns=names, column_types=dict.fromkeys(names, pa.string())
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(batch):
            return None
        return {column: table[name].combine_chunks() for column, name in zip(self._needed, names, strict=True)}

    def _by_python(
        self, records: Records, batch: Rows
    ) -> tuple[Rows, dict[int, pa.Array], dict[int, tuple[str, str | None]]]:
        """The records that are rows, their columns, and what is wrong with the others."""
        good, parsed, faults = list[int](), list[list[str]](), dict[int, tuple[str, str | None]]()
        readable = [record for record in batch.tolist() if record not in records.faults]
        rows = cells_of(map(records.text, readable), self.dialect)
        for record in batch.tolist():
            if record in records.faults:
                faults[record] = records.faults[record], None
                continue
            cells = next(rows)
            if len(cells) == self.width:
                good.append(record)
                parsed.append(cells)
            else:
                key = _digest(cells) if self.with_keys and len(cells) <= KEYED_CELLS else None
                faults[record] = f"{len(cells)} cell{'s' * (len(cells) > 1)}, the header has {self.width}", key
        columns = {column: strings([cells[column] for cells in parsed]) for column in self._needed}
        return np.array(good, np.int64), columns, faults


def cells_of(records: Iterable[bytes], dialect: Dialect) -> Iterator[list[str]]:
    """Yields the cells of records that are not broken, by Python's `csv`; bytes that are not UTF-8 as surrogates."""
    texts = (record.decode("utf-8", "surrogateescape") for record in records)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL
    return csv.reader(texts, delimiter=dialect.separator, quotechar=dialect.quote or '"', quoting=quoting, strict=True)


def read_header(files: Files, path: str, dialect: Dialect, encoding: str) -> list[str]:
    """Gives the cells of the first record; none where the file is empty.

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


def _digest(cells: Sequence[str]) -> str:
    """The key of one row, as `digests` gives it."""
    data = [cell.encode("utf-8", "surrogateescape") for cell in cells]
    return content_digest(b":".join(part for cell in data for part in (b"%d" % len(cell), cell))).decode()


def digests(columns: Sequence[pa.Array]) -> pa.Array:
    """Gives the default keys of rows: BLAKE2b of each row's cells, each after its length in bytes, in hexadecimal.

    Args:
        columns: all columns, at least one: Arrow `string` of shape [rows].

    Returns:
        Arrow `binary` of 32 bytes each, shape [rows].
    """
    parts = [part for column in columns for part in (pc.binary_length(column).cast(pa.string()), column)]
    joined = pc.binary_join_element_wise(*(part.cast(pa.binary()) for part in parts), b":")
    return pa.array([content_digest(row) for row in joined.to_pylist()], pa.binary())
