"""New spans: their profiles, and the figures that they usually have.

A day differs from all rows by its nature, such as by its weekday or its date. A figure of a new span is a breach where
it is above its limit, and above those that earlier spans had when they were new. So each version keeps, in `gate` of
its manifest, the rows of its last spans, and those of their figures that were near a limit or above it. Those of spans
with a breach are approved if that version is live: they are usual for the same span in later versions, until one is
worse.

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
from itertools import pairwise
from statistics import median
from typing import Any

from recordmill.pipeline.compare.figures import SLACK, Figure
from recordmill.pipeline.compare.versions import ComparedVersion, SpanProfile
from recordmill.pipeline.dataset.arrow_tables import read_table
from recordmill.pipeline.dataset.file_names import REPORT, span_file
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest
from recordmill.pipeline.dataset.manifest_parts import MOST_BYTES, read_report
from recordmill.pipeline.dataset.paths import read_inner
from recordmill.pipeline.dataset.profile import by_split

LEAST = 5  # earlier spans; fewer say little
LEAST_ALIKE = 2  # of a weekday, or of an hour
DAYS = 35  # five weeks
HOURS = 192  # eight days
STEADY_DAYS, STEADY_HOURS = 14, 168  # two weeks, one week: each weekday was there twice, or each of its hours once
SPREADS = 5  # median changes between spans alike; of normal counts one is 0.95 standard deviations
STEADIEST = 0.1
"""The share below the median that is never too small a span."""
Past = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Usual:
    """The last spans that were compared, with their rows and figures."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """The rows that each wrote, by its name."""
    figures: Past = field(default_factory=dict)
    """By rule, subject and span; a figure that is left out is far below its limit."""
    approved: Past = field(default_factory=dict)
    """The figures of spans that were held back, and are live now, so that a person approved them."""
    is_whole: bool = True
    """False where the figures of some earlier spans are not known: then no version keeps them, and the next one looks
    for them again."""

    @classmethod
    def of(cls, live: Manifest) -> "Usual":
        """Reads those that a version keeps, with its own spans; a broken entry counts as none.

        They are not whole where the version has spans and keeps no figures.
        """
        rows = {name: span.rows.get("written", 0) for name, span in live.spans.items() if not span.members}
        usual = cls(rows, is_whole=not rows)
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            usual = replace(usual, approved=_only(_read(live.gate["approved"]), _names(live)))
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            kept = live.gate["usual"]
            before = {str(name): int(count) for name, count in kept["rows"].items()}
            return replace(usual, rows=before | rows, figures=_read(kept["figures"]), is_whole=True)
        return usual

    def earlier(self, span: str) -> list[str]:
        """Names the other spans that are named alike, but for their digits."""
        return [name for name in self.rows if name != span and _shape(name) == _shape(span)]

    def applied(self, figure: Figure) -> Figure:
        """Returns a figure with the largest usual one: of earlier spans, where there are enough, or approved."""
        known = [figure.usual, self.approved.get(figure.rule, {}).get(figure.subject, {}).get(figure.span)]
        spans = self.earlier(figure.span) if figure.span and figure.usual is None else []
        if len(spans) >= LEAST:
            figures = self.figures.get(figure.rule, {}).get(figure.subject, {})
            known.append(max(figures.get(span, 0.0) for span in spans))
        return replace(figure, usual=max((each for each in known if each is not None), default=None))

    def row_figures(self, span: str, rows: int) -> Iterator[Figure]:
        """Compares the rows of a new span with the median of earlier ones, where there are enough of both.

        Earlier spans are those of its weekday, or of its hour, as soon as there are enough. The figure's limit is as
        narrow as these spans are steady.
        """
        earlier = self.earlier(span)
        alike = [name for name in earlier if _rhythm(name) == _rhythm(span)]
        counts = [self.rows[name] for name in (alike if len(alike) >= LEAST_ALIKE else earlier)]
        if len(earlier) >= LEAST and (middle := median(counts)):
            shortfalls = [max(0.0, 1 - count / middle) for count in (rows, *counts)]
            detail = f"{rows:,} rows, where {len(counts)} spans like it have {middle:,.0f} (median)"
            usual = max(shortfalls[1:])
            limit = self._steady_limit(span, earlier)
            yield Figure("rows_short", "rows", shortfalls[0], detail, middle, span=span, limit=limit, usual=usual)

    def _steady_limit(self, span: str, earlier: list[str]) -> float | None:
        """Returns five times the median change from one span to the next alike, weekday by weekday; None for few."""
        if len(earlier) < (STEADY_HOURS if _shape(span).endswith("T00") else STEADY_DAYS):
            return None
        alike = defaultdict[str, list[int]](list)
        for name in sorted(earlier):
            alike[_rhythm(name)].append(self.rows[name])
        pairs = [pair for counts in alike.values() for pair in pairwise(counts)]
        changes = [1 - min(pair) / max(*pair, 1) for pair in pairs]
        return max(STEADIEST, SPREADS * median(changes)) if changes else None

    def after(self, new: Iterable[Figure], rows: Mapping[str, int]) -> "Usual":
        """Returns what the next version keeps: these, the new spans' rows and their figures; the oldest go by name."""
        all_rows = dict(sorted({**self.rows, **rows}.items()))
        last, new = {name: name for name in _last(all_rows)}, list(new)
        near = [each for each in new if each.limit is not None and each.value * SLACK > each.limit]
        held = {figure.span for figure in new if figure.is_breach}
        return Usual(
            {name: count for name, count in all_rows.items() if name in last},
            _only(_with(self.figures, near), last),
            _with(self.approved, [figure for figure in near if figure.span in held]),
            self.is_whole,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns rows and figures as JSON; empty where they are not whole."""
        return {"rows": dict(self.rows), "figures": self.figures} if self.is_whole else {}


def _read(past: Any) -> Past:
    return {
        str(rule): {str(subject): {str(s): float(f) for s, f in spans.items()} for subject, spans in each.items()}
        for rule, each in past.items()
    }


def _names(live: Manifest) -> dict[str, str]:
    """Returns the spans of a version, those in a compacted one under its name; all rows too, if a drift lasts."""
    together = {member: name for name, span in live.spans.items() for member in span.members}
    return {name: name for name in live.spans} | together | ({"": ""} if live.drift else {})


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


def _with(past: Past, figures: Iterable[Figure]) -> Past:
    added = {rule: {name: dict(spans) for name, spans in each.items()} for rule, each in past.items()}
    for figure in figures:
        added.setdefault(figure.rule, {}).setdefault(figure.subject, {})[figure.span] = figure.value
    return added


def _only(past: Past, names: Mapping[str, str]) -> Past:
    """Returns the figures of some spans, under new names; of several spans with one name the largest."""
    return {
        rule: {
            subject: kept
            for subject, each in subjects.items()
            if (kept := {names[span]: each[span] for span in sorted(each, key=each.__getitem__) if span in names})
        }
        for rule, subjects in past.items()
    }


PIXELS = "summaries/pixels/"
SUMS = ("images", "pixels", "total", "squares")
"""The columns of a span's sums of pixels, by feature, channel and level."""


def with_last_spans(version: ComparedVersion, most: int) -> ComparedVersion:
    """Adds a live version's last spans, at most `most`; none where one is damaged, so that limits alone decide."""
    names = [name for name, span in version.manifest.spans.items() if not span.members][-most:]
    with suppress(DatasetError):
        return replace(version, spans={name: _profile(version.folder, version.manifest, name) for name in names})
    return version


def with_new_spans(version: ComparedVersion, live: Manifest) -> ComparedVersion:
    """Adds the spans whose rows the live version lacks, if it has some of its spans; damaged ones make a fault."""
    spans, faults = dict[str, SpanProfile](), [version.fault] if version.fault else []
    known = {key for span in live.spans.values() for key in (span.key, *span.members.values())}
    all_spans = version.manifest.spans
    new = [name for name, span in all_spans.items() if not known.issuperset(span.members.values() or [span.key])]
    for name in new if len(new) < len(all_spans) else []:
        try:
            spans[name] = _profile(version.folder, version.manifest, name)
        except DatasetError as error:
            spans[name] = SpanProfile({})
            faults.append(str(error))
    return replace(version, spans=spans, fault="; ".join(faults))


def _profile(folder: Location, manifest: Manifest, span: str) -> SpanProfile:
    """Reads the profile of a span. Raises: DatasetError: its report or its sums are broken."""
    path = span_file(span, REPORT)
    try:
        profiles = by_split(filter(None, read_report(read_inner(folder, path, MOST_BYTES))["shards"]))
        return SpanProfile(profiles, _pixels(folder, manifest, span_file(span, PIXELS)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{folder / path} is broken ({error}): build again") from None


def _pixels(folder: Location, manifest: Manifest, sums: str) -> dict[str, dict[str, Any]]:
    """Returns `mean` and `variance` by channel, and the number of `images`, of images whose pixels were summed."""
    totals = dict[str, dict[int, list[int]]]()
    for path in (path for path in manifest.files if path.startswith(sums)):
        for row in read_table(folder, path, read_inner(folder, path, MOST_BYTES)).to_pylist():
            total = totals.setdefault(row["feature"], {}).setdefault(row["channel"], [0, 0, 0, 0])
            total[:] = [old + row[name] for old, name in zip(total, SUMS, strict=True)]
    return {name: _moments([total for _, total in sorted(channels.items())]) for name, channels in totals.items()}


def _moments(channels: list[list[int]]) -> dict[str, Any]:
    counted = [(pixels or 1, total, squares) for _, pixels, total, squares in channels]
    variance = [(squares * count - total**2) / count**2 for count, total, squares in counted]
    return {"mean": [total / count for count, total, _ in counted], "variance": variance, "images": channels[0][0]}
