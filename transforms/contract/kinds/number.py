"""Numbers, one or a list a row."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds import base

SCALED_BY: Mapping[str, Sequence[str]] = {
    "none": (),
    "z_score": ("mean", "variance"),
    "min_max": ("minimum", "maximum"),
}
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
class NumberOptions(base.FeatureOptions):
    """The options of one number a row."""

    kind: ClassVar[str] = "number"
    limits: ClassVar[tuple[str, ...]] = ("missing", "jensen_shannon", "psi", "shift")
    clip: tuple[float | None, float | None] | None = None
    transform: str = "none"
    normalize: str = "z_score"
    quantiles: int | None = None
    boundaries: tuple[float, ...] | None = None
    impute: str | float = "mean"
    indicator: bool = False

    @property
    def stored(self) -> str:
        """The stored type: int64 for buckets, float32 for numbers."""
        return "float32" if self.quantiles is None and self.boundaries is None else "int64"

    @property
    def is_learned(self) -> bool:
        """Whether the train split's statistics are needed."""
        imputed = self.optional and self.impute in ("mean", "median")
        return self.normalize != "none" or self.quantiles is not None or imputed


@dataclass(frozen=True, kw_only=True)
class NumbersOptions(base.ListOptions, NumberOptions):
    """The options of a list of numbers a row; a missing list becomes empty, without imputation."""

    kind: ClassVar[str] = "numbers"
    impute: str | float = 0.0


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
        """The names of the statistics in the stored numbers."""
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
        """Returns the number, and 1 for a missing one."""
        value = {"": base.Stored(description["stored"])}
        return value | {"missing": base.Stored("int64")} if description.get("indicator") else value


@dataclass(frozen=True, kw_only=True)
class NumbersDescription(base.ListDescription, Scaled):
    """A list of numbers or bucket ids."""

    kind: ClassVar[str] = "numbers"
