"""Arrow arrays decoded to plain ones, lists built from flat values, nested columns, ARRAY and OBJECTS values.

ARRAY values (nested or flat lists, JSON, NumPy, `.npy`) become bytes as in `kinds.array`. `objects.bbox` is
the field `bbox` in the column `objects`, unless a column has that very name; a list of objects gives lists of the
field's values.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.columns import ARROW_NAMES, Column
from recordmill.pipeline.sources.faults import Fault, Faults, Ints, Mask, Rows, add_faults, add_inner
from recordmill.transforms.contract.kinds.array import MAGIC, ArrayError, ArrayLayout

ARROW_TYPES = {kind: pa.type_for_alias(name) for kind, name in ARROW_NAMES.items()}
Group = tuple[Rows, Callable[[Faults], pa.Array]]
"""Rows, and a function that makes their values and adds their faults, numbered within the group."""
OBJECTS = "a list of objects, or its JSON"
NULL = "the array holds a null"
PYTHON_NAMES = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", dict: "an object"}
"""Names of types in messages, like those of Arrow's types."""


def arrow_type(column: Column) -> pa.DataType:
    """Returns a column's Arrow type.

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
    """Joins lists of numbers value by value: `[1, 2]` and `[8, 9]` to `[1, 8, 2, 9]`, shape [rows].

    Null where the first is null; empty where lengths differ.
    """
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


def json_of_objects(name: str, values: Sequence[object], faults: Faults) -> pa.Array:
    """Makes Arrow `string` from lists of objects, or their JSON: shape [rows], null if None, blank or invalid.

    Fields keep their order. A list may stand for an object's fields; kinds refuse it otherwise.
    """
    made: list[str | None] = []
    for row, value in enumerate(values):
        try:
            made.append(_json(value))
        except (AttributeError, TypeError, ValueError, RecursionError):
            found = "another list" if isinstance(value, list | tuple) else _type_name(type(value))
            faults.setdefault(row, Fault("wrong_type", f"wanted {OBJECTS}, found {found}", name))
            made.append(None)
    return strings(made)


def python_objects(name: str, values: pa.Array, faults: Faults) -> list[Any]:
    """Converts Arrow lists, strings or bytes to Python; None for a row that is not UTF-8, with a fault."""
    if pt.is_string(values.type) or pt.is_large_string(values.type) or pt.is_string_view(values.type):
        values = values.cast(pa.binary())
    try:
        return [_stated(each, values.type) for each in values.to_pylist(maps_as_pydicts="lossy")]
    except UnicodeDecodeError:
        pass
    rows = list[Any]()
    for row in range(len(values)):
        try:
            rows.append(_stated(values[row].as_py(maps_as_pydicts="lossy"), values.type))
        except UnicodeDecodeError:
            rows.append(None)
            faults.setdefault(row, Fault("invalid_utf8", "the objects hold bytes that are not UTF-8", name))
    return rows


def _json(value: object) -> str | None:
    """Returns canonical JSON. Raises: TypeError, ValueError, RecursionError: no list of objects."""
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        value = json.loads(value) if value.strip() else None
    if value is None:
        return None
    objects = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(objects, list | tuple) or not all(isinstance(each, Mapping | list | tuple) for each in objects):
        raise TypeError
    return json.dumps(objects, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Returns what JSON knows. Raises: AttributeError: it knows nothing like it."""
    return dict(value) if isinstance(value, Mapping) else value.tolist()


def _stated(value: Any, kind: pa.DataType) -> Any:
    """Drops the nulls in structs: Parquet states one for each field that any row has. Maps' and lists' are values."""
    if value is None or not pt.is_nested(kind) or pt.is_union(kind):
        return value
    if pt.is_struct(kind):
        return {each.name: _stated(value[each.name], each.type) for each in kind if value[each.name] is not None}
    if pt.is_map(kind):
        return {name: _stated(each, kind.item_type) for name, each in value.items()}
    return [_stated(each, kind.value_type) for each in value]


def arrays_of_objects(name: str, layout: ArrayLayout, values: Sequence[object], faults: Faults) -> pa.Array:
    """Makes Arrow `binary` from Python values: shape [rows], null for a value that is None, blank or invalid."""
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
        found = "a text or bytes, neither numbers, a JSON list nor a .npy file"
        raise ArrayError(layout.wrong_type(found)) from None


def _of_lists(layout: ArrayLayout, lists: Sequence[Any]) -> bytes:
    """Encodes nested lists of Python numbers or NumPy arrays."""
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


def typed_arrays(name: str, layout: ArrayLayout, values: pa.Array, faults: Faults) -> pa.Array:
    """Makes Arrow `binary` from Arrow lists, strings or bytes: shape [rows], null if missing or faulty; adds faults."""
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
    data = memoryview(numbers.tobytes())
    places = (np.searchsorted(row_of, np.arange(len(values) + 1)) * numbers.dtype.itemsize).tolist()
    rows = zip(pairwise(places), good.tolist(), strict=True)
    return pa.array([data[start:end] if is_good else None for (start, end), is_good in rows], pa.binary())


def _unnested(layout: ArrayLayout, values: pa.Array) -> tuple[pa.Array, Ints, Mask, Mask]:
    """Unnests lists, and compares their lengths with the layout's sides; one flat list may hold all values.

    Returns the innermost values, the row of each, and the rows with nulls and those misshapen.
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
    """Converts Arrow numbers. Raises: ArrayError: not the layout's kind."""
    if pt.is_null(values.type):
        return np.zeros(len(values), layout.numpy), np.zeros(len(values), bool)
    if pt.is_decimal(values.type) and not layout.holds_integers:
        values = values.cast(pa.float64(), safe=False)
    if not (pt.is_integer(values.type) or pt.is_floating(values.type)):
        raise ArrayError(layout.wrong_type(f"the type {values.type}"))
    return layout.numbers(values.fill_null(0).to_numpy(zero_copy_only=False))
