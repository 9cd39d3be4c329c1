"""Columns stored unchanged."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import model_validator

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.feature import ListFeature
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.raw import MISSING, RawDescription

COLUMN_TYPES = {"bytes": ColumnType.TEXT, "int64": ColumnType.INTEGER, "float32": ColumnType.NUMBER}


class Raw(ListFeature):
    """A value, or a list, stored unchanged."""

    column_type = ColumnType.TEXT
    kind: Literal["raw"]
    type: Literal["bytes", "int64", "float32"] = "bytes"
    """bytes: a string's UTF-8."""
    many: bool = False
    """Whether a row has a list, with `length`, `max_length` and `separator`."""

    @model_validator(mode="after")
    def _check_many(self) -> "Raw":
        for name in ("length", "max_length", "separator"):
            if not self.many and name in self._changed():
                raise ValueError(f"`{name}` is for lists: give `many: true`, or leave it out")
        return self

    @property
    def is_packable(self) -> bool:
        return self.many and self.type == "int64"

    @property
    def fill(self) -> Any:
        return [] if self.many else MISSING[self.type]

    @property
    def varies(self) -> bool:
        return self.many and super().varies

    def parts(self) -> tuple[str, ...]:
        """Names none: the graph fills a missing value."""
        return ()

    def _column(self) -> Column:
        return replace(super()._column(), type=COLUMN_TYPES[self.type], many=self.many)

    def describe(self, statistics: dict[str, Any]) -> Description:
        length = self.read_length if self.many else None
        given = {"stored": self.type, "length": length, "optional": False}  # the graph fills it
        return self._describe(RawDescription, "max_length", **given)
