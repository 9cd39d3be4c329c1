"""The usual figures of new spans: a day differs from all rows by its nature, such as by its weekday or its date.

A figure of a new span is a breach where it is above its limit, and above those that earlier spans had when they were
new. So each version keeps, in `gate` of its manifest, the rows of its last spans, and those of their figures that were
near a limit or above it.

>>> usual = Usual({"mon": 90, "tue": 80}, {"psi": {"age (train)": {"mon": 7.9}}})
>>> usual.to_json()["figures"]["psi"]
{'age (train)': {'mon': 7.9}}
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from statistics import median
from typing import Any

from recordmill.pipeline.compare.figures import SLACK, Figure
from recordmill.pipeline.dataset.manifest import Manifest

LEAST = 5  # earlier spans; fewer say little
LEAST_ALIKE = 4  # of a weekday, or of an hour
DAYS = 35  # five weeks
HOURS = 192  # eight days
Past = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Usual:
    """The last spans that were compared, with their rows and figures."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """The rows that each wrote, by its name."""
    figures: Past = field(default_factory=dict)
    """By rule, subject and span; a figure that is left out is far below its limit."""
    is_whole: bool = True
    """False where the figures of some earlier spans are not known: then no version keeps them, and the next one looks
    for them again."""

    @classmethod
    def of(cls, live: Manifest) -> "Usual":
        """Reads those that a version keeps, with its own spans; a broken entry counts as none.

        They are not whole where the version has spans and keeps no figures.
        """
        rows = {name: span.rows.get("written", 0) for name, span in live.spans.items() if not span.members}
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            kept = live.gate["usual"]
            before = {str(name): int(count) for name, count in kept["rows"].items()}
            figures = {
                str(rule): {
                    str(subject): {str(s): float(f) for s, f in spans.items()} for subject, spans in each.items()
                }
                for rule, each in kept["figures"].items()
            }
            return cls(before | rows, figures)
        return cls(rows, is_whole=not rows)

    def earlier(self, span: str) -> list[str]:
        """Names the other spans that are named alike, but for their digits."""
        return [name for name in self.rows if name != span and _shape(name) == _shape(span)]

    def applied(self, figure: Figure) -> Figure:
        """Returns a figure of a new span with the largest one of earlier spans, where there are enough."""
        spans = self.earlier(figure.span) if figure.span and figure.usual is None else []
        if len(spans) < LEAST:
            return figure
        figures = self.figures.get(figure.rule, {}).get(figure.subject, {})
        return replace(figure, usual=max(figures.get(span, 0.0) for span in spans))

    def row_figures(self, span: str, rows: int) -> Iterator[Figure]:
        """Compares the rows of a new span with the median of earlier ones, where there are enough of both.

        Earlier spans are those of its weekday, or of its hour, as soon as there are enough.
        """
        earlier = self.earlier(span)
        alike = [name for name in earlier if _rhythm(name) == _rhythm(span)]
        counts = [self.rows[name] for name in (alike if len(alike) >= LEAST_ALIKE else earlier)]
        if len(earlier) >= LEAST and (middle := median(counts)):
            shortfalls = [max(0.0, 1 - count / middle) for count in (rows, *counts)]
            detail = f"{rows:,} rows, where {len(counts)} spans like it have {middle:,.0f} (median)"
            usual = max(shortfalls[1:])
            yield Figure("rows_short", "rows", shortfalls[0], detail, middle, span=span, usual=usual)

    def after(self, new: Iterable[Figure], rows: Mapping[str, int]) -> "Usual":
        """Returns what the next version keeps: these, the new spans' rows and their figures; the oldest go by name."""
        all_rows = dict(sorted({**self.rows, **rows}.items()))
        last = _last(all_rows)
        figures = {rule: {name: dict(spans) for name, spans in each.items()} for rule, each in self.figures.items()}
        for figure in new:
            if figure.limit is not None and figure.value * SLACK > figure.limit:
                figures.setdefault(figure.rule, {}).setdefault(figure.subject, {})[figure.span] = figure.value
        rows = {name: count for name, count in all_rows.items() if name in last}
        return Usual(rows, _only(figures, last), self.is_whole)

    def to_json(self) -> dict[str, Any]:
        """Returns them as JSON; empty where they are not whole."""
        return {"rows": dict(self.rows), "figures": self.figures} if self.is_whole else {}


def _shape(span: str) -> str:
    return re.sub(r"\d", "0", span)


def _rhythm(span: str) -> str:
    """Returns the weekday of a day, the hour of an hour, nothing for another name."""
    day, _, hour = span.partition("T")
    with suppress(ValueError):
        return hour or str(date.fromisoformat(day).weekday())
    return ""


def _last(spans: Iterable[str]) -> set[str]:
    """Returns the last spans of those that are named alike."""
    alike = defaultdict[str, list[str]](list)
    for name in spans:
        alike[_shape(name)].append(name)
    return {name for shape, names in alike.items() for name in names[-(HOURS if shape.endswith("T00") else DAYS) :]}


def _only(figures: Past, spans: set[str]) -> Past:
    return {
        rule: {
            subject: kept
            for subject, each in subjects.items()
            if (kept := {span: figure for span, figure in each.items() if span in spans})
        }
        for rule, subjects in figures.items()
    }
