"""The outcome of the gate: a figure for each thing that was compared, with its limit.

>>> check = Check("rows_lost", "train", 0.4, 0.1, "1,000 → 600 records")
>>> check.is_breach, str(check)
(True, 'rows_lost of train is 0.4, more than 0.1: 1,000 → 600 records')
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut

SLACK = 1.25
"""The factor by which a new span may exceed the largest figure of earlier ones, and what is left up to 1 be less."""
UNBOUNDED = ("psi", "pixels")
"""The rules of spans whose figures may exceed 1."""


@dataclass(frozen=True)
class Check:
    """A figure of one rule."""

    rule: str
    """The option of `gate` that limits it."""
    subject: str
    """`all`, a split, a feature, a feature and a split, `age (train)`, or the rows of a span, `rows`."""
    figure: float
    limit: float | None
    """The largest figure that is no breach; None for no limit."""
    detail: str = ""
    """The change, for people."""
    span: str = ""
    """The new span whose rows are compared; empty for all rows."""
    usual: float | None = None
    """The largest figure of earlier spans; None where too few are known."""

    @property
    def is_breach(self) -> bool:
        """Whether the figure is above its limit, and above what is usual for a new span."""
        above = self.limit is not None and self.figure > self.limit
        return above and (self.usual is None or self.figure > self._largest_usual(self.usual))

    def _largest_usual(self, usual: float) -> float:
        """Gives the largest figure that is still usual; of a share, below 1 as long as the usual one is."""
        return SLACK * usual if self.rule in UNBOUNDED else min(SLACK * usual, 1 - (1 - usual) / SLACK)

    @property
    def name(self) -> str:
        """The subject with the span: `age (train, 2026-11-20)`."""
        if not self.span:
            return self.subject
        return f"{self.subject[:-1]}, {self.span})" if self.subject.endswith(")") else f"{self.subject} ({self.span})"

    def __str__(self) -> str:
        limit = "" if self.limit is None else f", {'more' if self.is_breach else 'not more'} than {self.limit:.4g}"
        return f"{self.rule} of {self.name} is {self.figure:.4g}{limit}{self.detail and f': {self.detail}'}"

    def to_json(self) -> dict[str, Any]:
        """Gives the check as JSON, without the figures of other spans."""
        return {
            "rule": self.rule,
            "subject": self.name,
            "figure": self.figure,
            "limit": self.limit,
            "detail": self.detail,
        }

    @classmethod
    def from_json(cls, json: Any) -> "Check":
        """Reads a check. Raises: DatasetError: it is something else."""
        try:
            limit = None if json["limit"] is None else float(json["limit"])
            detail = str(json.get("detail", ""))
            return cls(str(json["rule"]), str(json["subject"]), float(json["figure"]), limit, detail)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DatasetError(f"a figure of the gate is {cut(repr(json))}") from None


def rise(
    rule: str,
    subject: str,
    parts: Sequence[int],
    wholes: Sequence[int],
    limit: float | None,
    least: int,
    unit: str = "",
) -> Iterator[Check]:
    """Compares the share that some rows or values have, where there are enough on both sides.

    Args:
        rule: the rule.
        subject: as `Check.subject`.
        parts: their numbers before and after.
        wholes: the numbers of all, before and after.
        limit: the largest rise that is no breach.
        least: how many are enough.
        unit: shows both numbers, of these; empty shows the shares.
    """
    if min(wholes) >= least:
        before, after = (part / whole for part, whole in zip(parts, wholes, strict=True))
        numbers = (f"{part:,} of {whole:,}" for part, whole in zip(parts, wholes, strict=True))
        detail = f"{' → '.join(numbers)} {unit}" if unit else f"{before:.2%} → {after:.2%}"
        yield Check(rule, subject, max(0.0, after - before), limit, detail)


@dataclass(frozen=True)
class Verdict:
    """All figures of one comparison."""

    live: str
    """The version that was live."""
    checks: tuple[Check, ...] = ()
    not_compared: tuple[str, ...] = ()
    """A line for each part that could not be compared, with the reason."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """The entry `gate.usual`, by which later versions know the spans that were compared."""

    @property
    def breaches(self) -> tuple[Check, ...]:
        """The figures above their limits."""
        return tuple(check for check in self.checks if check.is_breach)

    def to_json(self) -> dict[str, Any]:
        """Gives what the manifest holds as `gate`: every figure by rule and subject, and the breaches."""
        figures: dict[str, dict[str, float]] = {}
        for check in self.checks:
            figures.setdefault(check.rule, {})[check.name] = check.figure
        json = {
            "live": self.live,
            "figures": figures,
            "breaches": [check.to_json() for check in self.breaches],
            "not_compared": list(self.not_compared),
        }
        return json | ({"usual": dict(self.usual)} if self.usual else {})


def read_breaches(gate: Mapping[str, Any]) -> Iterator[Check]:
    """Reads the breaches of a manifest's `gate`. Raises: DatasetError: they are something else."""
    return map(Check.from_json, gate.get("breaches", ()))
