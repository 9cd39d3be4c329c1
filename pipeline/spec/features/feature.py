"""The base of the kinds before TensorFlow: their options, their raw column, and their description in the manifest."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

from pydantic import BeforeValidator, Field, model_validator

from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.yaml_document import Options
from recordmill.transforms.contract.kinds.base import Description, FeatureOptions

Contract = TypeVar("Contract")


class Feature(Options):
    """The options that every kind has."""

    kind: str
    column: str | None = Field(default=None, min_length=1)
    """The source's column; the feature's own name where it is not given."""
    optional: bool = False
    """Whether a row may lack it; such a row is a reject otherwise."""
    column_type: ClassVar[ColumnType]
    """The type of the raw column."""
    contract: ClassVar[type[FeatureOptions]]
    """The options of the same names as the graph takes them."""

    @property
    def analyzed(self) -> bool:
        """Whether the analysis needs the raw column itself."""
        return False

    @property
    def fill(self) -> Any:
        """The value in the raw column of a row that lacks it: the graph takes it for missing."""
        return b""

    def raw_column(self) -> Column | None:
        """Returns the column as the source delivers it; None for a feature that is made of other features."""
        return self._column()

    def _column(self) -> Column:
        return Column(self.column_type, optional=self.optional)

    def check(self, features: Mapping[str, "Feature"]) -> None:
        """Checks the feature against the spec's others, by name.

        Raises: WrongValueError: they do not go together; its path begins at this feature.
        """

    def files(self) -> dict[str, str]:
        """Returns the paths of files that decide what is stored, by option."""
        return {}

    def with_paths(self, change: Callable[[str], str]) -> Self:
        """Returns the same feature with its files' paths changed, such as to absolute ones."""
        return self.model_copy(update={option: change(path) for option, path in self.files().items()})

    def options(self, *, is_label: bool = False) -> FeatureOptions:
        """Returns the options that the graph and the workers need."""
        return self._make(self.contract, is_label=is_label)

    def _changed(self) -> set[str]:
        """Names the options whose value is not the default."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.get_default()}

    def _make(self, kind: type[Contract], **more: Any) -> Contract:
        """Makes the contract's options, or its description, of what has the same names here and in `more`."""
        values = {**dict(self), **more}
        return kind(**{each.name: values[each.name] for each in fields(cast(Any, kind)) if each.name in values})

    def parts(self) -> tuple[str, ...]:
        """Names what is stored beside the feature itself, as `<feature>_<part>`."""
        return ()

    def read_parts(self) -> tuple[str, ...]:
        """Names what the reader gives beside the feature and is not stored, as `<feature>_<part>`."""
        return ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes the feature for the manifest; `statistics` is what the analysis found for it."""
        raise NotImplementedError


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
        return []

    def _column(self) -> Column:
        return replace(super()._column(), many=True, separator=self.separator, length=self.length)

    @property
    def varies(self) -> bool:
        """Whether rows may have different numbers of values."""
        return self.length is None

    def read_parts(self) -> tuple[str, ...]:
        """Names `length`, the number of values, where rows differ in it."""
        return ("length",) if self.varies else ()

    @property
    def read_length(self) -> int | str:
        """The number of values of every row, or `varying`."""
        return self.length or "varying"


def feature_named(name: str, features: Mapping[str, Feature], *path: str) -> Feature:
    """Finds a feature that another option names; `path` leads to that option. Raises: WrongValueError."""
    if name not in features:
        raise WrongValueError(f"there is no feature '{name}'{did_you_mean(name, features)}", *path)
    return features[name]


def _groups(value: Any) -> Any:
    """Reads a list of names as the only group."""
    return (value,) if isinstance(value, list | tuple) and value and isinstance(value[0], str) else value


Group = tuple[str, ...]
Together = Annotated[tuple[Group, ...], BeforeValidator(_groups, Group | tuple[Group, ...])]
"""Groups of features; a single one may be written without the outer list."""


def check_together(groups: tuple[Group, ...], features: Mapping[str, Feature]) -> None:
    """Checks that each group is of two different features or more, all of them lists.

    Raises: WrongValueError: it is not; its path begins at the spec.
    """
    for group in groups:
        if len(set(group)) < max(2, len(group)):
            message = f"should name two lists or more, each once, got [{', '.join(group)}]"
            raise WrongValueError(message, "together")
        for name in group:
            feature = feature_named(name, features, "together")
            column = feature.raw_column()
            if column is None or not column.many:
                message = f"'{name}' is of kind {feature.kind}, one value a row: only lists have lengths to compare"
                raise WrongValueError(message, "together")
