"""A figure of two versions, such as the share of rows that were lost, which the gate may limit.

>>> figure = Figure("rows_lost", "train", 0.4, "1,000 → 600 rows", limit=0.1)
>>> figure.is_breach, str(figure)
(True, 'rows_lost of train is 0.4, more than 0.1: 1,000 → 600 rows')
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut

SLACK = 1.25
"""The factor by which a new span may exceed the largest figure of earlier ones, and what is left up to 1 be less."""
UNBOUNDED = ("psi", "shift", "appearance", "pixels")
"""The rules of spans whose figures may exceed 1."""


@dataclass(frozen=True)
class Figure:
    """A figure of one rule, with the gate's limit on it."""

    rule: str
    """The option of `gate` that limits it."""
    subject: str
    """`all`, a split, a feature, a feature and a split, `age (train)`, or the rows of a span, `rows`."""
    value: float
    detail: str = ""
    """The change, for people."""
    counted: float = math.inf
    """The rows or values that it was computed from, on the side that has fewer; infinite where any number will do."""
    feature: str = ""
    """The feature whose values are compared; empty for rows."""
    span: str = ""
    """The new span whose rows are compared; empty for all rows."""
    limit: float | None = None
    """The largest value that is no breach; None for no limit."""
    usual: float | None = None
    """The largest value of earlier spans; None where too few are known."""

    @property
    def is_breach(self) -> bool:
        """Whether the value is above its limit, and above what is usual for a new span."""
        if self.limit is None or self.value <= self.limit:
            return False
        if self.usual is None:
            return True
        most = SLACK * self.usual  # of a share, below 1 as long as the usual one is
        return self.value > (most if self.rule in UNBOUNDED else min(most, 1 - (1 - self.usual) / SLACK))

    @property
    def name(self) -> str:
        """The subject with the span: `age (train, 2026-11-20)`."""
        if not self.span:
            return self.subject
        return f"{self.subject[:-1]}, {self.span})" if self.subject.endswith(")") else f"{self.subject} ({self.span})"

    def __str__(self) -> str:
        limit = "" if self.limit is None else f", {'more' if self.is_breach else 'not more'} than {self.limit:.4g}"
        return f"{self.rule} of {self.name} is {self.value:.4g}{limit}{self.detail and f': {self.detail}'}"

    def to_json(self) -> dict[str, Any]:
        """Returns the figure as JSON, without those of earlier spans."""
        return {
            "rule": self.rule,
            "subject": self.name,
            "figure": self.value,
            "limit": self.limit,
            "detail": self.detail,
        }

    @classmethod
    def from_json(cls, json: Any) -> "Figure":
        """Reads a figure. Raises: DatasetError: it is something else."""
        try:
            limit = None if json["limit"] is None else float(json["limit"])
            value, detail = float(json["figure"]), str(json.get("detail", ""))
            return cls(str(json["rule"]), str(json["subject"]), value, detail, limit=limit)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DatasetError(f"a figure of the gate is {cut(repr(json))}") from None


def rise(
    rule: str,
    subject: str,
    parts: Sequence[int],
    wholes: Sequence[int],
    unit: str = "",
    feature: str = "",
    span: str = "",
) -> Iterator[Figure]:
    """Compares the share of `parts` in `wholes`, before and after, where there are any on both sides.

    The detail shows the numbers in a unit, or without one the shares.
    """
    if min(wholes):
        before, after = (part / whole for part, whole in zip(parts, wholes, strict=True))
        numbers = (f"{part:,} of {whole:,}" for part, whole in zip(parts, wholes, strict=True))
        detail = f"{' → '.join(numbers)} {unit}" if unit else f"{before:.2%} → {after:.2%}"
        yield Figure(rule, subject, max(0.0, after - before), detail, min(wholes), feature, span)


def read_breaches(gate: Mapping[str, Any]) -> Iterator[Figure]:
    """Reads the breaches of a manifest's `gate`. Raises: DatasetError: they are something else."""
    return map(Figure.from_json, gate.get("breaches", ()))
