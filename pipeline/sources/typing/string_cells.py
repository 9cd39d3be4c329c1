"""Columns whose cells are strings: of a CSV file, or of the paths of a listing."""

import json
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.sources.columns import ARROW_TYPES, INT64, Column, ColumnType
from recordmill.pipeline.sources.typing.checks import Fault, Faults, add_faults

WANTED = {ColumnType.NUMBER: "a number", ColumnType.INTEGER: "a 64-bit integer"}


def typed_column(name: str, column: Column, cells: Sequence[str | None], faults: Faults) -> pa.Array:
    """Makes an Arrow array of its type of Python's strings, as `typed_cells` does of Arrow's."""
    return typed_cells(name, column, strings(cells), faults)


def typed_cells(name: str, column: Column, cells: pa.Array, faults: Faults) -> pa.Array:
    """Makes an Arrow array of its type: shape [cells], with nulls where a cell is null, blank or of the wrong type.

    An empty TEXT is a text, an empty list a list. Numbers are what Python's `float` and `int` take, without
    underscores. A picture comes as a string, for `pipeline.sources.typing.image_cells`.

    Args:
        name: the column, for messages.
        column: what is asked for.
        cells: Arrow `string`; its bytes may be no UTF-8, and come out as they were, for `check_column` to find.
        faults: where the faults found are added.
    """
    return _lists(name, column, cells, faults) if column.many else _values(name, column.type, cells, faults)


def strings(cells: Iterable[str | None]) -> pa.Array:
    """Arrow `string` of Python's; what was decoded with `surrogateescape` comes out as the bytes it was."""
    return pa.array([None if cell is None else _encoded(cell) for cell in cells], pa.binary()).view(pa.string())


def split_cell(cell: str, separator: str) -> list[str]:
    """The values of a list in one cell: a JSON array, or values with a separator between them; blank: none."""
    text = cell.strip()
    if text.startswith("[") and text.endswith("]"):
        try:
            return [value if isinstance(value, str) else json.dumps(value) for value in flat_values(json.loads(text))]
        except (ValueError, RecursionError):
            pass
    return [value.strip() for value in text.split(separator)] if text else []


def flat_values(value: object) -> list[object]:
    """The values of nested lists, one after another."""
    if not isinstance(value, list):
        return [value]
    return [inner for one in value for inner in flat_values(one)]


def _encoded(cell: str) -> bytes:
    try:
        return cell.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that JSON gives, `"\ud800"`: bytes that are no UTF-8
        return cell.encode("utf-8", "surrogatepass")


def _decoded(cells: pa.Array) -> list[str | None]:
    return [
        cell if cell is None else cell.decode("utf-8", "surrogateescape")
        for cell in cells.cast(pa.binary()).to_pylist()
    ]


def _lists(name: str, column: Column, cells: pa.Array, faults: Faults) -> pa.Array:
    lists = [None if cell is None else split_cell(cell, column.separator) for cell in _decoded(cells)]
    rows = [row for row, values in enumerate(lists) for _ in values or ()]
    inner: Faults = {}
    flat = _values(name, column.type, strings(value for values in lists for value in values or ()), inner)
    for place, fault in inner.items():
        faults.setdefault(rows[place], fault)
    ends = np.cumsum([0, *(len(values or ()) for values in lists)]).tolist()
    offsets = [None if values is None else start for values, start in zip(lists, ends, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*offsets, ends[-1]], pa.int32()), flat)


def _values(name: str, kind: ColumnType, cells: pa.Array, faults: Faults) -> pa.Array:
    if kind is ColumnType.TEXT:
        return cells
    filled = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    if kind not in WANTED:
        return filled
    numbers = _cast(kind, filled)
    return _numbers(name, kind, filled, faults) if numbers is None else numbers


def _cast(kind: ColumnType, cells: pa.Array) -> pa.Array | None:
    """The numbers as Arrow reads them, quickly; None where Python may read one of them otherwise."""
    try:
        numbers = cells.cast(ARROW_TYPES[kind])
    except pa.ArrowInvalid:
        return None
    is_hexadecimal = kind is ColumnType.INTEGER and pc.any(pc.match_substring_regex(cells, "[xX]")).as_py()
    return numbers if not is_hexadecimal and np.isfinite(numbers.fill_null(0)).all() else None


def _numbers(name: str, kind: ColumnType, cells: pa.Array, faults: Faults) -> pa.Array:
    texts = _decoded(cells)
    values = [_number(kind, text) for text in texts]
    wrong = [value is None and bool(text and text.strip()) for text, value in zip(texts, values, strict=True)]
    add_faults(faults, np.array(wrong, bool), Fault("wrong_type", f"wanted {WANTED[kind]}, found another string", name))
    return pa.array(values, ARROW_TYPES[kind])


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
