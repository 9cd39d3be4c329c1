"""The cells of CSV records, as Arrow columns of strings, and the default keys that are made of them.

Records are read by Arrow, thousands at a time. Where one of them is broken or has another number of cells than the
header, Python's `csv` reads them one by one: what comes of each is the same.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from recordmill.pipeline.dataset.key_hash import content_digest
from recordmill.pipeline.sources.csv.records import Dialect, Places, Records
from recordmill.pipeline.sources.lines import BYTE_ORDER_MARK, MAX_LINE_BYTES
from recordmill.pipeline.sources.typing.string_cells import strings

KEYED_CELLS = 10_000  # of a record with more, as of a line of commas, there is no key
csv.field_size_limit(MAX_LINE_BYTES)  # Python's own limit is 128 KiB, less than a long text


class Cells(NamedTuple):
    """What was read of some records."""

    good: Places
    """The records that are rows."""
    columns: Mapping[int, pa.Array]
    """The cells of the columns that are read, by the columns' places: Arrow `string` of shape [good], any bytes."""
    keys: pa.Array | None
    """The default keys as Arrow `binary`, shape [good]; None where nobody asked."""
    faults: Mapping[int, tuple[str, str | None]]
    """What is wrong with the other records, and their default keys where they are asked for and known."""


@dataclass(frozen=True)
class CellReader:
    """Reads the cells of records."""

    dialect: Dialect
    width: int
    """How many cells the header has."""
    places: Sequence[int]
    """The columns that are read, rising."""
    with_keys: bool

    def read(self, records: Records, batch: Places) -> Cells:
        """Reads some records, none blank, that follow one another; each comes out as it would alone."""
        is_broken = records.faults and not records.faults.keys().isdisjoint(batch.tolist())
        columns = None if is_broken else self._by_arrow(records, batch)
        return self._by_python(records, batch) if columns is None else self._cells(batch, columns, {})

    def _cells(
        self, good: Places, columns: Mapping[int, pa.Array], faults: Mapping[int, tuple[str, str | None]]
    ) -> Cells:
        keys = digests(list(columns.values())) if self.with_keys else None
        return Cells(good, columns, keys, faults)

    @property
    def _places(self) -> Sequence[int]:
        """The columns that are read; a key is made of all."""
        return range(self.width) if self.with_keys else self.places

    def _by_arrow(self, records: Records, batch: Places) -> dict[int, pa.Array] | None:
        """The columns; None where a record is not as long as the header."""
        if not len(batch) or not self._places:
            return None
        start, stop = int(records.starts[batch[0]]), int(records.stops[batch[-1]])
        if records.data.startswith(BYTE_ORDER_MARK, start):  # Arrow would leave it out
            return None
        names = [str(place) for place in self._places]
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
        return {place: table[name].combine_chunks() for place, name in zip(self._places, names, strict=True)}

    def _by_python(self, records: Records, batch: Places) -> Cells:
        readable = [record for record in batch.tolist() if record not in records.faults]
        rows = cells_of((records.text(record) for record in readable), self.dialect)
        good, parsed = list[int](), list[list[str]]()
        faults: dict[int, tuple[str, str | None]] = {
            record: (records.faults[record], None) for record in batch.tolist() if record in records.faults
        }
        for record, cells in zip(readable, rows, strict=True):
            if len(cells) == self.width:
                good.append(record)
                parsed.append(cells)
            else:
                key = _digest(cells).decode() if self.with_keys and len(cells) <= KEYED_CELLS else None
                found = f"{len(cells)} cell{'s' * (len(cells) > 1)}"
                faults[record] = (f"{found}, the header has {self.width}", key)
        columns = {place: strings([cells[place] for cells in parsed]) for place in self._places}
        return self._cells(np.array(good, np.int64), columns, dict(sorted(faults.items())))


def cells_of(records: Iterable[bytes], dialect: Dialect) -> Iterator[list[str]]:
    """The cells of records that are not broken, by Python's `csv`; bytes that are not UTF-8 come as surrogates."""
    texts = (record.decode("utf-8", "surrogateescape") for record in records)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL
    return csv.reader(texts, delimiter=dialect.separator, quotechar=dialect.quote or '"', quoting=quoting, strict=True)


def _digest(cells: Sequence[str]) -> bytes:
    """What `digests` gives of one row."""
    data = [cell.encode("utf-8", "surrogateescape") for cell in cells]
    return content_digest(b":".join(part for cell in data for part in (b"%d" % len(cell), cell)))


def digests(columns: Sequence[pa.Array]) -> pa.Array:
    """The default keys of rows: of each row's cells, each after its length in bytes, BLAKE2b, 16 bytes in hexadecimal.

    Args:
        columns: All columns, at least one: Arrow `string` of shape [rows].

    Returns:
        Arrow `binary`, shape [rows].
    """
    parts = [part for column in columns for part in (pc.binary_length(column).cast(pa.string()), column)]
    joined = pc.binary_join_element_wise(*(part.cast(pa.binary()) for part in parts), b":")
    return pa.array([content_digest(row) for row in joined.to_pylist()], pa.binary())
