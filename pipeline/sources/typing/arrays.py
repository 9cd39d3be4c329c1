"""Arrow arrays decoded to plain ones, lists built from flat values, and nested columns.

`objects.bbox` is the field `bbox` in the column `objects`, unless a column has that very name; a list of objects gives
lists of the field's values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.faults import Faults, Mask, Rows, add_inner

ARROW_TYPES: Mapping[ColumnType, pa.DataType] = {
    ColumnType.TEXT: pa.string(),
    ColumnType.CATEGORY: pa.string(),
    ColumnType.NUMBER: pa.float64(),
    ColumnType.INTEGER: pa.int64(),
    ColumnType.IMAGE: pa.binary(),
    ColumnType.ARRAY: pa.binary(),
}


def arrow_type(column: Column) -> pa.DataType:
    """Returns a column's Arrow type.

    >>> arrow_type(Column(ColumnType.NUMBER, many=True))
    ListType(list<item: double>)
    """
    return pa.list_(ARROW_TYPES[column.type]) if column.many else ARROW_TYPES[column.type]


def plain(values: pa.Array) -> pa.Array:
    """Decodes dictionaries, runs, views and extension types."""
    kind = values.type
    if isinstance(kind, pa.UuidType):
        return pa.array([value and str(value) for value in values.to_pylist()], pa.string())
    if isinstance(kind, pa.BaseExtensionType):
        return plain(values.storage)
    if pt.is_dictionary(kind):
        return plain(values.dictionary_decode())
    if pt.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(values))
    if pt.is_list_view(kind) or pt.is_large_list_view(kind):  # Arrow 25 casts them wrongly
        return pa.array(values.to_pylist(), pa.list_(kind.value_type))
    return values


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is a list of any width."""
    return pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)


def absent(values: pa.Array) -> Mask:
    """Marks the nulls, shape [rows]."""
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else np.zeros(len(values), bool)


def lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the length of each list, shape [rows]; 0 for null."""
    return pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def as_lists(counts: npt.NDArray[np.int64], flat: pa.Array, missing: Mask) -> pa.Array:
    """Makes Arrow lists, shape [rows], with `counts` values each; null where `missing`."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=pa.array(missing))


def lists_of_one(values: pa.Array) -> pa.Array:
    """Wraps each value in a list; null stays null."""
    missing = absent(values)
    return as_lists((~missing).astype(np.int64), values.drop_null(), missing)


def flat_values(values: Iterable[Any]) -> list[Any]:
    """Flattens nested lists, tuples and NumPy arrays, in order."""
    flat: list[Any] = []
    for value in values:
        if isinstance(value, list | tuple):
            flat += flat_values(value)
        elif isinstance(value, np.ndarray) and value.ndim:
            flat += value.ravel().tolist()
        else:
            flat.append(value)
    return flat


def strings(cells: Iterable[str | None]) -> pa.Array:
    """Makes Arrow `string`; text decoded with `surrogateescape` becomes its original bytes again."""
    return pa.array([None if cell is None else encoded(cell) for cell in cells], pa.binary()).view(pa.string())


def encoded(text: str) -> bytes:
    """Encodes a text as UTF-8, or as invalid UTF-8 if it holds a surrogate."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate from JSON, `"\ud800"`
        return text.encode("utf-8", "surrogatepass")


Group = tuple[Rows, Callable[[Faults], pa.Array]]
"""Rows, and a function that makes their values and adds their faults, numbered within the group."""


def in_groups(rows: int, kind: pa.DataType, groups: Sequence[Group], faults: Faults) -> pa.Array:
    """Combines groups of rows into one array of type `kind`, shape [rows]; null for rows in no group."""
    parts = []
    for where, make in groups:
        inner: Faults = {}
        parts.append(make(inner))
        add_inner(faults, inner, where)
    if len(groups) == 1 and len(groups[0][0]) == rows:
        return parts[0]
    order: npt.NDArray[np.int64] = np.full(rows, -1)
    starts = accumulate(map(len, parts), initial=0)
    for (where, _), values, start in zip(groups, parts, starts, strict=False):
        order[np.asarray(where, np.int64)] = np.arange(start, start + len(values))
    every = pa.concat_arrays([pa.array([], kind), *parts])
    return every.take(pa.array(order, mask=order < 0))


def lookup(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array | None:
    """Returns an Arrow column's values, shape [rows]; None if missing."""
    for outer, rest in cuts(name):
        if outer in table.schema.names:
            column = table.column(outer)
            values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            result = values if rest is None else _field(values, rest)
            if result is not None:
                return result
    return None


def _field(values: pa.Array, name: str) -> pa.Array | None:
    values = plain(values)
    if is_list(values.type):
        inner = _field(pc.list_flatten(values), name)
        return None if inner is None else as_lists(lengths(values), inner, absent(values))
    if pt.is_struct(values.type):
        for outer, rest in cuts(name):
            if values.type.get_field_index(outer) >= 0:
                result = pc.struct_field(values, [outer])
                return result if rest is None else _field(result, rest)
    return None


def python_field(row: Mapping[str, Any], name: str) -> Any:
    """Returns a column's value in a Python row; None if missing."""
    for outer, rest in cuts(name):
        if outer in row:
            return row[outer] if rest is None else _inside(row[outer], rest)
    return None


def _inside(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return python_field(value, name)
    return [_inside(item, name) for item in value] if isinstance(value, list | tuple) else None


def python_names(row: Mapping[Any, Any]) -> list[str]:
    """Lists a row's columns, each followed by its nested ones."""
    names = dict[str, None]()
    for key, value in row.items():
        names[str(key)] = None
        names |= dict.fromkeys(f"{key}.{name}" for inner in _rows_in(value, []) for name in python_names(inner))
    return list(names)


def _rows_in(value: Any, found: list[Mapping[Any, Any]]) -> list[Mapping[Any, Any]]:
    if isinstance(value, Mapping):
        found.append(value)
    for item in value if isinstance(value, list | tuple) else ():
        _rows_in(item, found)
    return found


def cuts(name: str) -> list[tuple[str, str | None]]:
    """Returns the whole name, then its cuts at each dot, the longest beginning first."""
    dots = [dot for dot in range(len(name) - 1, 0, -1) if name[dot] == "."]
    return [(name, None), *((name[:dot], name[dot + 1 :]) for dot in dots)]
