"""Numbers, normalized or bucketed by the values of the train split, arrays of numbers, and columns stored unchanged."""

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.arrays import ArrayDescription, ArrayLayout
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.feature import Feature, ListFeature
from recordmill.transforms.values import values_stored as kinds


def to_float32(value: float) -> float:
    """Rounds to the nearest float32. Raises: ValueError: out of range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise ValueError(f"should be within float32's range, got {value:g}") from None


def _fits(value: float) -> float:
    if value and abs(to_float32(value)) < kinds.SMALLEST:
        raise ValueError(f"should be 0 or at least {kinds.SMALLEST:.4g} away from it, got {value:g}")
    return value


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    for left, right in zip(values, values[1:], strict=False):
        if not to_float32(left) < to_float32(right):
            raise ValueError(f"should ascend as float32, got {left:g} before {right:g}")
    return values


def _imputable(value: Any) -> Any:
    if value in ("mean", "median") or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise ValueError(f"should be mean, median or a number, got {cut(repr(value))}")


Float32 = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_fits)]
Boundaries = Annotated[tuple[Float32, ...], Field(min_length=1, max_length=10_000), AfterValidator(_ascending)]
MeanOrMedian = Literal["mean", "median"]
Impute = Annotated[MeanOrMedian | Float32, BeforeValidator(_imputable, MeanOrMedian | Float32)]


class ScaledFeature(Feature):
    """The steps for numbers, in order: clip, transform, normalize or bucket."""

    column_type = ColumnType.NUMBER
    limits = "missing", "jensen_shannon", "psi", "shift"
    counts = "numbers"
    parse: bool = False
    """Whether strings are parsed as numbers, as CSV cells always are."""
    clip: tuple[Float32 | None, Float32 | None] | None = None
    """The lower and the upper limit; null: unlimited."""
    transform: Literal["none", "log", "log1p"] = "none"
    """log: the natural logarithm; needs a `clip` above 0. log1p: of 1 + x, by default with `clip: [0, null]`."""
    normalize: Literal["z_score", "min_max", "none"] = "z_score"
    """z_score: (x - mean) / standard deviation. min_max: (x - minimum) / (maximum - minimum). Over the train split."""
    quantiles: int | None = Field(default=None, ge=2, le=10_000, strict=True)
    """Stores the id of one of this many buckets, equally filled by the train split."""
    boundaries: Boundaries | None = None
    """Stores the bucket's id, by the lower bound of each bucket but the first."""

    @model_validator(mode="before")
    @classmethod
    def _follow(cls, given: Any) -> Any:
        """Sets dependent defaults: `normalize: none` with buckets, `clip` from 0 with `log1p`."""
        if not isinstance(given, dict):
            return given
        buckets = given.get("quantiles") is not None or given.get("boundaries") is not None
        normalize = {"normalize": "none"} if buckets else {}
        clip = {"clip": (0.0, None)} if given.get("transform") == "log1p" and given.get("clip") is None else {}
        return {**normalize, **given, **clip}

    @model_validator(mode="after")
    def _check_number(self) -> "ScaledFeature":
        if self.quantiles is not None and self.boundaries is not None:
            raise ValueError("`quantiles` and `boundaries` exclude each other: both set the buckets")
        if self.is_bucket and self.normalize != "none":
            raise ValueError("`quantiles` and `boundaries` store bucket ids, never normalized: leave out `normalize`")
        low, high = self.clip or (None, None)
        if self.clip == (None, None) or (low is not None and high is not None and low >= high):
            raise ValueError(f"`clip` should be [low, high], one of them may be null, got [{low}, {high}]")
        if self.transform == "log" and (low is None or low <= 0):
            raise ValueError("`log` needs a `clip` from above 0, such as [0.001, null]; see also `log1p`")
        if self.transform == "log1p" and (low is None or to_float32(low) <= -1):
            raise ValueError("`log1p` needs a `clip` from above -1, such as [0, null]")
        return self

    @property
    def is_bucket(self) -> bool:
        return self.quantiles is not None or self.boundaries is not None

    @property
    def imputed(self) -> str | float | None:
        """The number in place of a missing one, `mean` or `median`; None: none is missing."""
        return None

    @property
    def used_statistics(self) -> Sequence[str]:
        imputed = (self.imputed,) if isinstance(self.imputed, str) else ()
        if self.boundaries is not None:
            return imputed
        if self.quantiles is not None:
            return "boundaries", *imputed
        return tuple(dict.fromkeys([*kinds.SCALED_BY[self.normalize], *imputed]))

    @property
    def learns(self) -> Sequence[str]:
        """Sums and, for medians and quantiles, counts of the train split's numbers."""
        used = {*self.used_statistics}
        return ("moments", "quantiles")[: bool(used) + bool(used & {"median", "boundaries"})]

    def _column(self) -> Column:
        return replace(super()._column(), parse=self.parse)

    def scaling(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields of the description for stored values and buckets."""
        if not self.is_bucket:
            return {"stored": "float32"}
        boundaries = tuple(statistics["boundaries"] if self.boundaries is None else self.boundaries)
        return {"stored": "int64", "boundaries": boundaries, "buckets": len(boundaries) + 1}


class Number(ScaledFeature):
    """A number."""

    kind: Literal["number"]
    fill: ClassVar[Any] = math.nan
    impute: Impute = "mean"
    """With `optional`: replaces missing numbers by a raw number, or by the train split's transformed mean or median."""
    indicator: bool = False
    """With `optional`: whether `<feature>_missing` marks missing numbers."""

    @model_validator(mode="after")
    def _check_optional(self) -> "Number":
        for name in ("impute", "indicator"):
            if not self.optional and name in self._changed():
                raise ValueError(f"`{name}` is for rows without the number: give `optional: true`, or leave it out")
        return self

    @property
    def imputed(self) -> str | float | None:
        return self.impute if self.optional else None

    def describe(self, statistics: dict[str, Any]) -> Description:
        missing = {"impute": self.imputed, "indicator": self.indicator if self.optional else None}
        return self._describe(kinds.NumberDescription, **self.scaling(statistics), **missing)


class Numbers(ListFeature, ScaledFeature):
    """A list of numbers."""

    kind: Literal["numbers"]

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe(kinds.NumbersDescription, **self.scaling(statistics), length=self.read_length)


MOST_BYTES = 64 << 20  # 64 MiB, as of a text
Side = Annotated[int, Field(ge=1, strict=True)]


class Array(Feature):
    """An array of numbers."""

    column_type = ColumnType.ARRAY
    is_content = True
    kind: Literal["array"]
    shape: tuple[Side | None, ...] = Field(min_length=1, max_length=8)
    """The sides of each array; the first may be null: it varies by row."""
    dtype: Literal["uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32"] = "float32"
    """The stored and read type of the numbers."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """With a null side: the entries to keep and to pad batches to. None: all, padded to a batch's longest array."""

    @model_validator(mode="after")
    def _check_shape(self) -> "Array":
        if None in self.shape[1:]:
            raise ValueError(f"only the first side of `shape` may be null, got {list(self.shape)}")
        if self.max_length is not None and not self.layout.is_ragged:
            raise ValueError("`max_length` needs null as the first side of `shape`")
        if self.layout.unit > MOST_BYTES:
            raise ValueError(f"an array has at most 64 MiB, one of {self.layout} has {self.layout.unit:,} bytes")
        return self

    @property
    def layout(self) -> ArrayLayout:
        return ArrayLayout(self.dtype, self.shape)

    def _column(self) -> Column:
        return replace(super()._column(), array=self.layout)

    def read_parts(self) -> tuple[str, ...]:
        return ("length",) if self.layout.is_ragged else ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe(ArrayDescription)


COLUMN_TYPES = {"bytes": ColumnType.TEXT, "int64": ColumnType.INTEGER, "float32": ColumnType.NUMBER}


class Raw(ListFeature):
    """A value, or a list, stored unchanged."""

    column_type = ColumnType.TEXT
    kind: Literal["raw"]
    type: Literal["bytes", "int64", "float32"] = "bytes"
    """bytes: a string's UTF-8."""
    many: bool = False
    """Whether a row has a list, with `length`, `max_length` and `separator`."""

    @model_validator(mode="after")
    def _check_many(self) -> "Raw":
        for name in ("length", "max_length", "separator"):
            if not self.many and name in self._changed():
                raise ValueError(f"`{name}` is for lists: give `many: true`, or leave it out")
        return self

    @property
    def is_packable(self) -> bool:
        return self.many and self.type == "int64"

    @property
    def fill(self) -> Any:
        return [] if self.many else kinds.MISSING[self.type]

    @property
    def varies(self) -> bool:
        return self.many and super().varies

    def parts(self) -> tuple[str, ...]:
        return ()

    def _column(self) -> Column:
        return replace(super()._column(), type=COLUMN_TYPES[self.type], many=self.many)

    def describe(self, statistics: dict[str, Any]) -> Description:
        length = self.read_length if self.many else None  # the graph fills an optional one
        return self._describe(kinds.RawDescription, stored=self.type, length=length, optional=False)
