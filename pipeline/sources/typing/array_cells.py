"""Values of columns of arrays: nested lists, JSON of these, NumPy's arrays, and the bytes of `.npy` files.

Each becomes its bytes, as `kinds.array` lays them out. Lists are nested as the array's shape is, or are one
list of all its values.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.faults import Fault, Faults, Mask, add_faults
from recordmill.pipeline.sources.typing.arrays import absent, flat_values, is_list, lengths, plain
from recordmill.transforms.contract.kinds.array import MAGIC, ArrayError, ArrayLayout

NULL = "the array holds a null"
PYTHON_NAMES = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", dict: "an object"}
"""The names of types in messages, as Arrow's types have them."""


def arrays_of_objects(name: str, layout: ArrayLayout, values: Sequence[object], faults: Faults) -> pa.Array:
    """Makes Arrow `binary` of Python values: shape [rows], null where a value is None, blank or no such array."""
    made: list[bytes | None] = []
    for row, value in enumerate(values):
        try:
            made.append(None if value is None else _encoded(layout, value))
        except ArrayError as error:
            faults.setdefault(row, Fault("wrong_type", str(error), name))
            made.append(None)
    return pa.array(made, pa.binary())


def _encoded(layout: ArrayLayout, value: Any) -> bytes | None:
    if isinstance(value, str):
        return _of_text(layout, value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes | bytearray | memoryview):
        return _of_text(layout, bytes(value))
    if isinstance(value, list | tuple):
        return _of_lists(layout, value)
    if not hasattr(value, "__array__") or isinstance(value, np.generic):
        raise ArrayError(layout.wrong_type(_type_name(type(value))))
    return layout.encode(np.asarray(value))


def _type_name(kind: type) -> str:
    return PYTHON_NAMES.get(kind, f"a value of the type {kind.__name__}")


def _of_text(layout: ArrayLayout, data: bytes) -> bytes | None:
    """Reads the bytes of a `.npy` file, or JSON; None where they are blank."""
    if not data.strip():
        return None
    if data.startswith(MAGIC):
        return layout.from_npy(data)
    if not data.lstrip().startswith(b"["):
        raise ArrayError(layout.wrong_type("a text or bytes that are no JSON list and no .npy file"))
    try:
        return _of_lists(layout, json.loads(data))
    except (ValueError, RecursionError):
        raise ArrayError(layout.wrong_type("a text that is no JSON list")) from None


def _of_lists(layout: ArrayLayout, lists: Sequence[Any]) -> bytes:
    """Encodes nested lists of Python's numbers, and of NumPy's arrays."""
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


def typed_arrays(name: str, layout: ArrayLayout, values: pa.Array, faults: Faults) -> pa.Array:
    """Makes Arrow `binary` of Arrow lists of numbers, of strings or of bytes: shape [rows].

    A value is null where it is absent or no such array; the faults are added.
    """
    if pt.is_null(values.type):
        return pa.nulls(len(values), pa.binary())
    if not is_list(values.type):
        return arrays_of_objects(name, layout, values.cast(pa.binary()).to_pylist(), faults)
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
    return _cut(numbers, np.searchsorted(row_of, np.arange(len(values) + 1)), good)


def _unnested(layout: ArrayLayout, values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64], Mask, Mask]:
    """Unnests lists, and compares their lengths with the layout's sides; one list may hold all values.

    Returns the innermost values one after another, the row of each, and the rows with nulls and those misshapen.
    """
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
    """Converts Arrow numbers. Raises: ArrayError: they are none of the layout's kind."""
    if pt.is_null(values.type):
        return np.zeros(len(values), layout.numpy), np.zeros(len(values), bool)
    if pt.is_decimal(values.type) and not layout.holds_integers:
        values = values.cast(pa.float64(), safe=False)
    if not (pt.is_integer(values.type) or pt.is_floating(values.type)):
        raise ArrayError(layout.wrong_type(f"the type {values.type}"))
    return layout.numbers(values.fill_null(0).to_numpy(zero_copy_only=False))


def _cut(numbers: npt.NDArray[Any], ends: npt.NDArray[np.int64], good: Mask) -> pa.Array:
    """Cuts numbers into the bytes of each row; of a row that is not good, none."""
    data = memoryview(numbers.tobytes())
    places = (ends * numbers.dtype.itemsize).tolist()
    pairs = zip(places, places[1:], good.tolist(), strict=False)
    return pa.array([data[start:end] if is_good else None for start, end, is_good in pairs], pa.binary())
