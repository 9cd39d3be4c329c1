"""From Arrow values of any type to a column's type: the one place where it says which type a column takes.

| column | Arrow types that it takes |
|---|---|
| TEXT | strings; bytes, which are taken for UTF-8 |
| CATEGORY | the same, whole numbers (`7`), booleans (`true`), dates and times in ISO 8601 (`2026-11-20T12:00:00Z`) |
| NUMBER | integers, floats and decimals of any width |
| INTEGER | integers and decimals without a fraction, within 64 bits |
| IMAGE | strings (paths and `data:` URLs), bytes, structs of `bytes` and `path`, whose bytes come first |

Encodings (dictionaries, runs, views) do not matter. A list is read in one column with `many` alone; nested lists are
flattened to one list a row, one value is a list of one, and one string is split by the column's separator.

>>> faults = {}
>>> typed_values("n", Column(ColumnType.INTEGER), pa.array([1, 1 << 63], pa.uint64()), ("", ""), faults).to_pylist()
[1, None]
>>> faults[1].message
'wanted a 64-bit integer, found one that is beyond 64 bits'
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.columns import ARROW_TYPES, INT64, Column, ColumnType
from recordmill.pipeline.sources.typing.checks import ABSENT, Fault, Faults, Mask, add_faults
from recordmill.pipeline.sources.typing.image_cells import inlined, references
from recordmill.pipeline.sources.typing.string_cells import typed_column

Pictures = tuple[str, str]
"""What paths of pictures are relative to (`pipeline.sources.typing.image_cells`): a root, and a folder below it."""
WANTED = {
    ColumnType.TEXT: "a string",
    ColumnType.CATEGORY: "a string, a whole number, a boolean or a date",
    ColumnType.NUMBER: "a number",
    ColumnType.INTEGER: "a 64-bit integer",
    ColumnType.IMAGE: "a picture's path or bytes",
}
NAMES: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (lambda kind: is_list(kind), "a list"),
    (lambda kind: _is_string(kind), "a string"),
    (lambda kind: _is_bytes(kind), "bytes"),
    (pt.is_boolean, "a boolean"),
    (pt.is_integer, "an integer"),
    (pt.is_floating, "a float"),
    (pt.is_decimal, "a decimal"),
    (pt.is_struct, "a struct"),
    (pt.is_date, "a date"),
    (pt.is_timestamp, "a time"),
)


def typed_values(name: str, column: Column, values: pa.Array, pictures: Pictures, faults: Faults) -> pa.Array:
    """Makes an array of the column's type: shape [rows], null where a value is, or is of the wrong type.

    What a value must be beyond its type is for `pipeline.sources.typing.checks`.

    Args:
        name: the column, for messages.
        column: what is wanted.
        values: Arrow values of any type, shape [rows].
        pictures: what paths of pictures are relative to.
        faults: where the faults found are added.
    """
    values = plain(values)
    if not column.many:
        return _scalars(name, column.type, values, pictures, faults)
    if _is_string(values.type) or _is_bytes(values.type) and column.type is not ColumnType.IMAGE:
        return _split(name, column, values, pictures, faults)
    return _lists(name, column, values, pictures, faults)


def misfit(column: Column, kind: pa.DataType) -> str | None:
    """Says what is wrong with an Arrow type for a column, where no value of it can be good."""
    kind = plain(pa.nulls(0, kind)).type
    if column.many:
        while is_list(kind):
            kind = plain(pa.nulls(0, kind.value_type)).type
        if _is_string(kind) or _is_bytes(kind):
            return None
    return _misfit(column.type, kind)


def lookup(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array | None:
    """The values of a column, or of a field inside one (`objects.bbox`), shape [rows]; None where it is not there.

    A column whose own name holds the dots wins. Of a list of structs come lists of the field's values.
    """
    for whole in _prefixes(name):
        if whole in table.schema.names:
            column = table.column(whole)
            values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            found = values if whole == name else _field(values, name[len(whole) + 1 :])
            if found is not None:
                return found
    return None


def merge(rows: int, parts: Sequence[tuple[Sequence[int], pa.Array]], kind: pa.DataType) -> pa.Array:
    """Puts values of some rows each into one array, shape [rows], null where no part has the row."""
    places: npt.NDArray[np.int64] = np.full(rows, -1)
    starts = accumulate((len(values) for _, values in parts), initial=0)
    for (where, values), start in zip(parts, starts, strict=False):
        places[np.asarray(where, np.int64)] = np.arange(start, start + len(values))
    every = pa.concat_arrays([pa.array([], kind), *(values for _, values in parts)])
    return every.take(pa.array(places, mask=places < 0))


def as_lists(lengths: npt.NDArray[np.int64], flat: pa.Array, absent: Mask) -> pa.Array:
    """Arrow lists, shape [rows], of so many values each; null where `absent`."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=pa.array(absent))


def one_each(flat: pa.Array) -> pa.Array:
    """Lists of one value."""
    return as_lists(np.ones(len(flat), np.int64), flat, np.zeros(len(flat), bool))


def plain(values: pa.Array) -> pa.Array:
    """The values without an encoding: dictionaries, runs, views, extension types."""
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


def _prefixes(name: str) -> list[str]:
    """The name, and what stands before each of its dots, the longest first."""
    return [name, *(name[:at] for at in range(len(name) - 1, 0, -1) if name[at] == ".")]


def _field(values: pa.Array, name: str) -> pa.Array | None:
    """A field of structs, or of the structs in lists."""
    values = plain(values)
    if is_list(values.type):
        inner = _field(pc.list_flatten(values), name)
        return None if inner is None else as_lists(_lengths(values), inner, _absent(values))
    if pt.is_struct(values.type):
        for whole in _prefixes(name):
            if values.type.get_field_index(whole) >= 0:
                found = pc.struct_field(values, [whole])
                return found if whole == name else _field(found, name[len(whole) + 1 :])
    return None


def _scalars(name: str, kind: ColumnType, values: pa.Array, pictures: Pictures, faults: Faults) -> pa.Array:
    if pt.is_null(values.type):
        return pa.nulls(len(values), ARROW_TYPES[kind])
    wrong = _misfit(kind, values.type)
    if wrong:
        add_faults(faults, ~_absent(values), Fault("wrong_type", wrong, name))
        return pa.nulls(len(values), ARROW_TYPES[kind])
    if kind is ColumnType.IMAGE:
        return _pictures(name, values, pictures, faults)
    typed = CONVERTED[kind](values)
    if typed.null_count > values.null_count:
        beyond = Fault("wrong_type", f"wanted {WANTED[kind]}, found one that is beyond 64 bits", name)
        add_faults(faults, _absent(typed) & ~_absent(values), beyond)
    return typed


def _split(name: str, column: Column, values: pa.Array, pictures: Pictures, faults: Faults) -> pa.Array:
    """Lists that are strings: cells, as of a CSV file."""
    cells = [None if cell is None else cell.decode("utf-8", "surrogateescape") for cell in _bytes(values).to_pylist()]
    typed = typed_column(name, column, cells, faults)
    return references(name, typed, *pictures, faults) if column.type is ColumnType.IMAGE else typed


def _lists(name: str, column: Column, values: pa.Array, pictures: Pictures, faults: Faults) -> pa.Array:
    flat, lengths, holes = _flattened(values)
    inner: Faults = {}
    typed = _scalars(name, column.type, flat, pictures, inner)
    rows = np.repeat(np.arange(len(lengths)), lengths) if inner else ()
    for place, fault in sorted(inner.items()):
        faults.setdefault(int(rows[place]), Fault(fault.reason, f"in the list: {fault.message}", name))
    add_faults(faults, holes, Fault(ABSENT.reason, f"in the list: {ABSENT.message}", name))
    return as_lists(lengths, typed, _absent(values))


def _flattened(values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64], Mask]:
    """The values of nested lists one after another, each row's number of them, and the rows where a list in it is null.

    A value that is no list is a list of one.
    """
    if not is_list(values.type):
        absent = _absent(values)
        return values.filter(pa.array(~absent)), (~absent).astype(np.int64), np.zeros(len(values), bool)
    lengths, flat = _lengths(values), plain(pc.list_flatten(values))
    if not is_list(flat.type):
        return flat, lengths, np.zeros(len(values), bool)
    ends = _ends(lengths)
    missing = _absent(flat)
    flat, inner, holes = _flattened(flat)
    return flat, np.diff(_ends(inner)[ends]), np.diff(_ends(holes | missing)[ends]) > 0


def _ends(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where each of some parts begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _pictures(name: str, values: pa.Array, pictures: Pictures, faults: Faults) -> pa.Array:
    if _is_string(values.type):
        return references(name, _text(values), *pictures, faults)
    if _is_bytes(values.type):
        return inlined(_bytes(values))
    data, path = (_picture_part(values, part) for part in ("bytes", "path"))
    held = inlined(_bytes(data))
    named = references(name, _text(pc.if_else(held.is_valid(), pa.scalar(None, path.type), path)), *pictures, faults)
    return pc.coalesce(held, named)


def _picture_part(values: pa.StructArray, part: str) -> pa.Array:
    """The `bytes` or the `path` of pictures as Hugging Face's datasets hold them."""
    found = _field(values, part)
    return pa.nulls(len(values), pa.binary()) if found is None or pt.is_null(found.type) else plain(found)


def _misfit(kind: ColumnType, found: pa.DataType) -> str | None:
    if pt.is_null(found) or TAKEN[kind](found):
        return None
    what = next((name for is_it, name in NAMES if is_it(found)), str(found).partition("[")[0].partition("<")[0])
    return f"wanted {WANTED[kind]}, found {what}"


def is_list(kind: pa.DataType) -> bool:
    """Whether it is a type of lists, of any width."""
    return pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)


def _is_string(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind)


def _is_text(kind: pa.DataType) -> bool:
    return _is_string(kind) or _is_bytes(kind)


def _is_whole(kind: pa.DataType) -> bool:
    return pt.is_integer(kind) or pt.is_decimal(kind) and kind.scale <= 0


def _is_number(kind: pa.DataType) -> bool:
    return pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)


def _is_name(kind: pa.DataType) -> bool:
    return _is_text(kind) or _is_whole(kind) or pt.is_boolean(kind) or pt.is_date(kind) or pt.is_timestamp(kind)


def _is_picture(kind: pa.DataType) -> bool:
    if not pt.is_struct(kind):
        return _is_text(kind)
    parts = [kind.field(part).type for part in ("bytes", "path") if kind.get_field_index(part) >= 0]
    return bool(parts) and all(pt.is_null(part) or _is_text(part) for part in parts)


def _bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.binary())


def _text(values: pa.Array) -> pa.Array:
    """Strings of strings and bytes; whether they are UTF-8 is checked later."""
    return values if pt.is_string(values.type) else _bytes(values).view(pa.string())


def _name(values: pa.Array) -> pa.Array:
    if _is_text(values.type):
        return _text(values)
    return _moment(values) if pt.is_timestamp(values.type) else values.cast(pa.string())


def _moment(values: pa.Array) -> pa.Array:
    """ISO 8601, of times with a zone that in UTC; the same whatever the unit is."""
    if values.type.tz is not None:
        values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    text = pc.replace_substring(values.cast(pa.string()), " ", "T")
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"(\.\d*?)0+(Z?)$", r"\1\2"), r"\.(Z?)$", r"\1")


def _number(values: pa.Array) -> pa.Array:
    return values.cast(pa.float64(), safe=False)


def _integer(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        whole = [value if value is None else int(value) for value in values.to_pylist()]
        return pa.array([value if value is not None and value in INT64 else None for value in whole], pa.int64())


TAKEN: Mapping[ColumnType, Callable[[pa.DataType], bool]] = {
    ColumnType.TEXT: _is_text,
    ColumnType.CATEGORY: _is_name,
    ColumnType.NUMBER: _is_number,
    ColumnType.INTEGER: _is_whole,
    ColumnType.IMAGE: _is_picture,
}
CONVERTED: Mapping[ColumnType, Callable[[pa.Array], pa.Array]] = {
    ColumnType.TEXT: _text,
    ColumnType.CATEGORY: _name,
    ColumnType.NUMBER: _number,
    ColumnType.INTEGER: _integer,
}


def _absent(values: pa.Array) -> Mask:
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else np.zeros(len(values), bool)


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    return pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
