"""Converts Python values to a column's type, for users' own sources and for JSON that Python reads.

Groups values of one sort into an Arrow array, which `typing.values` converts. Takes `str`, `bytes`, `bool`, `int`,
`float`, `Decimal`, `date`, `datetime`, paths, `None`, NumPy's scalars and arrays, tensors (`__array__`), dictionaries
of an image's `bytes` and `path`, and lists and tuples of these, nested or not.

>>> typed_objects("n", Column(ColumnType.NUMBER), [1, np.float32(0.5), None], ("", ""), {}).to_pylist()
[1.0, 0.5, None]
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from os import PathLike, fsdecode
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.pipeline.sources.faults import Fault, Faults, add_inner
from recordmill.pipeline.sources.typing import arrays
from recordmill.pipeline.sources.typing.blobs import python_blobs
from recordmill.pipeline.sources.typing.checks import IN_LIST
from recordmill.pipeline.sources.typing.values import OBJECT, typed_values, wrong_type
from recordmill.transforms.base.columns import INT64, Column, ColumnType, ImageBase

BIG, BEYOND = pa.decimal256(76, 0), 10**76  # the type of integers beyond 64 bits, and the least integer beyond it
STRUCT = pa.struct({"bytes": pa.binary(), "path": pa.string()})
Sorted = tuple[Hashable, Any]
"""A value's sort (an Arrow type, `list`, or a NumPy dtype and whether it is an array; a string names a refused type),
and the value for Arrow."""


def typed_objects(name: str, column: Column, values: Sequence[object], base: ImageBase, faults: Faults) -> pa.Array:
    """Converts Python values to an array of the column's type: shape [rows], as `values.typed_values` does."""
    if column.is_blob:
        return python_blobs(name, column, values, faults)
    sorts: dict[Hashable, tuple[list[int], list[Any]]] = {}
    for row, value in enumerate(values):
        if value is None:
            continue
        sort, ready = _sorted(value)
        if isinstance(sort, str):
            faults.setdefault(row, Fault("wrong_type", wrong_type(column.type, sort), name))
        else:
            rows, group = sorts.setdefault(sort, ([], []))
            rows.append(row)
            group.append(ready)
    groups = [(rows, partial(_typed, name, column, sort, group, base)) for sort, (rows, group) in sorts.items()]
    return arrays.in_groups(len(values), arrays.arrow_type(column), groups, faults)


def _typed(name: str, column: Column, sort: Hashable, group: list[Any], base: ImageBase, faults: Faults) -> pa.Array:
    if sort is list and column.many:
        flat, ends = list[Any](), [0]
        for each in group:
            flat += arrays.flat_values(each)
            ends.append(len(flat))
        counts, inner, single = np.diff(ends), Faults(), replace(column, many=False)
        if set(map(type, flat)) <= {float, NoneType}:  # the usual list of many numbers: skips sorting each value
            typed = typed_values(name, single, pa.array(flat, pa.float64()), base, inner)
        else:
            typed = typed_objects(name, single, flat, base, inner)
        add_inner(faults, inner, np.repeat(np.arange(len(group)), counts) if inner else (), IN_LIST)
        return arrays.as_lists(counts, typed, np.zeros(len(group), bool))
    if sort is list:
        values = pa.array([[]] * len(group), pa.list_(pa.null()))
    elif sort == BIG and column.type is ColumnType.NUMBER:
        values = pa.array(map(float, group), pa.float64())  # rounds once, unlike Arrow's conversion
    elif isinstance(sort, tuple):
        dtype, are_lists = sort
        values = pa.array(np.concatenate([array.ravel() for array in group]).astype(dtype, copy=False))
        if are_lists:
            values = arrays.as_lists(np.array([array.size for array in group]), values, np.zeros(len(group), bool))
    else:
        values = pa.array(group, pa.binary()).view(sort) if sort == pa.string() else pa.array(group, sort)
    return typed_values(name, column, values, base, faults)


def _sorted(value: Any) -> Sorted:
    known = KNOWN.get(type(value))
    if known is None:
        known = next((known for kind, known in KNOWN.items() if isinstance(value, kind)), _array)
    return known(value)


def _whole(value: int) -> Sorted:
    whole = int(value)  # `in` a range is slow for subclasses of `int`
    if whole in INT64:
        return pa.int64(), whole
    return (BIG if abs(whole) < BEYOND else "an integer of more than 76 digits"), whole


def _decimal(value: Decimal) -> Sorted:
    """Treats a decimal without a fraction as a whole number, as Arrow does."""
    if value.is_finite() and value.as_tuple().exponent == 0:
        return (BIG, value) if value.is_signed() and not value else _whole(int(value))  # the float -0.0 keeps its sign
    return pa.float64(), math.nan if value.is_snan() else float(value)


def _dictionary(value: Mapping[Any, Any]) -> Sorted:
    data, path = value.get("bytes"), value.get("path")
    is_image = value.keys() <= {"bytes", "path"} and isinstance(data, bytes | None) and isinstance(path, str | None)
    return (STRUCT if is_image else OBJECT), value


def _array(value: Any) -> Sorted:
    if not hasattr(value, "__array__"):
        return f"a value of the type {type(value).__name__}", value
    array = np.asarray(value)
    if array.dtype == object:
        return _sorted(array.tolist())
    try:
        pa.from_numpy_dtype(array.dtype)
    except pa.ArrowException:
        return f"an array of the type {array.dtype}", value
    return (array.dtype.newbyteorder("="), array.ndim > 0), array


KNOWN: Mapping[type, Callable[[Any], Sorted]] = {
    str: lambda value: (pa.string(), arrays.encoded(value)),
    list: lambda value: (list, value),
    np.generic: _array,
    bool: lambda value: (pa.bool_(), value),
    int: _whole,
    float: lambda value: (pa.float64(), value),
    bytes: lambda value: (pa.binary(), value),
    bytearray: lambda value: (pa.binary(), bytes(value)),
    memoryview: lambda value: (pa.binary(), bytes(value)),
    tuple: lambda value: (list, value),
    Decimal: _decimal,
    datetime: lambda value: (pa.timestamp("us", "UTC" if value.tzinfo else None), value if value == value else None),
    date: lambda value: (pa.date32(), value),
    PathLike: lambda value: (pa.string(), arrays.encoded(fsdecode(value))),
    Mapping: _dictionary,
}  # preparing functions by type; a type comes before its bases
DIGITS = 80  # beyond every type; Python refuses to convert more than 4,300


class Repeating(dict[str, Any]):
    """A JSON object with repeated keys; each keeps its last value."""

    twice: frozenset[str]

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Makes a plain dictionary if no key repeats."""
        row = dict(pairs)
        if len(row) == len(pairs):
            return row
        repeating, counts = cls(row), Counter(key for key, _ in pairs)
        repeating.twice = frozenset(key for key, count in counts.items() if count > 1)
        return repeating


def comes_twice(value: Any, name: str) -> bool:
    """Whether a key on the path to a column, as in `arrays.python_field`, repeats in its object."""
    if isinstance(value, list):
        return any(comes_twice(item, name) for item in value)
    for outer, rest in arrays.cuts(name) if isinstance(value, dict) else ():
        if outer in value:
            if isinstance(value, Repeating) and outer in value.twice:
                return True
            return rest is not None and comes_twice(value[outer], rest)
    return False


def load_json(
    data: bytes, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None, *, signed_zero: bool = False
) -> Any:
    """Parses JSON: invalid UTF-8 becomes surrogates, and a long integer its first `DIGITS` characters.

    With `signed_zero`, `-0` becomes `Decimal("-0")`, the number -0.0. Raises: json.JSONDecodeError, RecursionError.
    """
    text = data.decode("utf-8", "surrogateescape")
    parse_int = _signed if signed_zero and re.search(rb"-0(?![.\deE])", data) else None
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook, parse_int=parse_int)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer with more digits than Python converts
        parse_int = parse_int or (lambda digits: int(digits[:DIGITS]))
        return json.loads(text, object_pairs_hook=object_pairs_hook, parse_int=parse_int)


def _signed(digits: str) -> int | Decimal:
    return Decimal(digits) if digits == "-0" else int(digits[:DIGITS])


def json_object(data: bytes, what: str) -> dict[str, Any] | Fault:
    """Parses one JSON object, or returns its fault, with a message that begins with `what`."""
    try:
        row = load_json(data)
    except json.JSONDecodeError as error:
        return Fault("malformed_row", f"{what} is not a JSON object: {error.msg}, character {error.pos + 1}")
    except RecursionError:
        return Fault("malformed_row", f"{what} is nested too deeply for a JSON object")
    return row if isinstance(row, dict) else Fault("malformed_row", f"{what} is not a JSON object")
