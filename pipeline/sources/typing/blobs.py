"""Columns of blobs: ARRAY values become bytes as in `transforms.base.arrays`, OBJECTS values JSON without nulls.

An array may be nested or flat lists, JSON, NumPy's, or a `.npy` file's bytes. Fields of objects keep their order. A
list may stand for an object's fields; kinds refuse it otherwise.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.faults import Fault, Faults, Ints, Mask, add_faults
from recordmill.pipeline.sources.images import inline
from recordmill.pipeline.sources.typing.arrays import absent, encoded, flat_values, is_list, lengths, plain
from recordmill.transforms.base.arrays import MAGIC, ArrayError, ArrayLayout, head
from recordmill.transforms.base.columns import Column, ColumnType

OBJECTS = "a list of objects, or its JSON"
NULL = "the array holds a null"


def python_blobs(name: str, column: Column, values: Sequence[object], faults: Faults) -> pa.Array:
    """Makes a column of blobs from Python values: shape [rows], null for a value that is None, blank or invalid."""
    made = list[bytes | None]()
    for row, value in enumerate(values):
        try:
            made.append(_objects(value) if column.array is None else _array(column.array, value))
        except ArrayError as error:
            faults.setdefault(row, Fault("wrong_type", str(error), name))
            made.append(None)
    return _as_asked(column, pa.array(made, pa.binary()))


def _as_asked(column: Column, made: pa.Array) -> pa.Array:
    """Views JSON as strings, and where images are asked refers to arrays as `.npy` files, their channels last."""
    layout = column.array
    if layout is None:
        return made.view(pa.string())
    if column.type is not ColumnType.IMAGE:
        return made
    sides, rows = layout.inner, made.to_pylist()
    is_planar = len(sides) == 3 and sides[0] < sides[2]
    start = head(layout.numpy.str, (*sides[1:], sides[0]) if is_planar else sides)
    if is_planar:
        rows = [data and np.moveaxis(layout.decode(data), 0, -1).tobytes() for data in rows]
    return pa.array([data and inline(start + data) for data in rows], pa.binary())


def _objects(value: Any) -> bytes | None:
    """Returns canonical JSON. Raises: ArrayError: no list of objects."""
    given = value
    with suppress(AttributeError, TypeError, ValueError, RecursionError):  # no JSON
        if isinstance(value, bytes | bytearray | memoryview):
            value = bytes(value).decode("utf-8", "surrogateescape")
        if isinstance(value, str):
            value = json.loads(value) if value.strip() else None
        if value is None:
            return None
        objects = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(objects, list | tuple) and all(isinstance(each, Mapping | list | tuple) for each in objects):
            text = json.dumps(objects, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return encoded(text)
    found = "another list" if isinstance(given, list | tuple) else _type_name(type(given))
    raise ArrayError(f"wanted {OBJECTS}, found {found}")


def _plain(value: Any) -> Any:
    """Returns what JSON knows. Raises: AttributeError: it knows nothing like it."""
    return dict(value) if isinstance(value, Mapping) else value.tolist()


def _type_name(kind: type) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", dict: "an object"}
    return names.get(kind, f"a value of the type {kind.__name__}")  # like Arrow's types in messages


def _array(layout: ArrayLayout, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str | bytes | bytearray | memoryview):
        return _of_text(layout, value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value))
    if isinstance(value, list | tuple):
        return _of_lists(layout, value)
    if not hasattr(value, "__array__") or isinstance(value, np.generic):
        raise ArrayError(layout.wrong_type(_type_name(type(value))))
    return layout.encode(np.asarray(value))


def _of_text(layout: ArrayLayout, data: bytes) -> bytes | None:
    """Reads a `.npy` file's bytes, JSON, `str` of an array, or numbers with blanks or commas between; None if blank."""
    if data.startswith(MAGIC):
        return layout.from_npy(data)
    if not (text := data.strip()):
        return None
    if b"," not in text and text.count(b"[") == text.count(b"]"):  # as `str` of a NumPy array
        text = b",".join(text.replace(b"[", b" ").replace(b"]", b" ").split())
    if not text.startswith(b"["):
        text = b"[%b]" % text
    try:
        return _of_lists(layout, json.loads(text))
    except (ValueError, RecursionError):
        raise ArrayError(layout.wrong_type("a text or bytes, neither numbers, a JSON list nor a .npy file")) from None


def _of_lists(layout: ArrayLayout, lists: Sequence[Any]) -> bytes:
    types = set(map(type, lists))
    if not types.isdisjoint((list, tuple, np.ndarray)):
        types = set(map(type, flat_values(lists)))
    if type(None) in types:
        raise ArrayError(NULL)
    if types <= {int, float, Decimal}:
        wanted = np.int64 if layout.holds_integers else np.float64
        if layout.holds_integers and types - {int}:
            raise ArrayError(layout.wrong_type("the type float64"))
    elif all(issubclass(kind, np.number) for kind in types):
        wanted = None
    else:
        odd = next(kind for kind in sorted(types, key=str) if kind not in (int, float, Decimal))
        raise ArrayError(layout.wrong_type(_type_name(odd)))
    try:
        return layout.encode(np.array(lists, wanted))
    except OverflowError:  # an integer beyond 64 bits
        raise ArrayError(layout.out_of_range) from None
    except ValueError:  # lists of different lengths side by side
        raise ArrayError(layout.wrong_shape()) from None


def arrow_blobs(name: str, column: Column, values: pa.Array, faults: Faults) -> pa.Array:
    """Does the same with Arrow lists, strings or bytes."""
    layout = column.array
    if layout is None:
        return python_blobs(name, column, _python_objects(name, values, faults), faults)
    if pt.is_null(values.type):
        return pa.nulls(len(values), pa.binary())
    if not is_list(values.type):
        return python_blobs(name, column, values.cast(pa.binary()).to_pylist(), faults)
    flat, row_of, holds_null, is_misshapen = _unnested(layout, values)
    add_faults(faults, holds_null, Fault("wrong_type", NULL, name))
    try:
        numbers, bad = _numbers(layout, flat)
    except ArrayError as error:
        add_faults(faults, ~absent(values), Fault("wrong_type", str(error), name))
        return pa.nulls(len(values), pa.binary())
    add_faults(faults, is_misshapen, Fault("wrong_type", layout.wrong_shape(), name))
    holds_bad = np.zeros(len(values), bool)
    holds_bad[row_of[bad]] = True
    add_faults(faults, holds_bad, Fault("wrong_type", layout.out_of_range, name))
    good = ~(absent(values) | holds_null | is_misshapen | holds_bad)
    data = memoryview(numbers.tobytes())
    places = (np.searchsorted(row_of, np.arange(len(values) + 1)) * numbers.dtype.itemsize).tolist()
    rows = zip(pairwise(places), good.tolist(), strict=True)
    made = [data[start:end] if is_good else None for (start, end), is_good in rows]
    return _as_asked(column, pa.array(made, pa.binary()))


def _python_objects(name: str, values: pa.Array, faults: Faults) -> list[Any]:
    """Converts Arrow lists, strings or bytes to Python; None for a row that is not UTF-8, with a fault."""
    if pt.is_string(values.type) or pt.is_large_string(values.type) or pt.is_string_view(values.type):
        values = values.cast(pa.binary())
    with suppress(UnicodeDecodeError):
        return [_stated(each, values.type) for each in values.to_pylist(maps_as_pydicts="lossy")]
    rows = list[Any]()
    for row in range(len(values)):
        try:
            rows.append(_stated(values[row].as_py(maps_as_pydicts="lossy"), values.type))
        except UnicodeDecodeError:
            rows.append(None)
            faults.setdefault(row, Fault("invalid_utf8", "the objects hold bytes that are not UTF-8", name))
    return rows


def _stated(value: Any, kind: pa.DataType) -> Any:
    """Drops the nulls in structs: Parquet states one for each field that any row has. Maps' and lists' are values."""
    if value is None or not pt.is_nested(kind) or pt.is_union(kind):
        return value
    if pt.is_struct(kind):
        return {each.name: _stated(value[each.name], each.type) for each in kind if value[each.name] is not None}
    if pt.is_map(kind):
        return {name: _stated(each, kind.item_type) for name, each in value.items()}
    return [_stated(each, kind.value_type) for each in value]


def _unnested(layout: ArrayLayout, values: pa.Array) -> tuple[pa.Array, Ints, Mask, Mask]:
    """Unnests lists: innermost values, their rows, and the rows with nulls or other lengths than the layout's."""
    rank, depth, outer = len(layout.shape), 0, lengths(values)
    flat, row_of = values, np.arange(len(values))
    null, odd = np.zeros(len(values), bool), np.zeros(len(values), bool)
    while is_list(flat.type):
        counts, missing = lengths(flat), absent(flat)
        if depth:
            null[row_of[missing]] = True
        inner, row_of_inner = plain(pc.list_flatten(flat)), np.repeat(row_of, counts)
        side = layout.shape[depth] if depth < rank else -1
        if side is not None and (depth or rank == 1 or is_list(inner.type)):
            odd[row_of[(counts != side) & ~missing]] = True
        flat, row_of, depth = inner, row_of_inner, depth + 1
    null[row_of[absent(flat)]] = True
    if depth == 1 < rank:
        odd = np.array([not layout.fits((count,)) for count in outer.tolist()], bool) & ~absent(values)
    elif depth != rank:
        odd[row_of] = True
    return flat, row_of, null, odd


def _numbers(layout: ArrayLayout, values: pa.Array) -> tuple[npt.NDArray[Any], Mask]:
    """Converts Arrow numbers. Raises: ArrayError: not the layout's kind."""
    if pt.is_null(values.type):
        return np.zeros(len(values), layout.numpy), np.zeros(len(values), bool)
    if pt.is_decimal(values.type) and not layout.holds_integers:
        values = values.cast(pa.float64(), safe=False)
    if not (pt.is_integer(values.type) or pt.is_floating(values.type)):
        raise ArrayError(layout.wrong_type(f"the type {values.type}"))
    return layout.numbers(values.fill_null(0).to_numpy(zero_copy_only=False))
