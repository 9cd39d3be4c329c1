"""Converts Arrow values of any type to a column's type: the one place that decides which types a column takes.

| column | accepted values |
|---|---|
| TEXT | strings; bytes, taken for UTF-8 |
| CATEGORY | the same, whole numbers (`7`), booleans (`true`), dates and times in ISO 8601 (`2026-11-20T12:00:00Z`) |
| NUMBER | integers, floats and decimals of any width; strings and bytes of numbers, only with `parse` |
| INTEGER | integers and decimals without a fraction, within 64 bits |
| IMAGE | strings (paths and `data:` URLs), bytes, structs of `bytes` and `path` (bytes first); with a shape, an ARRAY |
| ARRAY | lists of numbers, nested as the shape, or flat; JSON of these; numbers in a text; bytes of `.npy` files |
| OBJECTS | lists of structs; JSON of these, as strings or bytes (`blobs`) |

All formats convert here, Python and JSON values in groups of one type (`typing.python_values`), so a value has one
outcome in all of them. Encodings (dictionaries, runs, views) do not matter. Only `many` takes lists: nested ones are
flattened to one list a row, one value becomes a list of one, and a string is split like a cell.

A cell (of CSV, a part of a path, a line of text) is an untyped string. It may be read as a number, by the rules of
Python's `float` and `int` without underscores; a blank cell or `NA` (`NO_NUMBER`) is a missing number. A list in a cell
is a JSON array, or separated values.

>>> faults = {}
>>> typed_values("n", Column(ColumnType.INTEGER), pa.array([1, 1 << 63], pa.uint64()), ("", ""), faults).to_pylist()
[1, None]
>>> faults[1].message
'wanted a 64-bit integer, found one beyond 64 bits'
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

from recordmill.pipeline.sources.faults import Fault, Faults, Ints, Mask, add_faults, add_inner
from recordmill.pipeline.sources.images import inline, inlined, references
from recordmill.pipeline.sources.typing import arrays
from recordmill.pipeline.sources.typing.blobs import OBJECTS, arrow_blobs
from recordmill.pipeline.sources.typing.checks import ABSENT, IN_LIST
from recordmill.transforms.base.columns import INT64, Column, ColumnType, ImageBase

DECIMAL_COMMA = r"^\s*[+-]?\d+,\d+\s*$"
NO_NUMBER = ("", "?", "NA", "N/A", "n/a", "#N/A", "nan", "NaN", "null", "NULL", "None")
"""Cells that mean a missing number."""
LIST, OBJECT, TEXTS = "a list", "an object", ("a string", "bytes")


def typed_values(
    name: str, column: Column, values: pa.Array, base: ImageBase, faults: Faults, *, as_cells: bool = False
) -> pa.Array:
    """Converts `values`, of any Arrow type, to the column's type: shape [rows], null if null or of the wrong type.

    Adds faults; `typing.checks` checks values beyond their type. With `as_cells`, strings may be numbers.
    """
    values, as_cells = arrays.plain(values), as_cells or column.parse
    if column.array is not None and (wrong := misfit(column, values.type)):
        add_faults(faults, ~arrays.absent(values), Fault("wrong_type", wrong, name))
        return pa.nulls(len(values), arrays.ARROW_TYPES[column.type])
    if column.is_blob:
        return arrow_blobs(name, column, values, faults)
    if not column.many:
        found: Faults = {}
        typed = _single(name, column.type, values, base, found, as_cells)
        if column.type is ColumnType.IMAGE and not column.optional:  # an empty image is refused when it is loaded
            data = _part(values, "bytes") if pt.is_struct(values.type) and _is_image(values.type) else values
            if _is_bytes(data.type):
                is_empty = pc.equal(pc.binary_length(data.cast(pa.binary())), 0)
                empty = pc.if_else(is_empty, pa.scalar(inline(b"")), pa.scalar(None, pa.binary()))
                found = {row: fault for row, fault in found.items() if not empty[row].is_valid}
                typed = pc.coalesce(typed, empty)
        for row, fault in found.items():
            faults.setdefault(row, fault)
        return typed
    if _is_string(values.type) or _is_bytes(values.type) and column.type is not ColumnType.IMAGE:
        cells = _text(values)
        if column.type in (ColumnType.NUMBER, ColumnType.INTEGER):
            is_missing = pc.is_in(pc.ascii_trim_whitespace(cells), pa.array(NO_NUMBER[1:]))
            cells = pc.if_else(is_missing, pa.scalar(None, pa.string()), cells)
        (values, refused), as_cells = split(cells, column.separator), True
        no_json = "wanted a list, found brackets without valid JSON: write lists by Python's `json.dumps`"
        add_faults(faults, refused, Fault("wrong_type", no_json, name))
    flat, counts, holes = _flattened(values)
    inner: Faults = {}
    typed = _single(name, column.type, flat, base, inner, as_cells)
    add_inner(faults, inner, np.repeat(np.arange(len(counts)), counts) if inner else (), IN_LIST)
    add_faults(faults, holes, Fault(ABSENT.reason, IN_LIST + ABSENT.message, name))
    return arrays.as_lists(counts, typed, arrays.absent(values))


def misfit(column: Column, kind: pa.DataType) -> str | None:
    """Returns why no value of an Arrow type can fit a column; None if some can."""
    kind = arrays.plain(pa.nulls(0, kind)).type
    if column.is_blob:
        return None if arrays.is_list(kind) or _is_text(kind) else _misfit(column.type, kind)
    if column.many:
        while arrays.is_list(kind):
            kind = arrays.plain(pa.nulls(0, kind.value_type)).type
    if _is_text(kind) and (column.many or column.parse):
        return None
    return _misfit(column.type, kind)


def _misfit(kind: ColumnType, given: pa.DataType) -> str | None:
    if pt.is_null(given) or RULES[kind].takes(given):
        return None
    return wrong_type(kind, next((name for is_it, name in NAMES if is_it(given)), re.split(r"[\[<]", str(given))[0]))


def wrong_type(kind: ColumnType, found: str) -> str:
    """Makes the message for a value of the wrong type; `found` names its type."""
    hint = ""
    if kind is ColumnType.NUMBER and found in TEXTS:
        hint = "; `number` and `numbers` read it with `parse: true`"
    elif kind is ColumnType.IMAGE and found == LIST:
        hint = "; `shape: [height, width]` reads an image's numbers"
    return f"wanted {RULES[kind].wanted}, found {found}{hint}"


def _single(name: str, kind: ColumnType, values: pa.Array, base: ImageBase, faults: Faults, as_cells: bool) -> pa.Array:
    if pt.is_null(values.type):
        return pa.nulls(len(values), arrays.ARROW_TYPES[kind])
    if kind is ColumnType.IMAGE and _is_image(values.type):
        return _images(name, values, base, faults)
    if as_cells and kind in (ColumnType.NUMBER, ColumnType.INTEGER) and _is_text(values.type):
        typed, refused = numbers(kind, _text(values))
        wrong = f"wanted {RULES[kind].wanted}, found another string"
        if refused.any():
            commas = pc.match_substring_regex(values.cast(pa.binary()), DECIMAL_COMMA).fill_null(False)
            hint = f"{wrong}, maybe with a decimal comma: `decimal: ','` for csv and tsv"
            add_faults(faults, refused & np.asarray(commas), Fault("wrong_type", hint, name))
    elif wrong := _misfit(kind, values.type) or "":
        typed, refused = pa.nulls(len(values), arrays.ARROW_TYPES[kind]), ~arrays.absent(values)
    else:
        typed = RULES[kind].convert(values)
        refused = arrays.absent(typed) & ~arrays.absent(values)
        wrong = f"wanted {RULES[kind].wanted}, found one beyond 64 bits"
    add_faults(faults, refused, Fault("wrong_type", wrong, name))
    return typed


def _flattened(values: pa.Array) -> tuple[pa.Array, Ints, Mask]:
    """Flattens nested lists: returns values, counts by row, and rows with a null list inside; a value counts as one."""
    if not arrays.is_list(values.type):
        missing = arrays.absent(values)
        return values.filter(pa.array(~missing)), (~missing).astype(np.int64), np.zeros(len(values), bool)
    counts, flat = arrays.lengths(values), arrays.plain(pc.list_flatten(values))
    if not arrays.is_list(flat.type):
        return flat, counts, np.zeros(len(values), bool)
    ends, missing = _ends(counts), arrays.absent(flat)
    flat, inner, holes = _flattened(flat)
    return flat, np.diff(_ends(inner)[ends]), np.diff(_ends(holes | missing)[ends]) > 0


def _ends(counts: npt.NDArray[Any]) -> Ints:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _images(name: str, values: pa.Array, base: ImageBase, faults: Faults) -> pa.Array:
    """Makes references to images (`sources.images`); structs follow Hugging Face's datasets."""
    if _is_string(values.type):
        return references(name, _text(values), base, faults)
    if _is_bytes(values.type):
        return inlined(values.cast(pa.binary()))
    data, path = (_part(values, part) for part in ("bytes", "path"))
    held = inlined(data.cast(pa.binary()))
    paths = pc.if_else(held.is_valid(), pa.scalar(None, path.type), path)
    return pc.coalesce(held, references(name, _text(paths), base, faults))


def _part(values: pa.StructArray, part: str) -> pa.Array:
    if values.type.get_field_index(part) < 0:
        return pa.nulls(len(values), pa.binary())
    field = arrays.plain(pc.struct_field(values, [part]))
    return field.cast(pa.binary()) if pt.is_null(field.type) else field


def numbers(kind: ColumnType, cells: pa.Array) -> tuple[pa.Array, Mask]:
    """Reads Arrow strings as NUMBER or INTEGER, null for `NO_NUMBER`, stripped, and marks the rows without a number."""
    filled = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    values = _by_arrow(kind, filled)
    if values is None:  # second, because looking for these words takes as long as reading numbers
        filled = pc.if_else(pc.is_in(cells, pa.array(NO_NUMBER)), pa.scalar(None, pa.string()), cells)
        values = _by_arrow(kind, filled)
    if values is not None:
        return values, np.zeros(len(cells), bool)
    texts = [None if text is None or text.strip() in NO_NUMBER else text for text in decoded(filled)]
    read = [_number(kind, text) for text in texts]
    wrong = [value is None and text is not None for text, value in zip(texts, read, strict=True)]
    return pa.array(read, arrays.ARROW_TYPES[kind]), np.array(wrong, bool)


def _by_arrow(kind: ColumnType, cells: pa.Array) -> pa.Array | None:
    """Reads numbers quickly by Arrow; None if Python may read one differently."""
    try:
        values = cells.cast(arrays.ARROW_TYPES[kind])
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
    """Splits Arrow strings into lists, shape [rows], empty for blank ones; marks brackets without valid JSON."""
    lists = [[] if cell is None else split_cell(cell, separator) for cell in decoded(cells)]
    refused = np.array([values is None for values in lists], bool)
    flat = arrays.strings(value for values in lists for value in values or ())
    counts = np.array([len(values or ()) for values in lists], np.int64)
    return arrays.as_lists(counts, flat, arrays.absent(cells) | refused), refused


def split_cell(cell: str, separator: str) -> list[str] | None:
    """Returns a cell's list: empty if blank, None for brackets without valid JSON."""
    text = cell.strip()
    if text.startswith("[") and text.endswith("]"):
        try:
            values = arrays.flat_values(json.loads(text))
            return [value if isinstance(value, str) else json.dumps(value) for value in values]
        except (ValueError, RecursionError):
            return None
    return [value.strip() for value in text.split(separator)] if text else []


def decoded(cells: pa.Array) -> list[str | None]:
    """Converts Arrow strings to Python; invalid UTF-8 becomes surrogates."""
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


def _is_image(kind: pa.DataType) -> bool:
    if not pt.is_struct(kind):
        return _is_text(kind)
    parts = [kind.field(part).type for part in ("bytes", "path") if kind.get_field_index(part) >= 0]
    return bool(parts) and all(pt.is_null(part) or _is_text(part) for part in parts)


def _text(values: pa.Array) -> pa.Array:
    """Converts strings and bytes to strings; UTF-8 is checked later."""
    return values if pt.is_string(values.type) else values.cast(pa.binary()).view(pa.string())


def _name(values: pa.Array) -> pa.Array:
    """Makes names; times are in ISO 8601, zoned ones in UTC, independent of the unit."""
    if not pt.is_timestamp(values.type):
        return _text(values) if _is_text(values.type) else values.cast(pa.string())
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


class Rule(NamedTuple):
    """The Arrow types that a column takes, and their conversion."""

    wanted: str  # the column's type in messages
    takes: Callable[[pa.DataType], bool]
    convert: Callable[[pa.Array], pa.Array]  # converts to the column's Arrow type; null where impossible


RULES: Mapping[ColumnType, Rule] = {
    ColumnType.TEXT: Rule("a string", _is_text, _text),
    ColumnType.CATEGORY: Rule(
        "a string, a whole number, a boolean or a date",
        lambda kind: any(is_it(kind) for is_it in (_is_text, _is_whole, pt.is_boolean, pt.is_date, pt.is_timestamp)),
        _name,
    ),
    ColumnType.NUMBER: Rule(
        "a number",
        lambda kind: pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind),
        lambda values: values.cast(pa.float64(), safe=False),
    ),
    ColumnType.INTEGER: Rule("a 64-bit integer", _is_whole, _integer),
    ColumnType.IMAGE: Rule("an image's path or bytes", _is_image, inlined),
    ColumnType.ARRAY: Rule("an array of numbers", arrays.is_list, lambda values: values),
    ColumnType.OBJECTS: Rule(OBJECTS, arrays.is_list, lambda values: values),
}
NAMES: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (arrays.is_list, LIST),
    (_is_string, TEXTS[0]),
    (_is_bytes, TEXTS[1]),
    (pt.is_boolean, "a boolean"),
    (pt.is_integer, "an integer"),
    (pt.is_floating, "a float"),
    (pt.is_decimal, "a decimal"),
    (pt.is_struct, OBJECT),
    (pt.is_date, "a date"),
    (pt.is_timestamp, "a time"),
)  # names of the values' types in messages
