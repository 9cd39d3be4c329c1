"""Numbers: one float32 a row, brought to mean 0 and variance 1 by the train split."""

from typing import Any, Literal

from pipeline.columns import ColumnType
from pipeline.kinds.base import Description, Feature, tfds_scalar


class Number(Feature):
    """A number."""

    kind: Literal["number"]
    normalize: Literal["z_score", "none"] = "z_score"
    """z_score: (x - mean) / standard deviation, both exact over the train split."""

    @property
    def analyzed(self) -> bool:
        """A z-score needs the mean and the variance."""
        return self.normalize == "z_score"

    def column_type(self) -> ColumnType:
        """A finite number."""
        return ColumnType.NUMBER

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Which normalization the stored values already have."""
        return {"kind": self.kind, "stored": "float32", "normalize": self.normalize}

    def tfds(self, description: Description) -> dict[str, Any]:
        """A float32."""
        return tfds_scalar("float32")
