"""Strings that stand for other values: cells of a CSV file, parts of a path, lines of text.

Numbers are what Python's `float` and `int` take, without underscores; a blank cell is no number. A list is a JSON
array, or values with a separator between them.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.sources.columns import INT64, ColumnType
from recordmill.pipeline.sources.typing.arrays import ARROW_TYPES, absent, as_lists, flat_values, strings
from recordmill.pipeline.sources.typing.faults import Mask


def numbers(kind: ColumnType, cells: pa.Array) -> tuple[pa.Array, Mask]:
    """Reads Arrow strings as NUMBER or INTEGER.

    Returns:
        The numbers, shape [rows], null where a cell is null, blank or no such number; and the rows of the last sort.
    """
    filled = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    values = _by_arrow(kind, filled)
    if values is not None:
        return values, np.zeros(len(cells), bool)
    texts = decoded(cells)
    read = [_number(kind, text) for text in texts]
    wrong = [value is None and bool(text and text.strip()) for text, value in zip(texts, read, strict=True)]
    return pa.array(read, ARROW_TYPES[kind]), np.array(wrong, bool)


def _by_arrow(kind: ColumnType, cells: pa.Array) -> pa.Array | None:
    """The numbers as Arrow reads them, quickly; None where Python may read one of them otherwise."""
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


def split(cells: pa.Array, separator: str) -> pa.Array:
    """Makes lists of strings of Arrow strings, shape [rows]; a blank cell is an empty list."""
    lists = [[] if cell is None else split_cell(cell, separator) for cell in decoded(cells)]
    flat = strings(value for values in lists for value in values)
    return as_lists(np.array([len(values) for values in lists], np.int64), flat, absent(cells))


def split_cell(cell: str, separator: str) -> list[str]:
    """Gives the values of a list in one cell; none where it is blank."""
    text = cell.strip()
    if text.startswith("[") and text.endswith("]"):
        try:
            return [value if isinstance(value, str) else json.dumps(value) for value in flat_values(json.loads(text))]
        except (ValueError, RecursionError):
            pass
    return [value.strip() for value in text.split(separator)] if text else []


def decoded(cells: pa.Array) -> list[str | None]:
    """Gives Arrow strings as Python's; bytes that are not UTF-8 come as surrogates."""
    values = cells.cast(pa.binary()).to_pylist()
    return [value if value is None else value.decode("utf-8", "surrogateescape") for value in values]
