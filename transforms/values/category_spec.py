"""Names as ids: one per row, such as a classification label, or several, such as tags."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.feature import Feature, ListFeature, feature_named
from recordmill.transforms.values.values_stored import CategoriesDescription, CategoryDescription

Named = TypeVar("Named", tuple[str, ...], dict[str, str], dict[int, str])


def _one_line(name: str) -> str:
    if not name.strip() or "\n" in name or "\r" in name:
        raise ValueError(f"a class is one line and not blank, got {cut(repr(name))}")
    return name


def distinct(names: Named) -> Named:
    """Refuses a name listed twice. Raises: ValueError."""
    for name, times in Counter(names.values() if isinstance(names, dict) else names).most_common(1):
        if times > 1:
            raise ValueError(f"the class {cut(repr(name))} is listed {times} times")
    return names


ClassName = Annotated[str, AfterValidator(_one_line)]
Classes = Annotated[tuple[ClassName, ...], Field(min_length=1), AfterValidator(distinct)]  # class names, ordered by id
DisplayedClasses = Annotated[dict[ClassName, ClassName], Field(min_length=1), AfterValidator(distinct)]
"""The displayed name of each class name in the data, ordered by id."""
FRESH = "fresh"
GivenClasses = Annotated[
    Annotated[Classes, Tag("names")]
    | Annotated[DisplayedClasses, Tag("names with those to show")]
    | Annotated[Literal["fresh"], Tag(FRESH)],
    Discriminator(lambda value: {dict: "names with those to show", str: FRESH}.get(type(value), "names")),
]


def read_classes(path: str | Path) -> tuple[str, ...]:
    """Reads a UTF-8 file of distinct class names, a line each, none blank. Raises: ValueError: it names the file."""
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


class ListedClasses(Feature):
    """Names that a file may list."""

    classes: GivenClasses | None
    classes_file: str | None

    def files(self) -> dict[str, str]:
        return {"classes_file": self.classes_file} if self.classes_file else {}

    def with_classes(self) -> Self:
        """Reads `classes_file`, relative to the working folder, into `classes`. Raises: ValueError."""
        if self.classes_file is None:
            return self
        return self.model_copy(update={"classes": read_classes(self.classes_file), "classes_file": None})


class NamedClasses(ListedClasses):
    """The rules that map names to ids."""

    column_type = ColumnType.CATEGORY
    limits = "missing", "l_infinity", "names_lost", "jensen_shannon", "out_of_vocabulary", "ids_moved"
    counts = "names"
    classes: GivenClasses | None = None
    """The names ordered by id, or a mapping from them to displayed names. By default the data's names: of all splits
    for the label, else of the train split; those in the output's live version keep their ids, unless it is `fresh`."""
    classes_file: str | None = Field(default=None, min_length=1)
    """A file of names, one per line, instead of `classes`."""
    order: Literal["alphabetical", "frequency"] = "alphabetical"
    """The order of names from the data: by Unicode code points, or the most frequent first."""
    max_classes: int | None = Field(default=None, ge=1, strict=True)
    """The number of names from the data to give ids, the most frequent; the others are unknown."""
    minimum_count: int = Field(default=1, ge=1, strict=True)
    """The smallest count in the train split for a name to get an id; rarer names are unknown."""
    oov_buckets: int = Field(default=0, ge=0, le=1 << 20, strict=True)
    """The number of ids for unknown names, by hash; 0: they get id 0, like missing names."""
    hash_buckets: int | None = Field(default=None, ge=1, le=1 << 40, strict=True)
    """The number n of ids without a vocabulary: 1 to n, by the names' hash."""

    @model_validator(mode="after")
    def _check_classes(self) -> "NamedClasses":
        if self.classes is not None and self.classes_file is not None:
            raise ValueError("`classes` and `classes_file` exclude each other: give the names once")
        given = self.given_classes is not None or self.classes_file is not None
        counted = [name for name in ("order", "max_classes", "minimum_count") if name in self._changed()]
        if counted and (given or self.hash_buckets is not None):
            other = "hash_buckets" if self.hash_buckets is not None else "classes"
            raise ValueError(f"`{counted[0]}` needs counted names: leave it out, or `{other}`")
        if self.hash_buckets is not None and (given or self.classes or "oov_buckets" in self._changed()):
            raise ValueError("with `hash_buckets` no name is unknown: leave out `classes` and `oov_buckets`")
        return self

    @property
    def given_classes(self) -> tuple[str, ...] | None:
        """The names in `classes`, as in the data; None if not given."""
        return None if self.classes is None or self.classes == FRESH else tuple(self.classes)

    @property
    def has_vocabulary(self) -> bool:
        return self.hash_buckets is None

    @property
    def learns(self) -> Sequence[str]:
        is_given = self.given_classes is not None or self.classes_file is not None
        return ("vocabularies",) if self.has_vocabulary and not is_given else ()

    @property
    def keeps_ids(self) -> bool:
        return self.analyzed and self.classes != FRESH

    def check_label(self) -> None:
        """Checks that every class of a label gets an id. Raises: WrongValueError: its path starts at this feature."""
        for name in ("max_classes", "minimum_count", "oov_buckets", "hash_buckets"):
            if name in self._changed():
                raise WrongValueError("is not for a label: every class has an id; give `classes`, or none", name)

    def ids(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields of the description for vocabulary and ids."""
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
    """A name as an id: 0 to n-1 for the label, in the order of the classes; for other features 0 is unknown."""

    kind: Literal["category"]
    cross: tuple[str, ...] | None = None
    """Features of kind category to combine into this one, instead of a column; needs `hash_buckets`."""

    @model_validator(mode="after")
    def _check_cross(self) -> "Category":
        if self.cross is None:
            return self
        if self.hash_buckets is None:
            raise ValueError("`cross` needs `hash_buckets`: the number of ids for all combinations")
        if self.column is not None or self.optional:
            raise ValueError("a `cross` combines other features: leave out `column` and `optional`")
        if len(set(self.cross)) < max(2, len(self.cross)):
            raise ValueError(f"`cross` should be two features or more, each once, got [{', '.join(self.cross)}]")
        return self

    def check(self, features: Mapping[str, Feature]) -> None:
        for name in self.cross or ():
            other = feature_named(name, features, "cross")
            if not isinstance(other, Category) or other.cross:
                what = "a cross itself" if isinstance(other, Category) else f"of kind {other.kind}"
                raise WrongValueError(f"'{name}' is {what}: a cross combines categories with a column each", "cross")

    def raw_column(self) -> Column | None:
        return None if self.cross else super().raw_column()

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe(CategoryDescription, **self.ids(statistics), oov_buckets=self.oov_buckets or None)


class Categories(ListFeature, NamedClasses):
    """Names as ids: for the label 0 to n-1; for any other feature 0 pads and unknown names are 1."""

    kind: Literal["categories"]
    oov_buckets: int = Field(default=1, ge=1, le=1 << 20, strict=True)
    """The number of ids for unknown names, by hash: 1 to n."""
    read: Literal["ids", "multi_hot"] | None = None
    """ids: padded ids and their number. multi_hot: 1 or 0 per id. By default `multi_hot` for the label, else `ids`."""

    @property
    def varies(self) -> bool:
        return self.read != "multi_hot" and super().varies

    def describe(self, statistics: dict[str, Any]) -> Description:
        is_label = statistics["is_label"]
        return self._describe(
            CategoriesDescription,
            length=self.read_length,
            read=self.read or ("multi_hot" if is_label else "ids"),
            **self.ids(statistics),
            oov_buckets=None if is_label or self.hash_buckets is not None else self.oov_buckets,
            padding_id=-1 if is_label else 0,
        )


def check_not_crossed(label: str, features: Mapping[str, Feature]) -> None:
    """Checks that the label is in no cross. Raises: WrongValueError: its path starts at the spec."""
    for name, feature in features.items():
        if isinstance(feature, Category) and label in (feature.cross or ()):
            what = f"'{label}' is the label: the model would get what it predicts"
            raise WrongValueError(what, "features", name, "cross")
