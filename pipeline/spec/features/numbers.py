"""Lists of numbers: each normalized or put into a bucket, by all that the train split's lists hold."""

from typing import Any, Literal

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.base import tfds_sequence
from recordmill.pipeline.spec.features.lists import ListFeature
from recordmill.pipeline.spec.features.number import Scaled
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.number import NumbersDescription, NumbersOptions


class Numbers(ListFeature, Scaled):
    """A list of numbers, of a fixed length or of any."""

    kind: Literal["numbers"]

    def raw_column(self) -> Column:
        """Gives a column of lists of finite numbers, which may be empty."""
        return self.list_column(ColumnType.NUMBER)

    def options(self, *, is_label: bool = False) -> NumbersOptions:
        """Gives what the graph needs."""
        return self._options(NumbersOptions)

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes the steps that the stored values went through, and the lists' length."""
        scaling = self.scaling(statistics)
        return NumbersDescription(**scaling, length=self.read_length, max_length=self.max_length)

    def tfds(self, description: Description) -> dict[str, Any]:
        """Gives a sequence of float32, or of the int64 ids of buckets."""
        return tfds_sequence(self.stored)
