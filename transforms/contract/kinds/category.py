"""Names as ids, one or several a row."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds.base import (
    Description,
    FeatureOptions,
    Json,
    ListDescription,
    ListOptions,
    Stored,
    left_out,
)


@dataclass(frozen=True, kw_only=True)
class NameOptions(FeatureOptions):
    """The rules by which names become ids."""

    classes: tuple[str, ...] | None = None
    """The names in the order of their ids; None: those of the data."""
    kept: tuple[str, ...] = ()
    """The names of the version before, by id, which keep their ids where the names are those of the data."""
    order: str = "alphabetical"
    """The order of new names: `alphabetical` or `frequency`."""
    max_classes: int | None = None
    minimum_count: int = 1
    oov_buckets: int = 0
    hash_buckets: int | None = None
    is_label: bool = False
    cross: tuple[str, ...] | None = None
    """The features whose names are joined, in place of a column."""

    @property
    def has_vocabulary(self) -> bool:
        """Whether the ids are positions in a list of names."""
        return self.hash_buckets is None

    @property
    def counts_names(self) -> bool:
        """Whether the names are those of the data."""
        return self.has_vocabulary and self.classes is None


@dataclass(frozen=True, kw_only=True)
class CategoryOptions(NameOptions):
    """The options of one name a row."""

    kind: ClassVar[str] = "category"


@dataclass(frozen=True, kw_only=True)
class CategoriesOptions(ListOptions, NameOptions):
    """The options of several names a row."""

    kind: ClassVar[str] = "categories"


@dataclass(frozen=True, kw_only=True)
class _Ids:
    stored: str = "int64"
    vocabulary: str | None = left_out(None)
    """The path of the names' file inside the version; None where ids are hashes."""
    shown: tuple[str, ...] | None = left_out(None)
    """The names that people are shown, by the vocabulary's line; None where they are the vocabulary's own."""
    vocabulary_size: Count
    hash_buckets: Count | None = left_out(None)
    unknown_id: Count | None = None
    first_id: Count | None = left_out(None)
    oov_buckets: Count | None = left_out(None)

    def to_json(self) -> dict[str, Any]:
        """Gives the description as the manifest holds it; hashed ids know no unknown one."""
        written = super().to_json()  # type: ignore[misc]
        if self.hash_buckets is not None:
            del written["unknown_id"]
        return written


@dataclass(frozen=True, kw_only=True)
class CategoryDescription(_Ids, Description):
    """One id a row."""

    kind: ClassVar[str] = "category"
    cross: tuple[str, ...] | None = left_out(None)

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Gives the id."""
        return {"": Stored(description["stored"])}


PaddingId: TypeAlias = Annotated[int, range(-1, 2**63)]
"""-1 for labels: no id of a class."""


@dataclass(frozen=True, kw_only=True)
class _IdLists(ListDescription):
    read: str
    """`ids`, or `multi_hot`."""


@dataclass(frozen=True, kw_only=True)
class CategoriesDescription(_Ids, _IdLists):
    """A list of ids a row."""

    kind: ClassVar[str] = "categories"
    padding_id: PaddingId
