"""Names as ids, one or several a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds import base

PaddingId: TypeAlias = Annotated[int, range(-1, 2**63)]  # -1 for labels: no id of a class


@dataclass(frozen=True, kw_only=True)
class _Ids:
    stored: str = "int64"
    vocabulary: str | None = base.left_out(None)  # path of the names in the version; None for hashes
    shown: tuple[str, ...] | None = base.left_out(None)  # names to show, by vocabulary line; None: the vocabulary's
    vocabulary_size: Count
    hash_buckets: Count | None = base.left_out(None)
    unknown_id: Count | None = None
    first_id: Count | None = base.left_out(None)
    oov_buckets: Count | None = base.left_out(None)

    def to_json(self) -> dict[str, Any]:
        """Returns the description as in the manifest; hashes have no `unknown_id`."""
        written = super().to_json()  # type: ignore[misc]
        if self.hash_buckets is not None:
            del written["unknown_id"]
        return written

    def name_of(self, names: Sequence[str] | None, id_: int) -> str | int | None:
        """Returns the name of an id; for a hash the id itself; None for a missing name."""
        if names is None:
            return id_ or None  # 0: a missing name; hashes begin at 1
        if id_ >= (self.first_id or 0):
            return names[id_] if id_ < len(names) else base.UNKNOWN
        is_missing = self.unknown_id is not None and id_ < self.unknown_id
        return None if is_missing else base.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class CategoryDescription(_Ids, base.Description):
    """One id a row."""

    kind: ClassVar[str] = "category"
    cross: tuple[str, ...] | None = base.left_out(None)

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        return {"": base.Stored(description["stored"])}

    def words(self) -> str:
        return f"{self.stored} ids" + (f" of {' × '.join(self.cross)}" if self.cross else "")

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> str | int | None:
        return self.name_of(decoding.vocabulary, int(parts[""]))

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

    def words(self) -> str:
        return self.with_length(f"{self.stored} ids{' (multi-hot)' if self.read == 'multi_hot' else ''}")

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> list[str | int | None]:
        return [self.name_of(decoding.vocabulary, id_) for id_ in parts[""].tolist()]
