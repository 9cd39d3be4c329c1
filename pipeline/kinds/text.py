"""Text: lower case, words, ids of a vocabulary that is counted over the train split."""

from typing import Any, Literal

from pydantic import Field

from pipeline.columns import ColumnType
from pipeline.kinds.base import Description, Feature, tfds_scalar


class Text(Feature):
    """A text as word ids: 0 pads, 1 is unknown, words begin at 2, the most frequent first."""

    kind: Literal["text"]
    tokenizer: Literal["words"] = "words"
    """words: lower case; runs of letters, marks, digits and underscores."""
    vocabulary: int = Field(default=32_000, ge=1, strict=True)
    """How many words have an id of their own."""
    minimum_count: int = Field(default=1, ge=1, strict=True)
    """A word that the train split holds less often is unknown."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """The number of ids that are kept, and the length that a batch is padded to; none: all, and a batch's longest."""

    @property
    def analyzed(self) -> bool:
        """The analysis counts its words."""
        return True

    def column_type(self) -> ColumnType:
        """A string, empty or not."""
        return ColumnType.TEXT

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Where the words lie, and the special ids."""
        return {
            "kind": self.kind,
            "stored": "int64",
            "length": "varying",
            "max_length": self.max_length,
            "vocabulary": statistics["vocabulary"],
            "vocabulary_size": statistics["words"] + 2,
            "padding_id": 0,
            "unknown_id": 1,
            "first_id": 2,
        }

    def tfds(self, description: Description) -> dict[str, Any]:
        """A sequence of int64."""
        return {
            "pythonClassName": "tensorflow_datasets.core.features.sequence_feature.Sequence",
            "sequence": {"feature": tfds_scalar("int64"), "length": "-1"},
        }
