"""Names as ids, numbers, and values stored unchanged: columns of the source, and tensors of the user's own function."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np

from recordmill.pipeline.json_values import Count
from recordmill.transforms.base import description as base

PaddingId: TypeAlias = Annotated[int, range(-1, 2**63)]  # -1 for labels: no id of a class


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


SCALED_BY = {"none": (), "z_score": ("mean", "variance"), "min_max": ("minimum", "maximum")}
"""The statistics used by each normalization."""
UNTRANSFORMED: Mapping[str, Callable[[float], float]] = {"none": float, "log": math.exp, "log1p": math.expm1}
EPSILON = 2.0**-23  # float32's step at 1: the remainder of a zero is smaller
SMALLEST = 2.0**-126
"""The smallest normal float32, 1.2e-38. TensorFlow may flush smaller values to 0, so they are 0 everywhere."""
TINY = "values nearer to 0 than 1.2e-38"


@dataclass(frozen=True)
class Bucket:
    """A number stored as a bucket's id: at least `low`, less than `high`."""

    id: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.id} [{self.low:g}, {self.high:g})"


@dataclass(frozen=True, kw_only=True)
class Scaled(base.Description):
    """The steps applied to stored numbers."""

    stored: str
    normalize: Annotated[str, tuple(SCALED_BY)]
    clip: tuple[float | None, ...] | None = base.left_out(None)
    transform: Annotated[str, tuple(UNTRANSFORMED)] = base.left_out("none")
    boundaries: tuple[float, ...] | None = base.left_out(None)
    buckets: Count | None = base.left_out(None)

    @property
    def scaled_by(self) -> Sequence[str]:
        return SCALED_BY[self.normalize]

    def type_words(self) -> str:
        return self.stored + ("" if self.buckets is None else f" ids of {self.buckets:,} buckets")

    def decode(self, stored: Any, decoding: base.Decoding) -> float | Bucket:
        """Undoes normalization and transform, within float32; returns the stored number if statistics are missing."""
        stored, statistics = stored.item(), decoding.statistics
        if self.buckets is not None:
            edges = [-math.inf, *(self.boundaries or ()), math.inf]
            return Bucket(int(stored), *edges[int(stored) : int(stored) + 2])
        if not all(name in statistics for name in self.scaled_by):
            return base.short(stored)
        scale, start = 1.0, 0.0
        if self.normalize == "z_score":
            scale, start = math.sqrt(statistics["variance"]), statistics["mean"]
        elif self.normalize == "min_max":
            scale, start = statistics["maximum"] - statistics["minimum"], statistics["minimum"]
        value = stored * (scale or 1.0) + start
        is_zero = abs(value) < EPSILON * abs(start)
        return base.short(UNTRANSFORMED[self.transform](0.0 if is_zero else value))


@dataclass(frozen=True, kw_only=True)
class NumberDescription(Scaled):
    """One number, or a bucket id."""

    kind: ClassVar[str] = "number"
    impute: str | float | None = base.left_out(None)
    indicator: bool | None = base.left_out(None)

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        value = {"": base.Stored(description["stored"])}
        return value | {"missing": base.Stored("int64")} if description.get("indicator") else value


@dataclass(frozen=True, kw_only=True)
class NumbersDescription(base.ListDescription, Scaled):
    """A list of numbers or bucket ids."""

    kind: ClassVar[str] = "numbers"


MISSING: Mapping[str, Any] = {"bytes": b"", "int64": 0, "float32": math.nan}
"""The values that stand for a missing one, by type."""


@dataclass(frozen=True, kw_only=True)
class _Unchanged(base.Description):
    stored: str

    @property
    def padding(self) -> Any:
        return b"" if self.stored == "bytes" else 0

    def decode(self, stored: Any, decoding: base.Decoding) -> Any:
        if isinstance(stored, bytes | memoryview):
            return bytes(stored)
        if isinstance(stored, list):
            return [bytes(each) for each in stored]
        return _nested(stored.tolist()) if stored.dtype == np.float32 else stored.tolist()


def _nested(numbers: Any) -> Any:
    return [_nested(each) for each in numbers] if isinstance(numbers, list) else base.short(numbers)


@dataclass(frozen=True, kw_only=True)
class RawDescription(_Unchanged):
    """A value a row, or a list."""

    kind: ClassVar[str] = "raw"
    length: Count | str | None = base.left_out(None)  # values of every row, or `varying`; None: not a list
    max_length: Count | None = None
    optional: bool = base.left_out(False)  # a record may lack the value, which is then `blank`

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        value = {"": base.Stored(description["stored"], None if "length" in description else ())}
        return value | {"missing": base.Stored("int64")} if description.get("optional") else value

    @property
    def blank(self) -> Any:
        return MISSING[self.stored]

    def type_words(self) -> str:
        return self.stored if self.length is None else base.counted_words(self.stored, self.length, self.max_length)

    def to_json(self) -> dict[str, Any]:
        written = super().to_json()
        if self.length is None:
            del written["max_length"]
        return written


@dataclass(frozen=True, kw_only=True)
class OwnDescription(_Unchanged):
    """A tensor of the user's own function."""

    kind: ClassVar[str] = "own"
    shape: tuple[Count, ...] | None  # a row's shape; None: lists of varying length

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        shape = description["shape"]
        return {"": base.Stored(description["stored"], None if shape is None else tuple(shape))}

    def type_words(self) -> str:
        if self.shape is None:
            return base.counted_words(self.stored, "varying", None)
        return f"{self.stored} {base.sides_words(self.shape)}".strip()
