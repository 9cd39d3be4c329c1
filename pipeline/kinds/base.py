"""What a kind of feature is, before TensorFlow: its options, its raw column, and how it stands in the manifest."""

from typing import Any

from pydantic import Field

from pipeline.columns import ColumnType
from pipeline.options import Options

Description = dict[str, Any]
"""A feature in `dataset.json`: all that the reader needs to know, JSON only."""


class Feature(Options):
    """The options that every kind has."""

    kind: str
    column: str | None = Field(default=None, min_length=1)
    """The source's column; the feature's own name where it is not given."""

    @property
    def analyzed(self) -> bool:
        """Whether the analysis needs the raw column itself."""
        return False

    def column_type(self) -> ColumnType:
        """How the source delivers the column."""
        raise NotImplementedError

    def describe(self, statistics: dict[str, Any]) -> Description:
        """The feature as the manifest holds it; `statistics` is what the analysis found for it."""
        raise NotImplementedError

    def tfds(self, description: Description) -> dict[str, Any]:
        """The feature as TensorFlow Datasets' `features.json` writes it."""
        raise NotImplementedError


def tfds_scalar(dtype: str) -> dict[str, Any]:
    """TensorFlow Datasets' JSON of a scalar."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.scalar.Scalar",
        "tensor": {"shape": {}, "dtype": dtype, "encoding": "none"},
    }
