"""Arrow arrays of any encoding as plain ones, lists made of flat values, and columns inside others.

`objects.bbox` is the field `bbox` of what the column `objects` holds; a column whose own name holds the dots comes
first. Of a list of objects come lists of the field's values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.columns import ARROW_NAMES, Column
from recordmill.pipeline.sources.faults import Faults, Mask, Rows, add_inner

ARROW_TYPES = {kind: pa.type_for_alias(name) for kind, name in ARROW_NAMES.items()}


def arrow_type(column: Column) -> pa.DataType:
    """Returns the Arrow type that a column is delivered in.

    >>> from recordmill.pipeline.sources.columns import ColumnType
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
    """Whether it is a type of lists, of any width."""
    return pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)


def absent(values: pa.Array) -> Mask:
    """Marks the nulls, shape [rows]."""
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else np.zeros(len(values), bool)


def lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the number of values in each list, shape [rows]; 0 of a null."""
    return pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def as_lists(counts: npt.NDArray[np.int64], flat: pa.Array, missing: Mask) -> pa.Array:
    """Makes Arrow lists, shape [rows], of so many values each; null where `missing`."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=pa.array(missing))


def lists_of_one(values: pa.Array) -> pa.Array:
    """Puts each value into a list of its own; a null is no list."""
    missing = absent(values)
    return as_lists((~missing).astype(np.int64), values.drop_null(), missing)


def flat_values(values: Iterable[Any]) -> list[Any]:
    """Returns the values of nested lists, tuples and NumPy arrays, one after another."""
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
    """Makes Arrow `string` of Python's; what was decoded with `surrogateescape` comes out as the bytes that it was."""
    return pa.array([None if cell is None else encoded(cell) for cell in cells], pa.binary()).view(pa.string())


def encoded(text: str) -> bytes:
    """Encodes a text as UTF-8, or as bytes that are not UTF-8 where it holds a surrogate."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that JSON gives, `"\ud800"`
        return text.encode("utf-8", "surrogatepass")


Group = tuple[Rows, Callable[[Faults], pa.Array]]
"""Some rows, and a function that makes their values and adds their faults, counted inside the group."""


def in_groups(rows: int, kind: pa.DataType, groups: Sequence[Group], faults: Faults) -> pa.Array:
    """Makes one array of groups of rows, shape [rows]: of the type `kind`, null where no group has the row."""
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
    """Returns the values of a column of Arrow's, shape [rows]; None where there is no such column."""
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
    """Returns the value of a column in a row of Python's; None where there is no such column."""
    for outer, rest in cuts(name):
        if outer in row:
            return row[outer] if rest is None else _inside(row[outer], rest)
    return None


def _inside(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return python_field(value, name)
    return [_inside(item, name) for item in value] if isinstance(value, list | tuple) else None


def python_names(row: Mapping[Any, Any]) -> list[str]:
    """Lists the columns of a row, those inside others behind them."""
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
    """Returns the name alone, then cut at each of its dots, the longest beginning first."""
    dots = [dot for dot in range(len(name) - 1, 0, -1) if name[dot] == "."]
    return [(name, None), *((name[:dot], name[dot + 1 :]) for dot in dots)]
