"""The base of the kinds before TensorFlow: their options, their raw column, and their description in the manifest."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Self, TypeVar, cast

from pydantic import Field

from recordmill.pipeline.options import Options
from recordmill.pipeline.sources.columns import Column
from recordmill.transforms.contract.kinds.base import Description, FeatureOptions

Wanted = TypeVar("Wanted")


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
        """The value in the raw column of a row that lacks it: the graph takes it for missing."""
        return b""

    def raw_column(self) -> Column | None:
        """Gives the column as the source delivers it; None for a feature that is made of other features."""
        raise NotImplementedError

    def check(self, features: Mapping[str, "Feature"]) -> None:
        """Checks the feature against the spec's others, by name.

        Raises:
            WrongValueError: they do not go together; its path begins at this feature.
        """

    def files(self) -> dict[str, str]:
        """Gives the paths of files that decide what is stored, by option."""
        return {}

    def with_paths(self, change: Callable[[str], str]) -> Self:
        """Gives the same feature with its files' paths changed, such as to absolute ones."""
        return self.model_copy(update={option: change(path) for option, path in self.files().items()})

    def options(self, *, is_label: bool = False) -> FeatureOptions:
        """Gives the options that the graph and the workers need."""
        raise NotImplementedError

    def _options(self, kind: Callable[..., Wanted], **more: Any) -> Wanted:
        """Takes the options of the same names, and more."""
        names = {one.name for one in fields(cast(Any, kind))} & (type(self).model_fields.keys() - more.keys())
        return kind(**{name: getattr(self, name) for name in names}, **more)

    def parts(self) -> tuple[str, ...]:
        """Names what is stored beside the feature itself, as `<feature>_<part>`."""
        return tuple(part for part in self.options().parts() if part)

    def read_parts(self) -> tuple[str, ...]:
        """Names what the reader gives beside the feature itself without its being stored, as `<feature>_<part>`."""
        return ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes the feature for the manifest; `statistics` is what the analysis found for it."""
        raise NotImplementedError

    def tfds(self, description: Description) -> dict[str, Any]:
        """Gives the feature as TensorFlow Datasets' `features.json` writes it."""
        raise NotImplementedError

    def tfds_part(self, part: str, description: Description) -> dict[str, Any]:
        """Gives a part as TensorFlow Datasets writes it: one int64 a row, unless the kind says otherwise."""
        return tfds_scalar("int64")


def tfds_sequence(of: str | dict[str, Any]) -> dict[str, Any]:
    """Gives TensorFlow Datasets' JSON of any number of scalars of a dtype, or of another feature."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.sequence_feature.Sequence",
        "sequence": {"feature": tfds_scalar(of) if isinstance(of, str) else of, "length": "-1"},
    }


def tfds_scalar(dtype: str) -> dict[str, Any]:
    """Gives TensorFlow Datasets' JSON of a scalar."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.scalar.Scalar",
        "tensor": {"shape": {}, "dtype": dtype, "encoding": "none"},
    }
