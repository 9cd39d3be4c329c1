"""Types of raw columns: a source reads each column of a feature or key as one of these, or rejects the row.

>>> str(Column(ColumnType.NUMBER, many=True))
'list of number'
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from recordmill.transforms.base.arrays import ArrayLayout


class ColumnType(StrEnum):
    """The type of one value of a column."""

    TEXT = "text"  # a string, delivered as Arrow `string`; valid UTF-8
    CATEGORY = "category"
    """A string, a whole number, a boolean or a time, delivered as Arrow `string` (`7`, `true`): one line, not blank."""
    NUMBER = "number"  # a finite number, delivered as Arrow `float64`
    INTEGER = "integer"  # a 64-bit signed whole number, delivered as Arrow `int64`
    IMAGE = "image"  # a place or bytes, delivered as Arrow `binary`: a reference of `sources.images`
    ARRAY = "array"  # numbers of a fixed layout, delivered as Arrow `binary`: bytes as in `base.arrays`
    OBJECTS = "list of objects"  # a list of objects, such as messages, delivered as Arrow `string`: JSON without nulls


ARROW_NAMES: Mapping[ColumnType, str] = {
    ColumnType.TEXT: "string",
    ColumnType.CATEGORY: "string",
    ColumnType.NUMBER: "float64",
    ColumnType.INTEGER: "int64",
    ColumnType.IMAGE: "binary",
    ColumnType.ARRAY: "binary",
    ColumnType.OBJECTS: "string",
}
INT64 = range(-(1 << 63), 1 << 63)  # values of an INTEGER


@dataclass(frozen=True)
class Column:
    """One column that a build asks for."""

    type: ColumnType
    many: bool = False  # whether a row holds a list, delivered as an Arrow list
    optional: bool = False  # whether a missing value is null, not a reject
    separator: str = ","  # the separator of a list that the source holds as one string
    multiple: int = 1  # every list's length is a multiple of it
    length: int | None = None
    visibility: bool = False  # whether each third number of a list is a key point's visibility: 0, 1 or 2
    expected: bool = False  # whether a source must have the column, even if it is optional: only values may be missing
    parse: bool = False  # whether a NUMBER may also be a string, read as CSV cells are
    array: ArrayLayout | None = None  # the layout of an ARRAY, or of an IMAGE given as numbers
    presence: bool = False
    """Whether only the presence of an IMAGE matters: a source may give any reference instead of reading the bytes."""
    keys: tuple[str, ...] = field(default=(), compare=False)  # the keys to read of OBJECTS; (): all

    @property
    def is_list(self) -> bool:
        """Whether a row may have several values: a list, an array, or objects."""
        return self.many or self.is_blob

    @property
    def is_blob(self) -> bool:
        """Whether the bytes of a single value, such as a `.npy` file or JSON, may hold all values of a row."""
        return self.array is not None or self.type is ColumnType.OBJECTS

    @property
    def is_file(self) -> bool:
        """Whether values are images' files or bytes, not images' numbers."""
        return self.type is ColumnType.IMAGE and self.array is None

    def __str__(self) -> str:
        """Returns the type as messages show it: `number`, `list of number (length 3)`, `parsed number`."""
        kind = f"parsed {self.type}" if self.parse else f"array of {self.array}" if self.array else str(self.type)
        given = {name: getattr(self, name) for name in ("separator", "multiple", "length")}
        special = ", ".join(f"{name} {value!r}" for name, value in given.items() if value != getattr(Column, name))
        return f"list of {kind}{special and f' ({special})'}" if self.many else kind


Columns = Mapping[str, Column]  # the columns that a build asks for, by name
ImageBase = tuple[str, str] | tuple[str, str, str]
"""The base of image paths: `SourceReader.image_root`, a folder below it, and maybe an ending that the paths lack."""


def required(columns: Columns) -> list[str]:
    """Lists the columns that a source must have."""
    return [name for name, column in columns.items() if column.expected or not column.optional]
