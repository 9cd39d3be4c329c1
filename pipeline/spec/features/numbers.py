"""Lists of numbers: each normalized or put into a bucket, by all that the train split's lists hold."""

from typing import Any, Literal

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.base import Description, tfds_sequence
from recordmill.pipeline.spec.features.lists import ListFeature
from recordmill.pipeline.spec.features.number import NumberOptions


class Numbers(ListFeature, NumberOptions):
    """A list of numbers, of a fixed length or of any."""

    kind: Literal["numbers"]

    def raw_column(self) -> Column:
        """A list of finite numbers, which may be empty."""
        return self.list_column(ColumnType.NUMBER)

    def describe(self, statistics: dict[str, Any]) -> Description:
        """What the stored values already are, and how long the lists are."""
        return {"kind": self.kind, **self.describe_number(statistics), **self.describe_length()}

    def tfds(self, description: Description) -> dict[str, Any]:
        """A sequence of float32, or of the int64 ids of buckets."""
        return tfds_sequence(self.stored)
