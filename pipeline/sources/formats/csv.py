"""CSV and TSV as sources: a record is a row, as `formats.csv_records` finds it.

    source: {format: csv, path: rows.csv}

The plan reads every file once to count rows and find where records start: uncompressed files are read in ranges, and
each record once, whatever its quoted cells hold. A record's position is its first line, from 0; blank lines and the
header have positions but no rows.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.sources.encoded import BYTE_ORDER_MARK, MAX_LINE_BYTES, Rows, open_utf8
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.csv_records import CsvRecords, Dialect, RecordRange, read_records
from recordmill.pipeline.sources.options import DelimitedOptions
from recordmill.pipeline.sources.paths import check_names, is_image, is_utf8, join
from recordmill.pipeline.sources.source_reader import Chunk, Key, Plan, TableReader, TypedRows
from recordmill.pipeline.sources.typing.arrays import strings
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.bounds import CSV_COLUMNS
from recordmill.transforms.base.columns import Columns, ColumnType, required

HEADER_BYTES = 64 << 10  # 64 KiB, read at once for a header
WIDE = 4_096  # columns: Arrow's parser takes 10 kB for each one read
csv.field_size_limit(MAX_LINE_BYTES)  # Python's default of 128 KiB is too small for long texts
RETURN = "\ud80d"  # stands for a CR in a cell, which Python's `csv` refuses without quotes; no text decodes to it
SEPARATORS = ",;\t|"
SEPARATOR_LINE = re.compile(r"sep=(.)", re.IGNORECASE)  # the first line of files for Excel
BATCH_RECORDS = 16_384  # of 550 bytes: about 8 MiB
Unread = dict[int, tuple[str, str | None]]  # invalid records: a message, and the default key if asked for and known


class CsvReader(TableReader[DelimitedOptions]):
    """Reads files of records with separated cells."""

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts the files at records into ranges of about `chunk_bytes`; `rows` is exact."""
        chunks, rows, names = list[Chunk](), 0, dict[str, None]()
        for file in inputs:
            whole = self._whole(files, join(root, file.path), columns)
            ranges, count = whole.cut(files, root, file, chunk_bytes)
            chunks += ranges
            rows += count
            names |= dict.fromkeys(with_numbered(whole.names, columns))
        return Plan(chunks, rows, names=list(names), is_exact=True)

    def _whole(self, files: Files, path: str, columns: Columns) -> RecordRange:
        dialect, skip = Dialect.of(self.source), self.source.skip
        given, encoding, needed = self.source.header, self.source.encoding, required(columns)
        first = list[str]()
        with nullcontext() if given is True else suppress(SourceError):  # a broken first row is a reject
            first = read_header(files, path, dialect, encoding, skip)
        names = first if given is True else given
        if len(names) > CSV_COLUMNS.most:
            raise SourceError(f"{path}: {CSV_COLUMNS.beyond(len(names))}: is this a header?")
        line, skips = dialect.separator.join(first), "skip it by `skip: 1`"
        if SEPARATOR_LINE.fullmatch(line):
            raise SourceError(f"{path} begins with the line {line!r}: {skips}, and set `separator: {line[4]!r}`")
        if given is not True and first == list(given):
            raise SourceError(f"{path} begins with the names in `header`: {skips}")
        if given is True and line.startswith("#") and needed and set(needed).isdisjoint(first):
            raise SourceError(f"{path} begins with a comment: {skips}, or the number of lines before the header")
        if len(names) == 1 and needed and names[0] not in needed:
            near = max(SEPARATORS, key=names[0].count)
            if near in names[0] and near != self.source.separator:
                raise SourceError(f"{path} has one column; set `separator`, perhaps to {near!r}")
        replaced = with_numbered(names, columns)
        if given is True:
            _check_header(path, [name for name in needed if name not in replaced], names)
        check_names(path, needed, replaced)
        counts = Counter(names)
        for name in columns:
            if counts[name] > 1:
                raise SourceError(f"{path} has two columns {name!r}; rename one")
        return RecordRange(dialect=dialect, encoding=encoding, names=tuple(names), head=skip + (given is True))

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads a chunk's records; the default key is the digest of a row's cells."""
        part: RecordRange = chunk.work
        numbers = {name: numbered(name, part.names) for name in columns}
        needed = sorted({*chain.from_iterable(numbers.values())})
        base = self.image_base(files, chunk)
        for records, rows, _ in part.read(files, join(self.root(files), chunk.file)):
            reason = "too_large" if records.is_too_large else "malformed_row"
            for batch, line, covered in records.batches(rows, BATCH_RECORDS):
                good, cells, keys, unread = read_cells(records, batch, part, needed, key is None)
                absent, faults, typed = pa.nulls(len(good), pa.string()), Faults(), dict[str, pa.Array]()
                for name, column in columns.items():
                    some = [cells[number] for number in numbers[name] if number in cells]
                    values = pc.binary_join_element_wise(*some, " ") if len(some) > 1 else (*some, absent)[0]
                    is_cut = column.many and column.separator == ","
                    if self.source.decimal == "," and column.type is ColumnType.NUMBER and not is_cut:
                        pointed = pc.replace_substring(pc.replace_substring(values, ".", "_"), ",", ".")
                        values = pc.if_else(pc.starts_with(values, "["), values, pointed)
                    typed[name] = typed_values(name, column, values, base, faults, as_cells=True)
                lines = records.lines - line
                broken = {int(lines[record]): Fault(reason, message) for record, (message, _) in unread.items()}
                broken_keys = {int(lines[record]): known for record, (_, known) in unread.items()}
                yield TypedRows(typed, covered, faults, lines[good], keys, broken, broken_keys)


def numbered(name: str, names: Sequence[str]) -> list[int]:
    """Returns the places of a column, or of those that `pixel*` means, in the order of the numbers for its `*`.

    >>> numbered("pixel*", ["label", "pixel10", "pixel9"])
    [2, 1]
    """
    if name in names or "*" not in name:
        return [names.index(name)] if name in names else []
    is_one = re.compile(re.escape(name).replace(r"\*", "([0-9]+)"))
    found = [(found, place) for place, each in enumerate(names) if (found := is_one.fullmatch(each))]
    return [place for _, place in sorted((list(map(int, each.groups())), place) for each, place in found)]


def with_numbered(names: Sequence[str], columns: Iterable[str]) -> list[str]:
    """Returns names with those that `pixel*` means replaced by it, of asked columns."""
    means = {name: {names[place] for place in numbered(name, names)} for name in columns if name not in names}
    inside = set().union(*means.values())
    return [*(name for name in names if name not in inside), *(name for name, some in means.items() if some)]


def _check_header(path: str, missing: Sequence[str], cells: Sequence[str]) -> None:
    """Refuses a first record that lacks a column and, like a row, has half its cells unlike names; shows no value."""
    named = cells[1:] if len(cells) > 1 and not cells[0] else cells
    looks_like_row = 2 * sum(map(_is_value, named)) >= len(named)
    for name in missing if named and looks_like_row else ():
        if not did_you_mean(name, cells):
            names = ", ".join([*missing, *["…"] * (len(cells) > len(missing))])
            remedy = f"if the file has no header, name its {len(cells)} columns in order, such as `header: [{names}]`"
            what = f"{path} has no column {name!r}, and its first line looks like a row, not a header"
            raise SourceError(f"{what}: {remedy}")


def _is_value(cell: str) -> bool:
    """Whether a cell is an unlikely column name: empty, long, an image's path, or a number."""
    if not cell.strip() or len(cell) > 64 or is_image(cell):
        return True
    with suppress(ValueError):
        float(cell)
        return True
    return False


def read_header(files: Files, path: str, dialect: Dialect, encoding: str, skip: int) -> list[str]:
    """Reads the first record after the skipped ones; empty if missing. Raises: SourceError: invalid CSV."""
    with open_utf8(files, path, encoding) as file:
        file.check_start()
        for records in read_records(file, dialect, HEADER_BYTES):
            for record in records.filled[skip : skip + 1].tolist():
                [names] = cells_of([records.line(record)], dialect) if record not in records.faults else [None]
                if names is None:
                    fault = records.fault(record) + _remedy(records.line(record), dialect)
                    raise SourceError(f"{path}: {fault.replace('record', 'header', 1)}")
                if not all(map(is_utf8, names)):
                    other = "utf-16 or cp1252" if encoding == "utf-8" else "utf-8"
                    raise SourceError(f"{path}: the header is not {encoding}; set `encoding`, such as {other}")
                return names
            skip = max(0, skip - len(records.filled))
    return []


def cells_of(records: Iterable[bytes], dialect: Dialect) -> Iterator[list[str] | None]:
    r"""Yields the cells of unbroken records by Python's `csv`, None for an open escape; with one, `\N` is empty."""
    texts = (record.decode("utf-8", "surrogateescape") for record in records)
    texts = (re.sub(r"\r(?!\n?\Z)", RETURN, text) if "\r" in text[:-2] else text for text in texts)
    if dialect.escape:
        texts = (_without_nulls(text, dialect.separator, f"{dialect.escape}N") for text in texts)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL
    rows = csv.reader(
        texts, delimiter=dialect.separator, quotechar=dialect.quote or '"', quoting=quoting, strict=True,
        escapechar=dialect.escape, skipinitialspace=dialect.trim,
    )  # fmt: skip
    while True:
        try:
            cells = next(rows)
            yield [cell.replace(RETURN, "\r") for cell in cells] if RETURN in "".join(cells) else cells
        except csv.Error:
            yield None
        except StopIteration:
            return


def _without_nulls(text: str, separator: str, null: str) -> str:
    line = text.rstrip("\r\n")
    return separator.join("" if cell == null else cell for cell in line.split(separator)) + text[len(line) :]


def _remedy(record: bytes, dialect: Dialect, extra: Sequence[str] = ()) -> str:
    """Returns the option that may read an invalid record; `extra` are cells without names, or names without cells."""
    quote, separator = (dialect.quote or "").encode(), dialect.separator.encode()
    if quote and not dialect.escape and b"\\" + quote in record:
        return f"; if quotes are escaped as \\{dialect.quote}, set `escape: '\\'`"
    if quote and not dialect.trim and separator + b" " + quote in record:
        return "; if blanks stand before quotes, set `trim: true`"
    if extra and not any(extra):
        return "; if separators end every line, name all columns by `header`, and skip the file's own by `skip: 1`"
    return ""


def read_cells(
    records: CsvRecords, batch: Rows, part: RecordRange, columns: Sequence[int], with_keys: bool
) -> tuple[Rows, Mapping[int, pa.Array], Sequence[bytes | str], Unread]:
    """Reads columns of consecutive, non-blank records; each gives the same cells as if read alone.

    Keys need all columns. Returns the valid records; their cells by column number, Arrow `string` of shape [rows], any
    bytes; their default keys; and the invalid records.
    """
    is_broken = records.faults and not records.faults.keys().isdisjoint(batch.tolist())
    needed = range(len(part.names)) if with_keys else columns
    read = None if is_broken or len(needed) > WIDE else _by_arrow(records, batch, part, needed)
    if read is not None:
        return batch, read, digests(list(read.values())) if with_keys else [], {}
    good, parsed, keys, faults = list[int](), [list[str]() for _ in columns], list[str](), Unread()
    readable = [record for record in batch.tolist() if record not in records.faults]
    rows = cells_of(map(records.line, readable), part.dialect)
    for record in batch.tolist():  # of each only the columns are kept
        cells = None if record in records.faults else next(rows)
        if cells is None:
            faults[record] = records.fault(record) + _remedy(records.line(record), part.dialect), None
        elif len(cells) == len(part.names):
            good.append(record)
            keys += [_digest(cells)] if with_keys else []
            for values, number in zip(parsed, columns, strict=True):
                values.append(cells[number])
        else:
            key = _digest(cells) if with_keys and len(cells) <= 10_000 else None  # a line of commas has none
            said = f"{len(cells)} cell{'s' * (len(cells) > 1)}, the header has {len(part.names)}"
            extra = cells[len(part.names) :] or part.names[len(cells) :]
            faults[record] = said + _remedy(records.line(record), part.dialect, extra), key
    typed = {number: strings(values) for number, values in zip(columns, parsed, strict=True)}
    return np.array(good, np.int64), typed, keys, faults


def _by_arrow(
    records: CsvRecords, batch: Rows, part: RecordRange, columns: Sequence[int]
) -> dict[int, pa.Array] | None:
    """Reads the columns; None if a record's length differs from the header's."""
    if not len(batch) or not columns:
        return None
    dialect, start, stop = part.dialect, int(records.starts[batch[0]]), int(records.stops[batch[-1]])
    is_escaped = dialect.escape is not None and records.data.find(dialect.escape.encode(), start, stop) >= 0
    if is_escaped or dialect.trim or records.data.startswith(BYTE_ORDER_MARK, start):  # Arrow would drop the mark
        return None
    if records.data.count(b"\r", start, stop) > records.data.count(b"\r\n", start, stop):  # Arrow ends lines there
        return None
    data = pa.py_buffer(records.data).slice(start, stop - start)
    every, types = list(map(str, range(len(part.names)))), {str(column): pa.string() for column in columns}
    separator, quote = dialect.separator, dialect.quote or False
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=every)
    parse = pyarrow.csv.ParseOptions(delimiter=separator, quote_char=quote, newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(check_utf8=False, include_columns=list(types), column_types=types)
    try:
        table = pyarrow.csv.read_csv(data, read, parse, convert)
    except pa.ArrowInvalid:
        return None
    is_whole = table.num_rows == len(batch)
    return {column: table[str(column)].combine_chunks() for column in columns} if is_whole else None


def _digest(cells: Sequence[str]) -> str:
    data = [cell.encode("utf-8", "surrogateescape") for cell in cells]
    return content_digest(b":".join(part for cell in data for part in (b"%d" % len(cell), cell))).decode()


def digests(columns: Sequence[pa.Array]) -> list[bytes]:
    """Returns rows' keys: BLAKE2b, 32 hex digits, of all cells, each after its length in bytes."""
    parts = [part for column in columns for part in (pc.binary_length(column).cast(pa.string()), column)]
    joined = pc.binary_join_element_wise(*(part.cast(pa.binary()) for part in parts), b":")
    return [content_digest(row) for row in joined.to_pylist()]
