"""Parquet as a source: rows of row groups, with only the asked columns read.

    source: {format: parquet, path: "data/train-*.parquet"}

A chunk is a row group, or several small ones, read as record batches of as many rows as `parquet_pages` allows. Values
are converted by `pipeline.sources.typing.values`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from recordmill.pipeline.sources.batches import BLOCK_BYTES
from recordmill.pipeline.sources.faults import Faults, NoRowError, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.parquet_pages import BUFFER_BYTES, expected, rows_at_once, stated
from recordmill.pipeline.sources.options import Parquet
from recordmill.pipeline.sources.paths import check_names, join
from recordmill.pipeline.sources.source_reader import Chunk, Key, Plan, TableReader, TypedRows, at_once
from recordmill.pipeline.sources.typing.arrays import is_list, lookup, plain
from recordmill.pipeline.sources.typing.values import misfit, typed_values
from recordmill.transforms.base.columns import Column, Columns, ColumnType, required

ROWS_BYTES = 512 << 20  # 512 MiB: rows converted at once have about `BLOCK_BYTES`, or are one larger row
CODES = "ClassLabel"  # Hugging Face's name of codes with names
UNREAD = b"?"  # stands for an image's unread bytes


class ParquetReader(TableReader[Parquet]):
    """Reads files of Apache Parquet."""

    compressed: ClassVar[bool] = False

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Reads every file's footer and joins row groups to chunks of about `chunk_bytes`; `rows` is exact."""
        footers = at_once(lambda file: _footer(files, join(root, file.path), columns), inputs)
        chunks = [
            Chunk(0, 0, file.path, sum(sizes[part.start : part.stop]), part)
            for file, (_, rows, sizes) in zip(inputs, footers, strict=True)
            for part in _parts(rows, sizes, chunk_bytes)
        ]
        if not chunks:
            raise NoRowError(f"{self.source.path}: no file holds a row")
        names = dict.fromkeys(name for schema, _, _ in footers for name in _names(schema))
        return Plan(chunks, sum(sum(rows) for _, rows, _ in footers), names=list(names), is_exact=True)

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        base = self.image_base(files, chunk)
        if key is None:  # the key needs images' bytes
            columns = {name: replace(column, presence=False) for name, column in columns.items()}
        for rows, values in _batches(files, join(self.root(files), chunk.file), chunk.work, columns):
            faults = Faults()
            typed = {name: typed_values(name, columns[name], values[name], base, faults) for name in columns}
            yield TypedRows(typed, rows, faults)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turns Arrow's errors for a damaged file, and read failures, into one clear line."""
    try:
        yield
    except MemoryError:  # Arrow's is also an ArrowException
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = (str(error).splitlines() or ["?"])[0].rstrip(".")
        raise SourceError(f"{what}: {reason}") from None


def _footer(files: Files, path: str, columns: Columns) -> tuple[pa.Schema, list[int], list[int]]:
    """Reads a file's columns, and each row group's rows and bytes of asked columns. Raises: SourceError: misfits."""
    with files.open(path) as opened, _reading(f"cannot read {path} as Parquet"), pq.ParquetFile(opened) as file:
        schema, groups = file.schema_arrow, [file.metadata.row_group(group) for group in range(file.num_row_groups)]
        check_names(path, required(columns), list(_names(schema)))
        twice = {name for name in schema.names if len(schema.get_all_field_indices(name)) > 1}
        for name, column in columns.items():
            for other in (other for other in twice if f"{name}.".startswith(f"{other}.")):
                raise SourceError(f"{path} has two columns {other!r}; rename one")
            empty = lookup(schema.empty_table(), name)
            if empty is not None and (wrong := misfit(column, empty.type)):
                raise SourceError(f"{path}: column {name!r}: {wrong}")
        leaves = _leaves(schema, columns)
        sizes = [sum(group.column(leaf).total_uncompressed_size for leaf in leaves) for group in groups]
    return schema, [group.num_rows for group in groups], sizes


def _parts(rows: Sequence[int], sizes: Sequence[int], chunk_bytes: int) -> Iterator[range]:
    """Yields consecutive row groups of about `chunk_bytes`, skipping empty ones."""
    start, size = 0, 0
    for end, more in enumerate(sizes, 1):
        size += more
        if size >= chunk_bytes or end == len(sizes):
            if sum(rows[start:end]):
                yield range(start, end)
            start, size = end, 0


def _batches(files: Files, path: str, groups: range, columns: Columns) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """Reads the asked columns in Arrow's types, about `BLOCK_BYTES` of rows at a time, at least one row."""
    which = f"groups {groups.start} to {groups[-1]}" if len(groups) > 1 else f"group {groups.start}"
    with (
        files.open(path) as opened,
        _reading(f"{path}: the row {which} cannot be read"),
        pq.ParquetFile(opened, pre_buffer=False, buffer_size=BUFFER_BYTES, page_checksum_verification=True) as file,
    ):
        numbers = list(groups)
        present = [name for name, column in columns.items() if column.presence]
        unread = {name for name in present if _is_there(file, numbers, name, columns[name])}
        read = [name for name in columns if name not in unread] or columns
        leaves = _leaves(file.schema_arrow, read)
        asked = [file.metadata.schema.column(leaf).path for leaf in leaves]
        if "://" in path:  # page headers lie all over the file: reading them takes 2.5 to 4 times its bytes
            contents = [[stated(file, group, leaf) for leaf in leaves] for group in groups]
        else:
            with files.open(path) as headers:
                contents = [[expected(headers, file, group, leaf) for leaf in leaves] for group in groups]
        at_once = min(map(rows_at_once, contents))
        labels = class_labels(file.schema_arrow).keys() & {*read}
        missing = sum(file.metadata.row_group(number).num_rows for number in numbers)
        for batch in file.iter_batches(at_once, numbers, asked, use_threads=False):
            missing -= len(batch)
            stored = {name: lookup(batch, name) for name in read}
            values = {name: pa.nulls(len(batch)) if array is None else plain(array) for name, array in stored.items()}
            for name in (name for name in labels if columns[name].type is ColumnType.CATEGORY):
                codes = values[name]
                if pt.is_signed_integer(codes.type):
                    values[name] = pc.if_else(pc.equal(codes, -1), pa.scalar(None, codes.type), codes)
            values |= {name: pa.repeat(pa.scalar(UNREAD), len(batch)) for name in unread - stored.keys()}
            size = sum(array.nbytes for array in values.values())
            step = max(1, len(batch) * BLOCK_BYTES // max(size, BLOCK_BYTES))
            for start in range(0, len(batch), step):
                piece = {name: array.slice(start, step) for name, array in values.items()}
                _check_size(piece, columns)
                yield min(step, len(batch) - start), piece
        if missing:
            raise OSError(f"{abs(missing)} rows too {'few' if missing > 0 else 'many'}")


def class_labels(schema: pa.Schema) -> dict[str, dict[int, str]]:
    """Returns codes' names by column, from `ClassLabel`, or lists of it, in Hugging Face's schema; -1 is missing."""
    with suppress(LookupError, TypeError, ValueError, AttributeError, RecursionError):  # no schema, or another tool's
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return {name: dict(enumerate(map(str, names))) for name, names in _named(features)}
    return {}


def _named(features: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yields the names of codes inside features: lists and structs have their columns' names."""
    for name, one in features.items():
        each = one
        while isinstance(each, list) or isinstance(each.get("feature"), dict | list):
            each = each[0] if isinstance(each, list) else each["feature"]
        if each.get("_type") == CODES:
            yield f"{path}{name}", each["names"]
        else:
            inner = {key: value for key, value in each.items() if isinstance(value, dict | list)}
            yield from _named(inner, f"{path}{name}.")


def _check_size(piece: Mapping[str, pa.Array], columns: Columns) -> None:
    """Refuses rows too large to convert; images have their own bounds (`max_bytes`, and a row's)."""
    size = sum(array.nbytes for name, array in piece.items() if columns[name].type is not ColumnType.IMAGE)
    if size > ROWS_BYTES:
        rows = len(next(iter(piece.values())))
        raise OSError(f"{rows} of its rows hold {size:,} bytes; the limit is {ROWS_BYTES:,}")


def _is_there(file: pq.ParquetFile, groups: Sequence[int], name: str, column: Column) -> bool:
    """Whether an image column holds bytes, and the footer proves them complete, or a row may lack them."""
    inside = _leaves(file.schema_arrow, [f"{name}.bytes"])
    for leaf in inside or _leaves(file.schema_arrow, [name]):
        stored = file.metadata.schema.column(leaf)
        statistics = [file.metadata.row_group(group).column(leaf).statistics for group in groups]
        is_full = all(found is not None and found.has_null_count and not found.null_count for found in statistics)
        return (
            stored.physical_type == "BYTE_ARRAY"
            and stored.logical_type.type == "NONE"
            and not stored.max_repetition_level
            and (is_full or (column.optional and not inside))
        )
    return False


def _leaves(schema: pa.Schema, columns: Iterable[str]) -> list[int]:
    """Returns the numbers of asked columns' leaves, found in such a schema of bytes of the lengths 1, 2, …."""
    numbers = count(1)
    numbered = pa.schema([pa.field(field.name, _numbered(field.type, numbers)) for field in schema]).empty_table()
    arrays = [lookup(numbered, name) for name in columns]
    return sorted({number - 1 for array in arrays if array is not None for number in _numbers(array.type)})


def _numbered(kind: pa.DataType, numbers: Iterator[int]) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _numbered(kind.storage_type, numbers)
    if is_list(kind):
        return pa.list_(_numbered(kind.value_type, numbers))
    if pt.is_struct(kind):
        return pa.struct([pa.field(field.name, _numbered(field.type, numbers)) for field in kind.fields])
    if pt.is_map(kind):
        return pa.map_(_numbered(kind.key_type, numbers), _numbered(kind.item_type, numbers))
    return pa.binary(next(numbers))


def _numbers(kind: pa.DataType) -> Iterator[int]:
    if pt.is_fixed_size_binary(kind):
        yield kind.byte_width
    for index in range(kind.num_fields):
        yield from _numbers(kind.field(index).type)


def _names(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Lists the columns, each followed by its nested ones."""
    for field in fields:
        yield field.name
        kind = field.type
        while is_list(kind):
            kind = kind.value_type
        if pt.is_struct(kind):
            yield from (f"{field.name}.{name}" for name in _names(kind.fields))
