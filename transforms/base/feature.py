"""Bases of the kinds without TensorFlow: options, raw column, and description in the manifest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast

from pydantic import BeforeValidator, Field, model_validator

from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.pipeline.yaml_document import Options
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.kinds import description_of

Described = TypeVar("Described")


class Feature(Options):
    """The options of every kind, and what its build asks about them."""

    kind: str
    column: str | None = Field(default=None, min_length=1)
    """The source's column; by default the feature's name."""
    optional: bool = False
    """Whether the value may be missing; otherwise such rows are rejects."""
    column_type: ClassVar[ColumnType]
    """The type of the raw column."""
    limits: ClassVar[tuple[str, ...]] = ("missing",)  # the gate limits of this kind
    is_input: ClassVar[bool] = True  # whether the graph, and so the serving model, takes its column, if it has one
    is_content: ClassVar[bool] = False  # whether rows are duplicates by it: a sample itself, no label or side value
    is_image: ClassVar[bool] = False  # whether it stores images, or masks
    is_mask: ClassVar[bool] = False
    counts: ClassVar[Literal["numbers", "names", "words", "labels"] | None] = None
    """The values that a shard counts (`pipeline.build.worker.shard_report`)."""

    @property
    def learns(self) -> Sequence[str]:
        """The names of the summaries of the rows that it learns from (`pipeline.build.summaries`)."""
        return ()

    @property
    def analyzed(self) -> bool:
        """Whether the analysis needs the raw column; of images it needs the pixels."""
        return bool(self.learns) and not self.is_image

    @property
    def has_vocabulary(self) -> bool:
        """Whether ids are lines of a vocabulary."""
        return False

    @property
    def keeps_ids(self) -> bool:
        """Whether learned names keep the live version's ids."""
        return False

    @property
    def needs_model(self) -> bool:
        """Whether ids need a tokenizer's model."""
        return False

    @property
    def in_library(self) -> bool:
        """Whether a model's own library makes the ids, before the graph."""
        return False

    @property
    def used_statistics(self) -> Sequence[str]:
        """The learned statistics of numbers that determine the stored values, as in `dataset.json`."""
        return ()

    @property
    def is_packable(self) -> bool:
        """Whether a row is one list of whole numbers, which a pack may join to others."""
        return False

    @property
    def fill(self) -> Any:
        """The raw value that marks a missing one for the graph."""
        return b""

    def raw_column(self) -> Column | None:
        """Returns the source's column; None for a combination of other features."""
        return self._column()

    def _column(self) -> Column:
        return Column(self.column_type, optional=self.optional)

    def first_column(self, name: str) -> str:
        return self.column or name

    def joined_columns(self, name: str) -> dict[str, tuple[str, Column]]:
        """Returns the columns that make a value, by field, the first one first; empty if it is one."""
        return {}

    def check(self, features: Mapping[str, "Feature"]) -> None:
        """Checks against the spec's features, by name. Raises: WrongValueError: its path starts at this feature."""

    def files(self) -> dict[str, str]:
        """Returns the paths of files that affect stored values, by option."""
        return {}

    def with_paths(self, change: Callable[[str], str]) -> Self:
        """Returns a copy with changed paths of files, such as absolute ones."""
        return self.model_copy(update={option: change(path) for option, path in self.files().items()})

    def owner(self, name: str) -> str:
        """Returns the feature with the vocabulary or tokenizer that the feature `name` uses: itself or a shared one."""
        return name

    def _changed(self) -> set[str]:
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.get_default()}

    def _describe(self, kind: type[Described], **given: Any) -> Described:
        """Makes a description of the given fields, and of the options with the names of others."""
        options = {each.name for each in fields(cast(Any, kind))} & type(self).model_fields.keys()
        return kind(**{name: getattr(self, name) for name in options} | given)

    def parts(self) -> tuple[str, ...]:
        """Names the tensors stored with the feature as `<feature>_<part>`."""
        described = {**dict(self), "stored": "bytes", "encoding": getattr(self, "store", None)}
        return tuple(description_of(self.kind).parts_of(described))[1:]

    def read_parts(self) -> tuple[str, ...]:
        """Names the tensors that only the reader adds, as `<feature>_<part>`."""
        return ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes the feature for the manifest; `statistics` come from the analysis."""
        raise NotImplementedError


class ListFeature(Feature):
    """Several values a row."""

    fill: ClassVar[Any] = []
    length: int | None = Field(default=None, ge=1, strict=True)
    """The required number of values per row; by default any."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """Keeps the first values, and pads batches to this number. None: keeps all, and pads to a batch's longest row."""
    separator: str = Field(default=",", min_length=1)
    """The separator if the source holds the values as one string, such as a CSV cell."""

    @model_validator(mode="after")
    def _check_length(self) -> "ListFeature":
        if self.length is not None and self.max_length is not None:
            raise ValueError("`length` and `max_length` exclude each other: a row has exactly `length` values")
        return self

    def _column(self) -> Column:
        return replace(super()._column(), many=True, separator=self.separator, length=self.length)

    @property
    def varies(self) -> bool:
        return self.length is None

    def read_parts(self) -> tuple[str, ...]:
        return ("length",) if self.varies else ()

    @property
    def read_length(self) -> int | str:
        return self.length or "varying"


def feature_named(name: str, features: Mapping[str, Feature], *path: str) -> Feature:
    """Finds the feature that the option at `path` names. Raises: WrongValueError."""
    if name not in features:
        raise WrongValueError(f"there is no feature '{name}'{did_you_mean(name, features)}", *path)
    return features[name]


def _groups(value: Any) -> Any:
    """Wraps a list of names into one group."""
    return (value,) if isinstance(value, list | tuple) and value and isinstance(value[0], str) else value


Group = tuple[str, ...]
Together = Annotated[tuple[Group, ...], BeforeValidator(_groups, Group | tuple[Group, ...])]
"""Groups of features; a single group needs no outer list."""


def check_together(groups: tuple[Group, ...], features: Mapping[str, Feature]) -> None:
    """Checks that each group has two or more distinct lists. Raises: WrongValueError: its path starts at the spec."""
    for group in groups:
        if len(set(group)) < max(2, len(group)):
            message = f"should name two lists or more, each once, got [{', '.join(group)}]"
            raise WrongValueError(message, "together")
        for name in group:
            feature = feature_named(name, features, "together")
            if not isinstance(feature, ListFeature) and not getattr(feature.raw_column(), "many", False):
                message = f"'{name}' is of kind {feature.kind}, one value a row: only lists have a length"
                raise WrongValueError(message, "together")
