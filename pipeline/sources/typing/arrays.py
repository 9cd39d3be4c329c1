"""Arrow arrays decoded to plain ones, lists built from flat values, and nested columns.

`objects.bbox` is the field `bbox` in the column `objects`, unless a column has that very name; a list of objects gives
lists of the field's values.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.faults import Faults, Ints, Mask, Rows, add_inner
from recordmill.transforms.base.columns import ARROW_NAMES, Column

ARROW_TYPES = {kind: pa.type_for_alias(name) for kind, name in ARROW_NAMES.items()}
Group = tuple[Rows, Callable[[Faults], pa.Array]]
"""Rows, and a function that makes their values and adds their faults, numbered within the group."""


def arrow_type(column: Column) -> pa.DataType:
    """Returns a column's Arrow type.

    >>> from recordmill.transforms.base.columns import ColumnType
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


def lengths(lists: pa.Array) -> Ints:
    """Returns the length of each list, shape [rows]; 0 for null."""
    return pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def as_lists(counts: Ints, flat: pa.Array, missing: Mask) -> pa.Array:
    """Makes Arrow lists, shape [rows], with `counts` values each; null where `missing`."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=pa.array(missing))


def without(table: pa.Table, rows: Collection[int]) -> pa.Table:
    """Leaves rows out."""
    if not rows:
        return table
    kept = np.ones(table.num_rows, bool)
    kept[list(rows)] = False
    return table.filter(pa.array(kept))


def lists_of_one(values: pa.Array) -> pa.Array:
    """Wraps each value in a list; null stays null."""
    missing = absent(values)
    return as_lists((~missing).astype(np.int64), values.drop_null(), missing)


def interleaved(lists: Sequence[pa.Array]) -> pa.Array:
    """Joins lists value by value, `[1, 2]` and `[8, 9]` to `[1, 8, 2, 9]`; null as the first, empty if unequal."""
    counts = np.stack([lengths(each) for each in lists])
    is_even = (counts == counts[0]).all(0)
    flat = [pc.list_flatten(each.filter(pa.array(is_even))).to_numpy(zero_copy_only=False) for each in lists]
    return as_lists(np.where(is_even, len(lists) * counts[0], 0), pa.array(np.stack(flat, 1).ravel()), absent(lists[0]))


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


def in_groups(rows: int, kind: pa.DataType, groups: Sequence[Group], faults: Faults) -> pa.Array:
    """Combines groups of rows into one array of type `kind`, shape [rows]; null for rows in no group."""
    parts = []
    for where, make in groups:
        inner: Faults = {}
        parts.append(make(inner))
        add_inner(faults, inner, where)
    if len(groups) == 1 and len(groups[0][0]) == rows:
        return parts[0]
    order: Ints = np.full(rows, -1)
    starts = accumulate(map(len, parts), initial=0)
    for (where, _), values, start in zip(groups, parts, starts, strict=False):
        order[np.asarray(where, np.int64)] = np.arange(start, start + len(values))
    return pa.concat_arrays([pa.array([], kind), *parts]).take(pa.array(order, mask=order < 0))


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


def python_field(row: Any, name: str) -> Any:
    """Returns a column's value in a Python row, a list of those in a list of rows; None if missing."""
    if isinstance(row, list | tuple):
        return [python_field(each, name) for each in row]
    for outer, rest in cuts(name) if isinstance(row, Mapping) else ():
        if outer in row:
            return row[outer] if rest is None else python_field(row[outer], rest)
    return None


def python_names(row: Any) -> list[str]:
    """Lists a row's columns, each followed by its nested ones; those of all rows in a list."""
    names = dict[str, None]()
    for each in row if isinstance(row, list | tuple) else ():
        names |= dict.fromkeys(python_names(each))
    for key, value in row.items() if isinstance(row, Mapping) else ():
        names |= dict.fromkeys([str(key), *(f"{key}.{name}" for name in python_names(value))])
    return list(names)


def cuts(name: str) -> list[tuple[str, str | None]]:
    """Returns the whole name, then its cuts at each dot, the longest beginning first."""
    dots = [dot for dot in range(len(name) - 1, 0, -1) if name[dot] == "."]
    return [(name, None), *((name[:dot], name[dot + 1 :]) for dot in dots)]
