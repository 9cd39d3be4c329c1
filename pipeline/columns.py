"""What a raw column may be: the types that a source is asked to deliver, as Arrow types.

A source reads each column that a feature (or the key) needs as one of these types, or rejects the row.
"""

from collections.abc import Mapping
from enum import StrEnum

import pyarrow as pa


class ColumnType(StrEnum):
    """How a source delivers one column."""

    TEXT = "text"
    """A string, delivered as Arrow `string`; valid UTF-8."""
    CATEGORY = "category"
    """A string, an integer or a boolean, delivered as Arrow `string` (`7`, `true`); not blank, no newline."""
    NUMBER = "number"
    """A finite number, delivered as Arrow `float64`."""
    INTEGER = "integer"
    """A 64-bit signed whole number, delivered as Arrow `int64`."""
    PATH = "path"
    """A file inside the source's root, delivered as Arrow `string`: a normalized POSIX path relative to the root."""


ARROW_TYPES: Mapping[ColumnType, pa.DataType] = {
    ColumnType.TEXT: pa.string(),
    ColumnType.CATEGORY: pa.string(),
    ColumnType.NUMBER: pa.float64(),
    ColumnType.INTEGER: pa.int64(),
    ColumnType.PATH: pa.string(),
}

INT64 = range(-(1 << 63), 1 << 63)
"""What an INTEGER may be."""

Columns = Mapping[str, ColumnType]
"""The columns that a build asks of a source, by name."""
