"""Numbers, one or a list a row."""

from dataclasses import dataclass
from typing import ClassVar

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
class NumberOptions(FeatureOptions):
    """The options of one number a row."""

    kind: ClassVar[str] = "number"
    clip: tuple[float | None, float | None] | None = None
    transform: str = "none"
    normalize: str = "z_score"
    quantiles: int | None = None
    boundaries: tuple[float, ...] | None = None
    impute: str | float = "mean"
    indicator: bool = False

    @property
    def stored(self) -> str:
        """The type that is stored: a bucket's id, or the number."""
        return "float32" if self.quantiles is None and self.boundaries is None else "int64"

    @property
    def is_learned(self) -> bool:
        """Whether anything is learned from the values of the train split."""
        imputed = self.optional and self.impute in ("mean", "median")
        return self.normalize != "none" or self.quantiles is not None or imputed


@dataclass(frozen=True, kw_only=True)
class NumbersOptions(ListOptions, NumberOptions):
    """The options of a list of numbers a row; a missing list is empty, so nothing is imputed."""

    kind: ClassVar[str] = "numbers"
    impute: str | float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Scaled:
    stored: str
    normalize: str
    clip: tuple[float | None, ...] | None = left_out(None)
    transform: str = left_out("none")
    boundaries: tuple[float, ...] | None = left_out(None)
    buckets: Count | None = left_out(None)


@dataclass(frozen=True, kw_only=True)
class NumberDescription(_Scaled, Description):
    """One number, or the id of its bucket."""

    kind: ClassVar[str] = "number"
    impute: str | float | None = left_out(None)
    indicator: bool | None = left_out(None)

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Gives the number, and 1 for a row that lacks it."""
        value = {"": Stored(description["stored"])}
        return value | {"missing": Stored("int64")} if description.get("indicator") else value


@dataclass(frozen=True, kw_only=True)
class NumbersDescription(ListDescription, _Scaled):
    """A list of numbers, or of the ids of their buckets."""

    kind: ClassVar[str] = "numbers"
