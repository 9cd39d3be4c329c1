"""From Arrow values of any type to a column's type: the one place where it says which type a column takes.

| column | values that it takes |
|---|---|
| TEXT | strings; bytes, which are taken for UTF-8 |
| CATEGORY | the same, whole numbers (`7`), booleans (`true`), dates and times in ISO 8601 (`2026-11-20T12:00:00Z`) |
| NUMBER | integers, floats and decimals of any width; strings and bytes of numbers, with `parse` alone |
| INTEGER | integers and decimals without a fraction, within 64 bits |
| IMAGE | strings (paths and `data:` URLs), bytes, structs of `bytes` and `path`, whose bytes come first |
| ARRAY | lists of numbers, nested as the shape is, or one list; JSON of these; bytes of `.npy` files (`array_cells`) |

Every format's values come here, those of Python and JSON in groups of one type (`typing.python_values`), so a value has
one outcome in all of them. Encodings (dictionaries, runs, views) do not matter. A list is read in one column with
`many` alone; nested lists are flattened to one list a row, one value is a list of one, and one string is split as a
cell.

A cell (of CSV, a part of a path, a line of text) is a string without a type, which is read as a number, too, as
Python's `float` and `int` do, but for underscores; where it is blank, or `NA` (`NO_NUMBER`), the number is missing. A
list in a cell is a JSON array, or values with a separator between them.

>>> faults = {}
>>> typed_values("n", Column(ColumnType.INTEGER), pa.array([1, 1 << 63], pa.uint64()), ("", ""), faults).to_pylist()
[1, None]
>>> faults[1].message
'wanted a 64-bit integer, found one that is beyond 64 bits'
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.columns import INT64, Column, ColumnType
from recordmill.pipeline.sources.faults import Fault, Faults, Mask, add_faults, add_inner
from recordmill.pipeline.sources.images import ImageBase, empty_images, inlined, references
from recordmill.pipeline.sources.typing.array_cells import arrays_of_objects, typed_arrays
from recordmill.pipeline.sources.typing.arrays import (
    ARROW_TYPES,
    absent,
    as_lists,
    flat_values,
    is_list,
    lengths,
    plain,
    strings,
)
from recordmill.pipeline.sources.typing.blocks import ABSENT, IN_LIST


def typed_values(
    name: str, column: Column, values: pa.Array, base: ImageBase, faults: Faults, *, as_cells: bool = False
) -> pa.Array:
    """Makes an array of the column's type: shape [rows], null where a value is, or is of the wrong type.

    What a value must be beyond its type is for `typing.blocks`. The `values` are of any Arrow type; faults are added;
    with `as_cells` strings are cells, which may stand for numbers.
    """
    values, as_cells = plain(values), as_cells or column.parse
    if column.array is not None:
        if wrong := misfit(column, values.type):
            add_faults(faults, ~absent(values), Fault("wrong_type", wrong, name))
            return pa.nulls(len(values), ARROW_TYPES[column.type])
        return typed_arrays(name, column.array, values, faults)
    if not column.many and column.type is ColumnType.IMAGE and not column.optional:
        return _needed_images(name, values, base, faults)
    if not column.many:
        return _scalars(name, column.type, values, base, faults, as_cells)
    if _is_string(values.type) or _is_bytes(values.type) and column.type is not ColumnType.IMAGE:
        (values, refused), as_cells = split(_text(values), column.separator), True
        add_faults(faults, refused, Fault("wrong_type", NO_JSON, name))
    flat, counts, holes = _flattened(values)
    inner: Faults = {}
    typed = _scalars(name, column.type, flat, base, inner, as_cells)
    add_inner(faults, inner, np.repeat(np.arange(len(counts)), counts) if inner else (), IN_LIST)
    add_faults(faults, holes, Fault(ABSENT.reason, IN_LIST + ABSENT.message, name))
    return as_lists(counts, typed, absent(values))


def typed_whole(name: str, column: Column, values: Sequence[object], faults: Faults) -> pa.Array | None:
    """Makes an array of Python values of a type that takes them as they are; None where Arrow's types come first."""
    return None if column.array is None else arrays_of_objects(name, column.array, values, faults)


def misfit(column: Column, kind: pa.DataType) -> str | None:
    """Says what is wrong with an Arrow type for a column, where no value of it can be good."""
    kind = plain(pa.nulls(0, kind)).type
    if column.type is ColumnType.ARRAY:
        return None if is_list(kind) or _is_text(kind) else _misfit(column.type, kind)
    if column.many:
        while is_list(kind):
            kind = plain(pa.nulls(0, kind.value_type)).type
    if _is_text(kind) and (column.many or column.parse):
        return None
    return _misfit(column.type, kind)


def _misfit(kind: ColumnType, given: pa.DataType) -> str | None:
    if pt.is_null(given) or RULES[kind].takes(given):
        return None
    return wrong_type(kind, next((name for is_it, name in NAMES if is_it(given)), re.split(r"[\[<]", str(given))[0]))


def wrong_type(kind: ColumnType, found: str) -> str:
    """Makes the message about a value that is not of the wanted type; `found` is the name of its type."""
    hint = PARSE_HINT if kind is ColumnType.NUMBER and found in TEXTS else ""
    return f"wanted {RULES[kind].wanted}, found {found}{hint}"


def _scalars(
    name: str, kind: ColumnType, values: pa.Array, base: ImageBase, faults: Faults, as_cells: bool
) -> pa.Array:
    if pt.is_null(values.type):
        return pa.nulls(len(values), ARROW_TYPES[kind])
    if kind is ColumnType.IMAGE and _is_image(values.type):
        return _images(name, values, base, faults)
    if as_cells and kind in (ColumnType.NUMBER, ColumnType.INTEGER) and _is_text(values.type):
        typed, refused = numbers(kind, _text(values))
        wrong = f"wanted {RULES[kind].wanted}, found another string"
        if refused.any():
            commas = pc.match_substring_regex(values.cast(pa.binary()), DECIMAL_COMMA).fill_null(False)
            hint = f"{wrong}, maybe with a decimal comma: `decimal: ','` of csv and tsv"
            add_faults(faults, refused & np.asarray(commas), Fault("wrong_type", hint, name))
    elif wrong := _misfit(kind, values.type) or "":
        typed, refused = pa.nulls(len(values), ARROW_TYPES[kind]), ~absent(values)
    else:
        typed = RULES[kind].convert(values)
        refused = absent(typed) & ~absent(values)
        wrong = f"wanted {RULES[kind].wanted}, found one that is beyond 64 bits"
    add_faults(faults, refused, Fault("wrong_type", wrong, name))
    return typed


def _flattened(values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64], Mask]:
    """Flattens nested lists, a value being one of one: values, each row's count, and the rows where a list is null."""
    if not is_list(values.type):
        missing = absent(values)
        return values.filter(pa.array(~missing)), (~missing).astype(np.int64), np.zeros(len(values), bool)
    counts, flat = lengths(values), plain(pc.list_flatten(values))
    if not is_list(flat.type):
        return flat, counts, np.zeros(len(values), bool)
    ends, missing = _ends(counts), absent(flat)
    flat, inner, holes = _flattened(flat)
    return flat, np.diff(_ends(inner)[ends]), np.diff(_ends(holes | missing)[ends]) > 0


def _ends(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Returns the start of each of some parts, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _images(name: str, values: pa.Array, base: ImageBase, faults: Faults) -> pa.Array:
    """Makes references to images (`sources.images`); structs are those of Hugging Face's datasets."""
    if _is_string(values.type):
        return references(name, _text(values), base, faults)
    if _is_bytes(values.type):
        return inlined(values.cast(pa.binary()))
    data, path = (_part(values, part) for part in ("bytes", "path"))
    held = inlined(data.cast(pa.binary()))
    paths = pc.if_else(held.is_valid(), pa.scalar(None, path.type), path)
    return pc.coalesce(held, references(name, _text(paths), base, faults))


def _needed_images(name: str, values: pa.Array, base: ImageBase, faults: Faults) -> pa.Array:
    """As `_images`, of a column that no row may lack: an empty image is one that is refused when it is loaded."""
    found: Faults = {}
    typed = _scalars(name, ColumnType.IMAGE, values, base, found, as_cells=False)
    if pt.is_struct(values.type) and _is_image(values.type):
        values = _part(values, "bytes")
    if _is_bytes(values.type):
        empty = empty_images(values.cast(pa.binary()))
        found = {row: fault for row, fault in found.items() if not empty[row].is_valid}
        typed = pc.coalesce(typed, empty)
    for row, fault in found.items():
        faults.setdefault(row, fault)
    return typed


def _part(values: pa.StructArray, part: str) -> pa.Array:
    if values.type.get_field_index(part) < 0:
        return pa.nulls(len(values), pa.binary())
    field = plain(pc.struct_field(values, [part]))
    return field.cast(pa.binary()) if pt.is_null(field.type) else field


DECIMAL_COMMA = r"^\s*[+-]?\d+,\d+\s*$"
NO_NUMBER = ("", "?", "NA", "N/A", "n/a", "#N/A", "nan", "NaN", "null", "NULL", "None")
"""The cells that stand for a number that is missing."""


def numbers(kind: ColumnType, cells: pa.Array) -> tuple[pa.Array, Mask]:
    """Reads Arrow strings as NUMBER or INTEGER, and marks the rows that hold no such number.

    Null, too, are cells of `NO_NUMBER`, white space around them or not.
    """
    filled = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    values = _by_arrow(kind, filled)
    if values is None:  # to look for these words takes as long as to read numbers
        filled = pc.if_else(pc.is_in(cells, pa.array(NO_NUMBER)), pa.scalar(None, pa.string()), cells)
        values = _by_arrow(kind, filled)
    if values is not None:
        return values, np.zeros(len(cells), bool)
    texts = [None if text is None or text.strip() in NO_NUMBER else text for text in decoded(filled)]
    read = [_number(kind, text) for text in texts]
    wrong = [value is None and text is not None for text, value in zip(texts, read, strict=True)]
    return pa.array(read, ARROW_TYPES[kind]), np.array(wrong, bool)


def _by_arrow(kind: ColumnType, cells: pa.Array) -> pa.Array | None:
    """Reads numbers by Arrow, quickly; returns None where Python may read one of them otherwise."""
    try:
        values = cells.cast(ARROW_TYPES[kind])
    except pa.ArrowInvalid:
        return None
    is_hexadecimal = kind is ColumnType.INTEGER and pc.any(pc.match_substring_regex(cells, "[xX]")).as_py()
    return values if not is_hexadecimal and np.isfinite(values.fill_null(0)).all() else None


def _number(kind: ColumnType, cell: str | None) -> float | int | None:
    if cell is None or "_" in cell:
        return None
    try:
        if kind is ColumnType.NUMBER:
            return float(cell)
        value = int(cell)
    except ValueError:
        return None
    return value if value in INT64 else None


def split(cells: pa.Array, separator: str) -> tuple[pa.Array, Mask]:
    """Makes lists of strings of Arrow strings, shape [rows], empty of blank ones; and marks brackets without JSON."""
    lists = [[] if cell is None else split_cell(cell, separator) for cell in decoded(cells)]
    refused = np.array([values is None for values in lists], bool)
    flat = strings(value for values in lists for value in values or ())
    counts = np.array([len(values or ()) for values in lists], np.int64)
    return as_lists(counts, flat, absent(cells) | refused), refused


def split_cell(cell: str, separator: str) -> list[str] | None:
    """Returns the values of a list in one cell: none where it is blank, None where it is in brackets, and no JSON."""
    text = cell.strip()
    if text.startswith("[") and text.endswith("]"):
        try:
            return [value if isinstance(value, str) else json.dumps(value) for value in flat_values(json.loads(text))]
        except (ValueError, RecursionError):
            return None
    return [value.strip() for value in text.split(separator)] if text else []


def decoded(cells: pa.Array) -> list[str | None]:
    """Returns Arrow strings as Python's; bytes that are not UTF-8 come as surrogates."""
    values = cells.cast(pa.binary()).to_pylist()
    return [value if value is None else value.decode("utf-8", "surrogateescape") for value in values]


def _is_string(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind)


def _is_text(kind: pa.DataType) -> bool:
    return _is_string(kind) or _is_bytes(kind)


def _is_whole(kind: pa.DataType) -> bool:
    return pt.is_integer(kind) or pt.is_decimal(kind) and kind.scale <= 0


def _is_name(kind: pa.DataType) -> bool:
    return _is_text(kind) or _is_whole(kind) or pt.is_boolean(kind) or pt.is_date(kind) or pt.is_timestamp(kind)


def _is_image(kind: pa.DataType) -> bool:
    if not pt.is_struct(kind):
        return _is_text(kind)
    parts = [kind.field(part).type for part in ("bytes", "path") if kind.get_field_index(part) >= 0]
    return bool(parts) and all(pt.is_null(part) or _is_text(part) for part in parts)


def _text(values: pa.Array) -> pa.Array:
    """Makes strings of strings and bytes; whether they are UTF-8 is checked later."""
    return values if pt.is_string(values.type) else values.cast(pa.binary()).view(pa.string())


def _name(values: pa.Array) -> pa.Array:
    if _is_text(values.type):
        return _text(values)
    return _moment(values) if pt.is_timestamp(values.type) else values.cast(pa.string())


def _moment(values: pa.Array) -> pa.Array:
    """Writes times in ISO 8601, those with a zone in UTC; the same whatever the unit is."""
    if values.type.tz is not None:
        values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    text = pc.replace_substring(values.cast(pa.string()), " ", "T")
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"(\.\d*?)0+(Z?)$", r"\1\2"), r"\.(Z?)$", r"\1")


def _integer(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        whole = [value if value is None else int(value) for value in values.to_pylist()]
        return pa.array([value if value is not None and value in INT64 else None for value in whole], pa.int64())


NO_JSON = "wanted a list, found brackets that are no JSON array: write lists by Python's `json.dumps`"
PARSE_HINT = "; `number` and `numbers` read it with `parse: true`"
LIST, OBJECT, TEXTS = "a list", "an object", ("a string", "bytes")


class Rule(NamedTuple):
    """The Arrow types that a column takes, and how they become its own."""

    wanted: str
    """Its name in a message."""
    takes: Callable[[pa.DataType], bool]
    convert: Callable[[pa.Array], pa.Array]
    """Makes the column's Arrow type of them; null where that cannot be."""


RULES: Mapping[ColumnType, Rule] = {
    ColumnType.TEXT: Rule("a string", _is_text, _text),
    ColumnType.CATEGORY: Rule("a string, a whole number, a boolean or a date", _is_name, _name),
    ColumnType.NUMBER: Rule(
        "a number",
        lambda kind: pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind),
        lambda values: values.cast(pa.float64(), safe=False),
    ),
    ColumnType.INTEGER: Rule("a 64-bit integer", _is_whole, _integer),
    ColumnType.IMAGE: Rule("an image's path or bytes", _is_image, inlined),
    ColumnType.ARRAY: Rule("an array of numbers", is_list, lambda values: values),
}
NAMES: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (is_list, LIST),
    (_is_string, TEXTS[0]),
    (_is_bytes, TEXTS[1]),
    (pt.is_boolean, "a boolean"),
    (pt.is_integer, "an integer"),
    (pt.is_floating, "a float"),
    (pt.is_decimal, "a decimal"),
    (pt.is_struct, OBJECT),
    (pt.is_date, "a date"),
    (pt.is_timestamp, "a time"),
)
"""The names of the values' types in messages."""
