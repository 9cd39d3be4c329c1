"""Columns inside others: `objects.bbox` is the field `bbox` of what the column `objects` holds.

A column whose own name holds the dots comes first. Of a list of objects come lists of the field's values.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.sources.typing.arrays import absent, as_lists, is_list, lengths, plain


def lookup(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array | None:
    """Gives the values of a column of Arrow's, shape [rows]; None where there is no such column."""
    for outer, rest in cuts(name):
        if outer in table.schema.names:
            column = table.column(outer)
            values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            result = values if rest is None else _field(values, rest)
            if result is not None:
                return result
    return None


def _field(values: pa.Array, name: str) -> pa.Array | None:
    """A field of structs, or of the structs in lists."""
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


def python_field(row: Mapping[str, Any], name: str) -> Any:
    """Gives the value of a column in a row of Python's; None where there is no such column."""
    for outer, rest in cuts(name):
        if outer in row:
            return row[outer] if rest is None else _inside(row[outer], rest)
    return None


def _inside(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return python_field(value, name)
    return [_inside(item, name) for item in value] if isinstance(value, list | tuple) else None


def python_names(row: Mapping[Any, Any]) -> list[str]:
    """Lists the columns of a row, those inside others behind them."""
    names = dict[str, None]()
    for key, value in row.items():
        names[str(key)] = None
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Mapping):
                names |= dict.fromkeys(f"{key}.{name}" for name in python_names(item))
    return list(names)


def cuts(name: str) -> list[tuple[str, str | None]]:
    """Gives the name alone, then cut at each of its dots, the longest beginning first."""
    dots = [dot for dot in range(len(name) - 1, 0, -1) if name[dot] == "."]
    return [(name, None), *((name[:dot], name[dot + 1 :]) for dot in dots)]
