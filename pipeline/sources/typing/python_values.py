"""From Python values of any type to a column's type: of a user's own source, and of JSON inside other files.

Values that go together are made one Arrow array and read as `typing.arrow_values` reads Arrow. What is taken:
`str`, `bytes`, `bool`, `int`, `float`, `Decimal` (as a float), `date`, `datetime`, paths, `None`, NumPy's scalars and
arrays, whatever has `__array__` (a tensor), dictionaries of a picture's `bytes` and `path`, and lists and tuples of all
these, nested or not.

>>> typed_objects("n", Column(ColumnType.NUMBER), [1, np.float32(0.5), None], ("", ""), {}).to_pylist()
[1.0, 0.5, None]
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from os import PathLike, fsdecode
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.pipeline.sources.columns import INT64, Column
from recordmill.pipeline.sources.typing.arrow_values import WANTED, Pictures, as_lists, merge, typed_values
from recordmill.pipeline.sources.typing.checks import Fault, Faults

UTC = pa.timestamp("us", "UTC")
PICTURE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
ARROW: Mapping[Hashable, pa.DataType] = {
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
    UTC: UTC,
    PICTURE: PICTURE,
}
"""What values of one sort are in Arrow."""
Sorted = tuple[Hashable, Any]
"""What is made into one Arrow array with a value, and the value as that array wants it."""


class _RefusedError(Exception):
    """The value is of no type that is taken; the message names the type."""


def typed_objects(name: str, column: Column, values: Sequence[object], pictures: Pictures, faults: Faults) -> pa.Array:
    """Makes an array of the column's type of Python values: shape [rows], as `values.typed_values` does."""
    parts = []
    for sort, (rows, group) in _groups(name, column, values, faults).items():
        inner: Faults = {}
        parts.append((rows, _typed_group(name, column, sort, group, pictures, inner)))
        for place, fault in inner.items():
            faults.setdefault(rows[place], fault)
    if len(parts) == 1 and len(parts[0][0]) == len(values):
        return parts[0][1]
    return merge(len(values), parts, column.arrow)


def python_field(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column in a row, or of a field inside one (`objects.bbox`); None where it is not there.

    A key that itself holds the dots wins. Of a list of mappings comes the list of the field's values.
    """
    if name in row:
        return row[name]
    for at in range(len(name) - 1, 0, -1):
        if name[at] == "." and name[:at] in row:
            return _inside(row[name[:at]], name[at + 1 :])
    return None


def python_names(row: Mapping[Any, Any]) -> list[str]:
    """The columns that a row has, those inside others behind them."""
    found = dict[str, None]()
    for key, value in row.items():
        found[str(key)] = None
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, Mapping):
                found |= dict.fromkeys(f"{key}.{name}" for name in python_names(one))
    return list(found)


def _inside(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return python_field(value, name)
    return [_inside(one, name) for one in value] if isinstance(value, list | tuple) else None


def _groups(
    name: str, column: Column, values: Sequence[object], faults: Faults
) -> dict[Hashable, tuple[list[int], list[Any]]]:
    """The values by their sort, with the rows that they are of; those that are None are in no group."""
    sorts: dict[Hashable, tuple[list[int], list[Any]]] = {}
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            sort, known = _sorted(value)
        except _RefusedError as refused:
            faults.setdefault(row, Fault("wrong_type", f"wanted {WANTED[column.type]}, found {refused}", name))
            continue
        rows, group = sorts.setdefault(sort, ([], []))
        rows.append(row)
        group.append(known)
    return sorts


def _sorted(value: Any) -> Sorted:
    known = KNOWN.get(type(value))
    if known is None:
        known = next((known for kind, known in KNOWN.items() if isinstance(value, kind)), _array)
    return known(value)


def _text(value: str) -> Sorted:
    try:
        return str, value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # another surrogate: as bytes that are found to be no UTF-8
        return str, value.encode("utf-8", "surrogatepass")


def _whole(value: int) -> Sorted:
    whole = int(value)  # a range is searched from its start for anything but an `int` itself
    if whole in INT64:
        return int, whole
    raise _RefusedError("an integer that is beyond 64 bits")


def _decimal(value: Decimal) -> Sorted:
    return float, math.nan if value.is_snan() else float(value)


def _dictionary(value: Mapping[Any, Any]) -> Sorted:
    data, path = value.get("bytes"), value.get("path")
    if value.keys() <= {"bytes", "path"} and isinstance(data, bytes | None) and isinstance(path, str | None):
        return PICTURE, value
    raise _RefusedError("a dictionary")


def _array(value: Any) -> Sorted:
    if not hasattr(value, "__array__"):
        raise _RefusedError(f"a value of the type {type(value).__name__}")
    array = np.asarray(value)
    if array.dtype == object:
        return list, array.tolist()
    try:
        pa.from_numpy_dtype(array.dtype)
    except pa.ArrowException:
        raise _RefusedError(f"an array of the type {array.dtype}") from None
    return (array.dtype.newbyteorder("="), array.ndim > 0), array


KNOWN: Mapping[type, Callable[[Any], Sorted]] = {
    str: _text,
    list: lambda value: (list, value),
    np.generic: _array,
    bool: lambda value: (bool, value),
    int: _whole,
    float: lambda value: (float, value),
    bytes: lambda value: (bytes, value),
    bytearray: lambda value: (bytes, bytes(value)),
    memoryview: lambda value: (bytes, bytes(value)),
    tuple: lambda value: (list, value),
    Decimal: _decimal,
    datetime: lambda value: (UTC if value.tzinfo else datetime, value),
    date: lambda value: (date, value),
    PathLike: lambda value: _text(fsdecode(value)),
    Mapping: _dictionary,
}
"""What makes values of a type ready; a type stands before its bases."""


def _typed_group(
    name: str, column: Column, sort: Hashable, group: list[Any], pictures: Pictures, faults: Faults
) -> pa.Array:
    if sort is list:
        return _lists(name, column, group, pictures, faults)
    if isinstance(sort, tuple):
        return typed_values(name, column, _of_arrays(group, *sort), pictures, faults)
    values = pa.array(group, pa.binary()).view(pa.string()) if sort is str else pa.array(group, ARROW[sort])
    return typed_values(name, column, values, pictures, faults)


def _of_arrays(arrays: list[Any], dtype: Any, are_lists: bool) -> pa.Array:
    """Arrow values of NumPy arrays of one dtype: of each a value, or a list."""
    flat = pa.array(np.concatenate([array.ravel() for array in arrays]).astype(dtype, copy=False))
    if not are_lists:
        return flat
    return as_lists(np.array([array.size for array in arrays]), flat, np.zeros(len(arrays), bool))


def _lists(name: str, column: Column, lists: list[Any], pictures: Pictures, faults: Faults) -> pa.Array:
    if not column.many:
        return typed_values(name, column, pa.array([[]] * len(lists), pa.list_(pa.null())), pictures, faults)
    flat = list[Any]()
    ends = [0]
    for values in lists:
        _flatten(values, flat)
        ends.append(len(flat))
    lengths = np.diff(ends)
    inner: Faults = {}
    typed = _of_one_type(name, column, flat, pictures, inner)
    rows = np.repeat(np.arange(len(lists)), lengths) if inner else ()
    for place, fault in sorted(inner.items()):
        faults.setdefault(int(rows[place]), Fault(fault.reason, f"in the list: {fault.message}", name))
    return as_lists(lengths, typed, np.zeros(len(lists), bool))


def _of_one_type(name: str, column: Column, flat: list[Any], pictures: Pictures, faults: Faults) -> pa.Array:
    """The values of lists, which are mostly many numbers: of one type they are not looked at one by one."""
    one = replace(column, many=False)
    if set(map(type, flat)) <= {float, NoneType}:
        return typed_values(name, one, pa.array(flat, pa.float64()), pictures, faults)
    return typed_objects(name, one, flat, pictures, faults)


def _flatten(values: Any, flat: list[Any]) -> None:
    """Adds the values of nested lists, one after another."""
    for value in values:
        if isinstance(value, list | tuple):
            _flatten(value, flat)
        elif isinstance(value, np.ndarray) and value.ndim:
            flat += value.ravel().tolist()
        else:
            flat.append(value)
