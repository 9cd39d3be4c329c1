"""A figure of two versions, such as the share of lost rows, which the gate may limit.

>>> figure = Figure("rows_lost", "train", 0.4, "1,000 → 600 rows", limit=0.1)
>>> figure.is_breach, str(figure)
(True, 'rows_lost of train is 0.4, more than 0.1: 1,000 → 600 rows')
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.dataset.counts import FILTERED
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut

SLACK = 1.25
"""A new span may exceed earlier spans' largest figure by this factor; for a share, 1 - share may shrink by it."""
Pair = Sequence[int]  # a number before, and after


@dataclass(frozen=True)
class Figure:
    """A figure of one rule, with the gate's limit."""

    rule: str  # the limiting option of `gate`
    subject: str  # `all`, a split, a feature, a feature and a split, `age (train)`, or a span's rows, `rows`
    value: float
    detail: str = ""  # the change, for people
    counted: float = math.inf  # rows or values on the smaller side; infinite if any number is enough
    feature: str = ""  # the compared feature; empty for rows
    span: str = ""  # the compared new span; empty for all rows
    limit: float | None = None  # the largest value allowed; None: any
    usual: float | None = None  # the largest value of earlier spans; None if too few are known

    @property
    def is_breach(self) -> bool:
        """Whether the value exceeds its limit, and what is usual for a new span."""
        if self.limit is None or self.value <= self.limit:
            return False
        if self.usual is None:
            return True
        most = SLACK * self.usual
        is_share = self.rule not in ("psi", "shift", "appearance", "pixels")  # stays below 1
        return self.value > (min(most, 1 - (1 - self.usual) / SLACK) if is_share else most)

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
        """Returns the figure as JSON, without `usual`."""
        json = {"rule": self.rule, "subject": self.name, "figure": self.value}
        return json | {"limit": self.limit, "detail": self.detail}

    @classmethod
    def from_json(cls, json: Any) -> "Figure":
        """Reads a figure. Raises: DatasetError: invalid."""
        try:
            limit = None if json["limit"] is None else float(json["limit"])
            value, detail = float(json["figure"]), str(json.get("detail", ""))
            return cls(str(json["rule"]), str(json["subject"]), value, detail, limit=limit)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DatasetError(f"a figure of the gate is {cut(repr(json))}") from None


def rise(
    rule: str, subject: str, parts: Pair, wholes: Pair, unit: str = "", feature: str = "", span: str = ""
) -> Iterator[Figure]:
    """Compares the shares of `parts` in nonempty `wholes`; the detail shows counts with a unit, else shares."""
    if min(wholes):
        before, after = (part / whole for part, whole in zip(parts, wholes, strict=True))
        numbers = (f"{part:,} of {whole:,}" for part, whole in zip(parts, wholes, strict=True))
        detail = f"{' → '.join(numbers)} {unit}" if unit else f"{before:.2%} → {after:.2%}"
        value = abs(after - before) if rule == FILTERED else max(0.0, after - before)  # such a fall is one, too
        yield Figure(rule, subject, value, detail, min(wholes), feature, span)


def read_breaches(gate: Mapping[str, Any]) -> Iterator[Figure]:
    """Reads the breaches of a manifest's `gate`. Raises: DatasetError: invalid."""
    return map(Figure.from_json, gate.get("breaches", ()))


def breach_lines(gate: Mapping[str, Any]) -> tuple[str, ...]:
    """Formats the breaches of a manifest's `gate`, a line each."""
    return tuple(map(str, read_breaches(gate)))
