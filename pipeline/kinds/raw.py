"""Raw values: stored as they come."""

from typing import Any, Literal

from pipeline.columns import ColumnType
from pipeline.kinds.base import Description, Feature, tfds_scalar

COLUMN_TYPES = {"bytes": ColumnType.TEXT, "int64": ColumnType.INTEGER, "float32": ColumnType.NUMBER}
TFDS_TYPES = {"bytes": "string", "int64": "int64", "float32": "float32"}


class Raw(Feature):
    """A value that is passed through."""

    kind: Literal["raw"]
    type: Literal["bytes", "int64", "float32"] = "bytes"
    """bytes: a string's UTF-8."""

    def column_type(self) -> ColumnType:
        """By `type`."""
        return COLUMN_TYPES[self.type]

    def describe(self, statistics: dict[str, Any]) -> Description:
        """The type that is stored."""
        return {"kind": self.kind, "stored": self.type}

    def tfds(self, description: Description) -> dict[str, Any]:
        """A scalar."""
        return tfds_scalar(TFDS_TYPES[self.type])
