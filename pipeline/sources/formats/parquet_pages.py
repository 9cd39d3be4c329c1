"""Bounds for what Arrow decodes of a Parquet file: refuses pages that expand, and shortens batches of large rows.

Arrow decompresses a whole page, and copies a dictionary's value into each of its rows: some kilobytes may become many
gigabytes. A footer may lie about that, and pyarrow cannot read page headers, `PageHeader` in parquet.thrift, in
Thrift's compact protocol: this module does, before Arrow decodes any page.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

HEADER_BYTES = 1 << 10  # 1 KiB, read first; a header without statistics has about 30 bytes
MOST_HEADER_BYTES = 16 << 20  # 16 MiB, Arrow's limit
MOST_DEPTH = 8  # of a header's structs; Parquet's own nest three deep
DICTIONARY_PAGE = 2
KIND, DECODED, STORED = 1, 2, 3
PARTS = {5: (1, 2), 7: (1, 2), 8: (1, 4)}
"""The field numbers of count and encoding: in a data page, a dictionary, a data page of version 2."""
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
BATCH_ROWS = 8192  # more saves no time, and a text repeated in many rows is stored, and counted here, only once
BUFFER_BYTES = 1 << 20  # 1 MiB, read at once of each column: never holds a whole large row group
BATCH_BYTES = 64 << 20  # 64 MiB, of all columns of a batch, unless a single row is larger
PAGE_BYTES = 64 << 20  # 64 MiB, allowed for every page, however well compressed
VALUES = 1 << 25  # in a row group's lists: as many as a line of 64 MiB can hold in JSON
MOST_TIMES = 32  # the limit of a larger page, in bytes per byte in the file
LIST_BYTES = 256 << 20  # 256 MiB, of such lists, if each value is the longest
WORD_BYTES = 1 << 10  # 1 KiB: shorter texts in lists are words, and the longest tells little
VALUE_BYTES = 8  # of an integer or a number
DICTIONARY, RLE_DICTIONARY = 2, 8
DELTAS = range(5, 8)  # Arrow reads all lengths of such a page at once
DELTA_BYTE_ARRAY = 7  # a value is a prefix of the previous one, plus some bytes
REMEDY = "if you trust it, rewrite the file with smaller row groups and pages"


class Page(NamedTuple):
    """A page's header."""

    is_dictionary: bool
    decoded: int
    stored: int
    values: int  # the number of values, counting nulls and empty lists in nested columns
    encoding: int  # an `Encoding` of parquet.thrift


@dataclass(frozen=True)
class Expected:
    """The values and bytes of a column chunk, by its page headers or the footer."""

    ends: npt.NDArray[np.int64]  # the number of values at the beginning and at each page's end, shape [pages + 1]
    sums: npt.NDArray[np.int64]  # the decompressed bytes there
    repeated: int  # the bytes of the longest value stored once for many rows; 0 without one
    rows: int

    def most(self, rows: int) -> float:
        """Estimates the bytes of the largest batch of `rows`, within two pages, by averages in lists and pages."""
        values = rows * self.ends[-1] / max(1, self.rows)
        places = np.concatenate([self.ends, self.ends - values])
        held = np.interp(places + values, self.ends, self.sums) - np.interp(places, self.ends, self.sums)
        return float(held.max()) + values * self.repeated


def rows_at_once(columns: Sequence[Expected]) -> int:
    """Returns the number of rows, 1 to 8,192, with about 64 MiB in all these columns."""
    rows = BATCH_ROWS
    while rows > 1 and sum(column.most(rows) for column in columns) > BATCH_BYTES:
        rows //= 2
    return rows


def stated(file: pq.ParquetFile, group: int, leaf: int) -> Expected:
    """Returns the footer's claims about a column chunk, unproven by page headers."""
    metadata = file.metadata.row_group(group)
    chunk = metadata.column(leaf)
    ends, sums = (np.array([0, max(0, most)]) for most in (chunk.num_values, chunk.total_uncompressed_size))
    return Expected(ends, sums, 0, metadata.num_rows)


def expected(opened: BinaryIO, file: pq.ParquetFile, group: int, leaf: int) -> Expected:
    """Reads a column chunk's page headers from `opened`, a second file. Raises: OSError: beyond a bound, or damaged."""
    metadata = file.metadata.row_group(group)
    chunk, column = metadata.column(leaf), file.metadata.schema.column(leaf)
    start = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)
    found = list(pages(opened, start, chunk.num_values))
    for page in found:
        _check_page(column.path, page)
    data = [page for page in found if not page.is_dictionary]
    if column.max_repetition_level:
        _check_values(column.path, sum(page.values for page in data), sum(page.stored for page in found))
    ends = np.cumsum([0, *(page.values for page in data)], dtype=np.int64)
    sums = np.cumsum([0, *(page.decoded for page in data)], dtype=np.int64)
    once = Expected(ends, sums, 0, metadata.num_rows)
    first = min(rows_at_once([once]), max(1, int(metadata.num_rows * ends[:2][-1] // max(1, ends[-1]))))
    repeated = _repeated(opened, column, group, found, first)
    if column.max_repetition_level and repeated > WORD_BYTES:
        size, stored = int(ends[-1]) * repeated, sum(page.stored for page in found)
        what = f"the lists of the column {column.path!r} hold up to {size:,} bytes in {stored:,}"
        _check_most(what, size, stored, LIST_BYTES)
    return replace(once, repeated=repeated)


def _check_page(name: str, page: Page) -> None:
    what = f"a page of the column {name!r} holds {page.decoded:,} bytes in {page.stored:,}"
    _check_most(what, page.decoded, page.stored, PAGE_BYTES)
    if page.is_dictionary and page.values > page.decoded:
        raise OSError(f"a dictionary of the column {name!r} states {page.values:,} values in {page.decoded:,} bytes")
    if page.encoding in DELTAS:
        _check_values(name, page.values, page.stored)


def _check_values(name: str, values: int, stored: int) -> None:
    what = f"the column {name!r} holds {values:,} values in {stored:,} bytes"
    _check_most(what, values, stored, VALUES, MOST_TIMES // VALUE_BYTES)


def _check_most(what: str, held: int, stored: int, most: int, times: int = MOST_TIMES) -> None:
    """Refuses what exceeds both `most` and `times` its bytes in the file."""
    most = max(most, times * stored)
    if held > most:
        raise OSError(f"{what}; the limit is {most:,}; {REMEDY}")


def _repeated(opened: BinaryIO, column: pq.ColumnSchema, group: int, found: Sequence[Page], rows: int) -> int:
    """Returns the bytes of the longest value possibly stored once for many rows."""
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(column.length)
    if column.physical_type != "BYTE_ARRAY":
        return VALUE_BYTES
    shared = [page.decoded for page in found if page.encoding == DELTA_BYTE_ARRAY]
    dictionary = next((page for page in found if page.is_dictionary), None)
    if dictionary and any(page.encoding in (DICTIONARY, RLE_DICTIONARY) for page in found if not page.is_dictionary):
        shared.append(dictionary.decoded)
        if dictionary.decoded * BATCH_ROWS > BATCH_BYTES:
            shared[-1] = _longest(opened, group, column.path, dictionary, rows)
    return max(shared, default=0)


def _longest(opened: BinaryIO, group: int, path: str, dictionary: Page, rows: int) -> int:
    """Returns the bytes of a dictionary's longest value, or of all if the first `rows` do not show each value."""
    try:
        opened.seek(0)
        file = pq.ParquetFile(opened, pre_buffer=False, buffer_size=BUFFER_BYTES, read_dictionary=[path])
        values = next(file.iter_batches(rows, [group], [path], use_threads=False)).column(0)
        while not pt.is_dictionary(values.type):
            values = values.field(0) if pt.is_struct(values.type) else values.values
    except (pa.ArrowException, AttributeError, StopIteration):
        return dictionary.decoded
    words = values.dictionary
    return int(pc.max(pc.binary_length(words)).as_py()) if len(words) == dictionary.values > 0 else dictionary.decoded


def pages(file: BinaryIO, start: int, values: int) -> Iterator[Page]:
    """Reads page headers from a byte on, until they have all of a column chunk's `values`. Raises: OSError: damaged."""
    end, seen = file.seek(0, io.SEEK_END), 0
    if start < 0:
        raise OSError("a page's header lies outside the file")
    while seen < values:
        page, length = _read(file, start)
        start += length + page.stored
        if min(page.decoded, page.stored, page.values) < 0 or start > end:
            raise OSError("a page's header is damaged, or the file is cut off")
        seen += 0 if page.is_dictionary else page.values
        yield page


def _read(file: BinaryIO, start: int) -> tuple[Page, int]:
    """Reads one header; returns it and its length in bytes."""
    size = HEADER_BYTES
    while True:
        file.seek(start)
        data = file.read(size)
        try:
            fields, length = _struct(data, 0, MOST_DEPTH)
            held: dict[int, Any] = next((fields[part] for part in PARTS if part in fields), {})
            count, encoding = next((PARTS[part] for part in PARTS if part in fields), (1, 2))
            is_dictionary = fields[KIND] == DICTIONARY_PAGE
            page = Page(is_dictionary, fields[DECODED], fields[STORED], held.get(count, 0), held.get(encoding, 0))
            return page, length
        except IndexError:
            if len(data) < size or size >= MOST_HEADER_BYTES:
                raise OSError("a page's header is cut off") from None
            size *= 16
        except (KeyError, ValueError, TypeError, AttributeError):
            raise OSError("a page's header is damaged") from None


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Reads a struct's fields by number, lists excepted, and its end."""
    fields, number = dict[int, Any](), 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind in (I16, I32, I64):
        return _signed(data, at)
    if kind == BINARY:
        length, at = _varint(data, at)
        return None, _within(data, at + length)
    if kind == STRUCT and depth:
        return _struct(data, at, depth - 1)
    if kind in (BYTE, DOUBLE):
        return None, _within(data, at + (1 if kind == BYTE else 8))
    raise ValueError(kind)  # page headers hold no lists, sets or maps


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError
    return at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")
