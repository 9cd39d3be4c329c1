"""Several names a row, such as tags: stored as their ids, and the labels of a multi-label task."""

from typing import Any, Literal

from pydantic import Field

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.base import tfds_sequence
from recordmill.pipeline.spec.features.category import NamedClasses
from recordmill.pipeline.spec.features.lists import ListFeature
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoriesOptions


class Categories(ListFeature, NamedClasses):
    """Names as ids: for the label 0 to n-1; for any other feature 0 pads and unknown names are 1."""

    kind: Literal["categories"]
    oov_buckets: int = Field(default=1, ge=1, le=1 << 20, strict=True)
    """The number of ids that the unknown names share, by their hash: 1 to n."""
    read: Literal["ids", "multi_hot"] | None = None
    """ids: padded ids and their number. multi_hot: for each id 1 if the row has it, else 0. By default `multi_hot` for
    the label, `ids` for any other feature."""

    def raw_column(self) -> Column:
        """Gives a column of lists of names, which may be empty."""
        return self.list_column(ColumnType.CATEGORY)

    @property
    def varies(self) -> bool:
        """Whether it is read as lists of different lengths."""
        return self.read != "multi_hot" and super().varies

    def options(self, *, is_label: bool = False) -> CategoriesOptions:
        """Gives what the graph needs."""
        return self._options(CategoriesOptions, is_label=is_label)

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes the vocabulary, the ids, and the form that they are read in."""
        is_label = statistics["is_label"]
        return CategoriesDescription(
            length=self.read_length,
            max_length=self.max_length,
            read=self.read or ("multi_hot" if is_label else "ids"),
            **self.ids(statistics),
            oov_buckets=None if is_label or self.hash_buckets is not None else self.oov_buckets,
            padding_id=-1 if is_label else 0,
            stored="int64",
        )

    def tfds(self, description: Description) -> dict[str, Any]:
        """Gives a sequence of int64."""
        return tfds_sequence("int64")
