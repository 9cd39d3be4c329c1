"""What a kind of feature is, before TensorFlow: its options, its raw column, and how it stands in the manifest."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import Field

from recordmill.pipeline.options import Options
from recordmill.pipeline.sources.columns import Column

Description = dict[str, Any]
"""A feature in `dataset.json`: all that the reader needs to know, JSON only."""


class Feature(Options):
    """The options that every kind has."""

    kind: str
    column: str | None = Field(default=None, min_length=1)
    """The source's column; the feature's own name where it is not given."""
    optional: bool = False
    """Whether a row may lack it; such a row is a reject otherwise."""

    @property
    def analyzed(self) -> bool:
        """Whether the analysis needs the raw column itself."""
        return False

    @property
    def fill(self) -> Any:
        """What stands in the raw column of a row that lacks it: what the graph takes for missing."""
        return b""

    def raw_column(self) -> Column | None:
        """How the source delivers the column; None for a feature that is made of other features."""
        raise NotImplementedError

    def check(self, features: Mapping[str, "Feature"]) -> None:
        """Checks the feature against the spec's others, by name.

        Raises:
            WrongValueError: they do not go together; its path begins at this feature.
        """

    def files(self) -> dict[str, str]:
        """The paths of files that decide what is stored, by option."""
        return {}

    def with_paths(self, change: Callable[[str], str]) -> Self:
        """The same feature with its files' paths changed, such as to absolute ones."""
        return self.model_copy(update={option: change(path) for option, path in self.files().items()})

    def parts(self) -> tuple[str, ...]:
        """What is stored beside the feature itself, as `<feature>_<part>` (`transforms.tensorflow.kind`)."""
        return ()

    def read_parts(self) -> tuple[str, ...]:
        """What the reader gives beside the feature itself without its being stored, as `<feature>_<part>`."""
        return ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        """The feature as the manifest holds it; `statistics` is what the analysis found for it."""
        raise NotImplementedError

    def tfds(self, description: Description) -> dict[str, Any]:
        """The feature as TensorFlow Datasets' `features.json` writes it."""
        raise NotImplementedError

    def tfds_part(self, part: str, description: Description) -> dict[str, Any]:
        """A part as TensorFlow Datasets writes it: one int64 a row, unless the kind says otherwise."""
        return tfds_scalar("int64")


def tfds_sequence(of: str | dict[str, Any]) -> dict[str, Any]:
    """TensorFlow Datasets' JSON of any number of scalars of a dtype, or of another feature."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.sequence_feature.Sequence",
        "sequence": {"feature": tfds_scalar(of) if isinstance(of, str) else of, "length": "-1"},
    }


def tfds_scalar(dtype: str) -> dict[str, Any]:
    """TensorFlow Datasets' JSON of a scalar."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.scalar.Scalar",
        "tensor": {"shape": {}, "dtype": dtype, "encoding": "none"},
    }
