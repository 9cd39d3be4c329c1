"""Columns whose cells are strings: of a CSV file, or of the paths of a listing."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.columns import ARROW_TYPES, INT64, ColumnType
from pipeline.sources.checks import Fault, Faults, add_faults


def typed_column(name: str, kind: ColumnType, cells: Sequence[str | None], faults: Faults) -> pa.Array:
    """Makes an Arrow array of its type: shape [cells], with nulls where a cell is None, blank or of the wrong type.

    An empty TEXT is a text. Numbers are what Python's `float` and `int` take, without underscores. Bytes that were
    decoded with `surrogateescape` come out as they were, for `check_column` to find.
    """
    if kind in (ColumnType.NUMBER, ColumnType.INTEGER):
        return _numbers(name, kind, cells, faults)
    values = [None if cell is None else cell.encode("utf-8", "surrogateescape") for cell in cells]
    if kind is not ColumnType.TEXT:
        values = [value or None for value in values]
    return pa.array(values, pa.binary()).view(pa.string())


def _numbers(name: str, kind: ColumnType, cells: Sequence[str | None], faults: Faults) -> pa.Array:
    values = [_number(kind, cell) for cell in cells]
    filled = np.array([bool(cell and cell.strip()) for cell in cells], bool)
    wrong = filled & np.array([value is None for value in values], bool)
    wanted = "a number" if kind is ColumnType.NUMBER else "a 64-bit integer"
    add_faults(faults, wrong, Fault("wrong_type", f"wanted {wanted}, found another string", name))
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
