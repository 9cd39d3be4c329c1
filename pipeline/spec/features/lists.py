"""The options that all kinds with several values a row have."""

from typing import Any

from pydantic import Field, model_validator

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.base import Feature


class ListFeature(Feature):
    """Several values a row."""

    length: int | None = Field(default=None, ge=1, strict=True)
    """The number of values that every row must have; any number where it is not given."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """The number of values kept, and that a batch is padded to. None: all are kept, and a batch is padded to its
    longest."""
    separator: str = Field(default=",", min_length=1)
    """The separator of the values where the source holds them as one string, as in a cell of CSV."""

    @model_validator(mode="after")
    def _check_length(self) -> "ListFeature":
        if self.length is not None and self.max_length is not None:
            raise ValueError("`length` and `max_length` exclude each other: a row has exactly `length` values")
        return self

    @property
    def fill(self) -> Any:
        """The empty list."""
        return []

    def list_column(self, kind: ColumnType) -> Column:
        """Gives a column of lists of values."""
        return Column(kind, many=True, optional=self.optional, separator=self.separator, length=self.length)

    @property
    def varies(self) -> bool:
        """Whether rows may have different numbers of values."""
        return self.length is None

    def read_parts(self) -> tuple[str, ...]:
        """Names what the reader gives beside the feature itself without its being stored, as `<feature>_<part>`."""
        return ("length",) if self.varies else ()

    @property
    def read_length(self) -> int | str:
        """The number of values of every row, or `varying`."""
        return self.length or "varying"
