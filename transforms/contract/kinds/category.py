"""Names as ids, one or several a row."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds import base

PaddingId: TypeAlias = Annotated[int, range(-1, 2**63)]  # -1 for labels: no id of a class


@dataclass(frozen=True, kw_only=True)
class NameOptions(base.FeatureOptions):
    """The rules that map names to ids."""

    limits: ClassVar[tuple[str, ...]] = (
        "missing",
        "l_infinity",
        "names_lost",
        "jensen_shannon",
        "out_of_vocabulary",
        "ids_moved",
    )
    classes: tuple[str, ...] | None = None  # names by id; None: learned from the data
    kept: tuple[str, ...] = ()  # names of the previous version by id; learned names keep these ids
    order: str = "alphabetical"  # order of new names: `alphabetical` or `frequency`
    max_classes: int | None = None
    minimum_count: int = 1
    oov_buckets: int = 0
    hash_buckets: int | None = None
    is_label: bool = False
    cross: tuple[str, ...] | None = None  # features that are joined in place of a column

    @property
    def has_vocabulary(self) -> bool:
        """Whether ids are positions in a list of names."""
        return self.hash_buckets is None

    @property
    def counts_names(self) -> bool:
        """Whether the names come from the data."""
        return self.has_vocabulary and self.classes is None


@dataclass(frozen=True, kw_only=True)
class CategoryOptions(NameOptions):
    """The options of one name a row."""

    kind: ClassVar[str] = "category"


@dataclass(frozen=True, kw_only=True)
class CategoriesOptions(base.ListOptions, NameOptions):
    """The options of several names a row."""

    kind: ClassVar[str] = "categories"


@dataclass(frozen=True, kw_only=True)
class _Ids(base.Description):
    stored: str = "int64"
    vocabulary: str | None = base.left_out(None)  # path of the names in the version; None for hashes
    shown: tuple[str, ...] | None = base.left_out(None)  # names to show, by vocabulary line; None: the vocabulary's
    vocabulary_size: Count
    hash_buckets: Count | None = base.left_out(None)
    unknown_id: Count | None = None
    first_id: Count | None = base.left_out(None)
    oov_buckets: Count | None = base.left_out(None)

    @property
    def ids(self) -> base.Ids:
        """The names by id."""
        return base.Ids(
            size=self.vocabulary_size,
            are_classes=True,
            file=self.vocabulary,
            words=self.shown,
            hashes=self.hash_buckets,
            first=self.first_id or 0,
            unknown=self.unknown_id,
            unknown_ids=1 if self.oov_buckets is None else self.oov_buckets,
            padding=getattr(self, "padding_id", None),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the description as in the manifest; hashes have no `unknown_id`."""
        written = super().to_json()
        if self.hash_buckets is not None:
            del written["unknown_id"]
        return written

    def decode(self, stored: Any, decoding: base.Decoding) -> str | int | None:
        """Returns the name of an id; for a hash the id itself; None for a missing name."""
        id_, names = int(stored), decoding.vocabulary
        if names is None:
            return id_ or None  # 0: a missing name; hashes begin at 1
        if id_ >= (self.first_id or 0):
            return names[id_] if id_ < len(names) else base.UNKNOWN
        is_missing = self.unknown_id is not None and id_ < self.unknown_id
        return None if is_missing else base.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class CategoryDescription(_Ids):
    """One id a row."""

    kind: ClassVar[str] = "category"
    cross: tuple[str, ...] | None = base.left_out(None)

    def type_words(self) -> str:
        return f"{self.stored} ids" + (f" of {' × '.join(self.cross)}" if self.cross else "")

    def tfds(self) -> dict[str, Any]:
        """Describes a class label if every id has one name (the unknown id: `[UNK]`), else an int64."""
        if self.vocabulary is None or self.oov_buckets:
            return super().tfds()
        size = {"numClasses": str(self.vocabulary_size)}
        return {"pythonClassName": f"{base.TFDS}.class_label_feature.ClassLabel", "classLabel": size}


@dataclass(frozen=True, kw_only=True)
class _IdLists(base.ListDescription):
    read: str  # `ids`, or `multi_hot`


@dataclass(frozen=True, kw_only=True)
class CategoriesDescription(_Ids, _IdLists):
    """A list of ids a row."""

    kind: ClassVar[str] = "categories"
    padding_id: PaddingId

    def type_words(self) -> str:
        return f"{self.stored} ids{' (multi-hot)' if self.read == 'multi_hot' else ''}"
