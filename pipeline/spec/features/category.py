"""Names, one a row or several such as tags: stored as ids, and the labels of classification."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.feature import Feature, ListFeature, feature_named
from recordmill.transforms.contract.kinds.base import Description, FeatureOptions
from recordmill.transforms.contract.kinds.category import (
    CategoriesDescription,
    CategoriesOptions,
    CategoryDescription,
    CategoryOptions,
)

Named = TypeVar("Named", tuple[str, ...], dict[str, str])


def _one_line(name: str) -> str:
    if not name.strip() or "\n" in name or "\r" in name:
        raise ValueError(f"a class is one line and not blank, got {cut(repr(name))}")
    return name


def _distinct(names: Named) -> Named:
    for name, times in Counter(names.values() if isinstance(names, dict) else names).most_common(1):
        if times > 1:
            raise ValueError(f"the class {cut(repr(name))} stands here {times} times")
    return names


ClassName = Annotated[str, AfterValidator(_one_line)]
Classes = Annotated[tuple[ClassName, ...], Field(min_length=1), AfterValidator(_distinct)]
"""Names of classes in the order of their ids."""


DisplayedClasses = Annotated[dict[ClassName, ClassName], Field(min_length=1), AfterValidator(_distinct)]
"""Names of classes as the data has them in the order of their ids, each with the name that people are shown."""
FRESH = "fresh"
GivenClasses = Annotated[
    Annotated[Classes, Tag("names")]
    | Annotated[DisplayedClasses, Tag("names with those to show")]
    | Annotated[Literal["fresh"], Tag(FRESH)],
    Discriminator(lambda value: {dict: "names with those to show", str: FRESH}.get(type(value), "names")),
]


def read_classes(path: str | Path) -> tuple[str, ...]:
    r"""Reads a file of classes: UTF-8, one name a line, `\n` or `\r\n` at each line's end; no line is blank.

    Raises: ValueError: it cannot be read, or its names are not one a line and distinct; the message names the file.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    try:
        return TypeAdapter(Classes).validate_python(lines)
    except ValidationError as error:
        first = error.errors()[0]
        line = f", line {first['loc'][0] + 1}" if first["loc"] and isinstance(first["loc"][0], int) else ""
        raise ValueError(f"{path}{line}: {first['ctx']['error']}") from None


class NamedClasses(Feature):
    """The rules by which names become ids, for one name a row or several."""

    column_type = ColumnType.CATEGORY

    classes: GivenClasses | None = None
    """The names in the order of their ids, or a mapping from them to the names that people are shown. By default those
    of the data: of all splits for the label, of the train split for any other feature; names that the output's live
    version has keep their ids. `fresh`: those of the data, whatever ids the live version gave them."""
    classes_file: str | None = Field(default=None, min_length=1)
    """A file of the names, one a line, instead of `classes`."""
    order: Literal["alphabetical", "frequency"] = "alphabetical"
    """The order of names of the data: that of their Unicode code points, or the most frequent first."""
    max_classes: int | None = Field(default=None, ge=1, strict=True)
    """The number of names of the data, the most frequent, that have an id of their own; the others are unknown."""
    minimum_count: int = Field(default=1, ge=1, strict=True)
    """A name that the train split holds less often is unknown."""
    oov_buckets: int = Field(default=0, ge=0, le=1 << 20, strict=True)
    """The number of ids that the unknown names share, by their hash; 0: they have id 0, as missing names do."""
    hash_buckets: int | None = Field(default=None, ge=1, le=1 << 40, strict=True)
    """Ids are 1 to n by the names' hash, without a vocabulary."""

    @model_validator(mode="after")
    def _check_classes(self) -> "NamedClasses":
        if self.classes is not None and self.classes_file is not None:
            raise ValueError("`classes` and `classes_file` exclude each other: give the names once")
        given = self.given_classes is not None or self.classes_file is not None
        counted = [name for name in ("order", "max_classes", "minimum_count") if name in self._changed()]
        if counted and (given or self.hash_buckets is not None):
            other = "hash_buckets" if self.hash_buckets is not None else "classes"
            raise ValueError(f"`{counted[0]}` is of names that are counted: leave it out, or `{other}`")
        if self.hash_buckets is not None and (given or self.classes or "oov_buckets" in self._changed()):
            raise ValueError("with `hash_buckets` no name is unknown: leave out `classes` and `oov_buckets`")
        return self

    @property
    def given_classes(self) -> tuple[str, ...] | None:
        """The names of `classes`, as the data has them; None where they are not given there."""
        return None if self.classes is None or self.classes == FRESH else tuple(self.classes)

    @property
    def analyzed(self) -> bool:
        """Whether the analysis counts the names: they are neither given nor hashed."""
        return self.given_classes is None and self.classes_file is None and self.hash_buckets is None

    @property
    def keeps_ids(self) -> bool:
        """Whether names of the live version keep their ids."""
        return self.analyzed and self.classes != FRESH

    def options(self, *, is_label: bool = False) -> FeatureOptions:
        return self._make(self.contract, classes=self.given_classes, is_label=is_label)

    def files(self) -> dict[str, str]:
        """Returns the path of the classes' file, if any."""
        return {"classes_file": self.classes_file} if self.classes_file else {}

    def with_classes(self) -> Self:
        """Reads `classes_file` into `classes`; its path is relative to the process.

        Raises: ValueError: the file cannot be read, or is wrong; the message names it.
        """
        if self.classes_file is None:
            return self
        return self.model_copy(update={"classes": read_classes(self.classes_file), "classes_file": None})

    def check_label(self) -> None:
        """Checks the options of a label, each of whose classes has an id.

        Raises: WrongValueError: an option would leave some without an id of their own; its path begins at this feature.
        """
        for name in ("max_classes", "minimum_count", "oov_buckets", "hash_buckets"):
            if name in self._changed():
                raise WrongValueError(
                    "is not for a label: each of its classes has an id; give `classes`, or none", name
                )

    def ids(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Returns the description's fields for the vocabulary and the ids."""
        if self.hash_buckets is not None:
            return {"vocabulary_size": self.hash_buckets + 1}
        is_label = statistics["is_label"]
        first = 0 if is_label else 1 + self.oov_buckets
        return {
            "vocabulary": statistics["vocabulary"],
            "shown": tuple(self.classes.values()) if isinstance(self.classes, dict) else None,
            "vocabulary_size": statistics["words"] + first,
            "unknown_id": None if is_label else min(1, self.oov_buckets),
            "first_id": first,
        }


class Category(NamedClasses):
    """A name as an id: for the label 0 to n-1 in the order of the classes; for any other feature 0 is unknown."""

    contract = CategoryOptions
    kind: Literal["category"]
    cross: tuple[str, ...] | None = None
    """Features of kind category whose names together are this one's, instead of a column; with `hash_buckets`."""

    @model_validator(mode="after")
    def _check_cross(self) -> "Category":
        if self.cross is None:
            return self
        if self.hash_buckets is None:
            raise ValueError("`cross` needs `hash_buckets`: how many ids the combinations share")
        if self.column is not None or self.optional:
            raise ValueError("a `cross` is made of other features: leave out `column` and `optional`")
        if len(set(self.cross)) < max(2, len(self.cross)):
            raise ValueError(f"`cross` should be two features or more, each once, got [{', '.join(self.cross)}]")
        return self

    def check(self, features: Mapping[str, Feature]) -> None:
        """Checks that a cross is made of categories with columns of their own."""
        for name in self.cross or ():
            other = feature_named(name, features, "cross")
            if not isinstance(other, Category) or other.cross:
                what = "a cross itself" if isinstance(other, Category) else f"of kind {other.kind}"
                raise WrongValueError(f"'{name}' is {what}: a cross is of categories with a column each", "cross")

    def raw_column(self) -> Column | None:
        """Returns a column of names; None for a cross."""
        return None if self.cross else super().raw_column()

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._make(CategoryDescription, **self.ids(statistics), oov_buckets=self.oov_buckets or None)


class Categories(ListFeature, NamedClasses):
    """Names as ids: for the label 0 to n-1; for any other feature 0 pads and unknown names are 1."""

    contract = CategoriesOptions
    kind: Literal["categories"]
    oov_buckets: int = Field(default=1, ge=1, le=1 << 20, strict=True)
    """The number of ids that the unknown names share, by their hash: 1 to n."""
    read: Literal["ids", "multi_hot"] | None = None
    """ids: padded ids and their number. multi_hot: for each id 1 if the row has it, else 0. By default `multi_hot` for
    the label, `ids` for any other feature."""

    @property
    def varies(self) -> bool:
        return self.read != "multi_hot" and super().varies

    def describe(self, statistics: dict[str, Any]) -> Description:
        is_label = statistics["is_label"]
        return self._make(
            CategoriesDescription,
            length=self.read_length,
            read=self.read or ("multi_hot" if is_label else "ids"),
            **self.ids(statistics),
            oov_buckets=None if is_label or self.hash_buckets is not None else self.oov_buckets,
            padding_id=-1 if is_label else 0,
            stored="int64",
        )


def check_not_crossed(label: str, features: Mapping[str, Feature]) -> None:
    """Checks that no feature is a cross of the label. Raises: WrongValueError: one is; its path begins at the spec."""
    for name, feature in features.items():
        if isinstance(feature, Category) and label in (feature.cross or ()):
            message = f"'{label}' is the label: a model would be given what it is to predict"
            raise WrongValueError(message, "features", name, "cross")
