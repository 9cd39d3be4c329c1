"""The gate checks a version before it goes live: limits figures of the comparison with the live version.

A day naturally differs from all rows, such as by its date. So a new span's figure is a breach if it exceeds both
its limit and the figures of earlier spans when they were new. Each version keeps, in its manifest's `gate`, the rows of
the last spans, and their figures near or above a limit. A span's breaches are approved once that version is live: they
are usual for the same span in later versions, until exceeded.

>>> usual = Usual({"mon": 90, "tue": 80}, {"psi": {"age (train)": {"mon": 7.9}}})
>>> usual.to_json()["figures"]["psi"]
{'age (train)': {'mon': 7.9}}
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from recordmill.pipeline.compare.comparison import Compared, compare
from recordmill.pipeline.compare.figures import SLACK, Figure
from recordmill.pipeline.compare.versions import ComparedVersion, SpanProfile, is_edited
from recordmill.pipeline.dataset import arrow_tables, manifest_parts, profile
from recordmill.pipeline.dataset.counts import SpanReport, by_split
from recordmill.pipeline.dataset.file_names import REPORT, span_file
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.dataset.paths import read_inner
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.batches import by_key
from recordmill.pipeline.versions.base import Base
from recordmill.transforms.base.kinds import read_description

if TYPE_CHECKING:
    from recordmill.pipeline.spec.gate import Gate
    from recordmill.pipeline.spec.model import Spec

LEAST = 5  # earlier spans
DAYS = 35  # five weeks
HOURS = 192  # eight days
STEADY_DAYS, STEADY_HOURS = 14, 168  # two weeks, one week
Past = Mapping[str, Mapping[str, Mapping[str, float]]]
DISTRIBUTIONS = ("psi", "shift", "jensen_shannon", "l_infinity", "names_lost")
"""Rules that need `min_values`; the others need `min_rows`."""
LEARNED = "out_of_vocabulary"  # of free text, each day has new words: too few spans only show how many


@dataclass(frozen=True)
class Usual:
    """The last compared spans, with rows and figures."""

    rows: Mapping[str, int] = field(default_factory=dict)  # written rows by span
    figures: Past = field(default_factory=dict)  # by rule, subject, span; missing: far below the limit
    approved: Past = field(default_factory=dict)  # of spans held back, live since a person approved them
    is_whole: bool = True  # False if earlier figures are partly unknown: stores none, and the next build retries

    @classmethod
    def of(cls, live: Manifest) -> "Usual":
        """Reads a version's entry, with its spans; ignores a broken one. Not whole if spans lack figures."""
        rows = {name: span.rows.get("written", 0) for name, span in live.spans.items() if not span.members}
        usual = cls(rows, is_whole=not rows)
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            names = {name: name for name in live.spans} | ({"": ""} if live.drift else {})  # all rows, if a drift lasts
            names |= {member: name for name, span in live.spans.items() for member in span.members}  # compacted ones
            usual = replace(usual, approved=_only(_read(live.gate["approved"]), names))
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            kept = live.gate["usual"]
            before = {str(name): int(count) for name, count in kept["rows"].items()}
            return replace(usual, rows=before | rows, figures=_read(kept["figures"]), is_whole=True)
        return usual

    def earlier(self, span: str) -> list[str]:
        """Lists the other spans with the same name except for digits."""
        return [name for name in self.rows if name != span and _shape(name) == _shape(span)]

    def applied(self, figure: Figure, *, learns: bool = False) -> Figure:
        """Adds the largest usual figure: of enough earlier spans, or approved; its own, if it `learns` from too few."""
        known = [figure.usual, self.approved.get(figure.rule, {}).get(figure.subject, {}).get(figure.span)]
        spans = self.earlier(figure.span) if figure.span and figure.usual is None else []
        if len(spans) >= LEAST:
            figures = self.figures.get(figure.rule, {}).get(figure.subject, {})
            known.append(max(figures.get(span, 0.0) for span in spans))
        elif learns and self.rows and (figure.span or len(self.rows) < LEAST):
            known.append(figure.value)
        return replace(figure, usual=max((each for each in known if each is not None), default=None))

    def row_figures(self, span: str, rows: int) -> Iterator[Figure]:
        """Compares a new span's rows with the median of enough earlier spans; one without rows with any."""
        counts = [self.rows[name] for name in sorted(self.earlier(span))]
        if (len(counts) >= LEAST or (counts and not rows)) and (middle := median(counts)):
            shortfalls = [max(0.0, 1 - count / middle) for count in (rows, *counts)]
            detail = f"{rows:,} rows, where {count(len(counts), 'span')} like it had {middle:,.0f} (median)"
            usual, limit = max(shortfalls[1:]), None
            if len(counts) >= (STEADY_HOURS if _shape(span).endswith("T00") else STEADY_DAYS):
                change = median(1 - min(pair) / max(*pair, 1) for pair in pairwise(counts))
                limit = max(0.1, 5 * change)  # one change is 0.95 standard deviations of normal counts
            yield Figure("rows_short", "rows", shortfalls[0], detail, middle, span=span, limit=limit, usual=usual)

    def after(self, new: Iterable[Figure], rows: Mapping[str, int]) -> "Usual":
        """Returns the next version's entry: adds the new spans' rows and figures, and drops the oldest by name."""
        all_rows = dict(sorted({**self.rows, **rows}.items()))
        new, alike = list(new), by_key(all_rows, _shape)  # the series of like names
        ends = {shape: -(HOURS if shape.endswith("T00") else DAYS) for shape in alike}
        last = {name: name for shape, names in alike.items() for name in names[ends[shape] :]}
        near = [each for each in new if each.limit is not None and each.value * SLACK > each.limit]
        held = {figure.span for figure in new if figure.is_breach}
        return Usual(
            {name: count for name, count in all_rows.items() if name in last},
            _only(_with(self.figures, near), last),
            _with(self.approved, [figure for figure in near if figure.span in held]),
            self.is_whole,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns rows and figures as JSON; empty if not whole."""
        return {"rows": dict(self.rows), "figures": self.figures} if self.is_whole else {}


def _read(past: Any) -> Past:
    return {
        str(rule): {str(subject): {str(s): float(f) for s, f in spans.items()} for subject, spans in each.items()}
        for rule, each in past.items()
    }


def _shape(span: str) -> str:
    return re.sub(r"\d", "0", span)


def _with(past: Past, figures: Iterable[Figure]) -> Past:
    added = {rule: {name: dict(spans) for name, spans in each.items()} for rule, each in past.items()}
    for figure in figures:
        added.setdefault(figure.rule, {}).setdefault(figure.subject, {})[figure.span] = figure.value
    return added


def _only(past: Past, names: Mapping[str, str]) -> Past:
    """Renames the figures of some spans, and drops others; of several spans with one name keeps the largest."""
    return {
        rule: {
            subject: kept
            for subject, each in subjects.items()
            if (kept := {names[span]: each[span] for span in sorted(each, key=each.__getitem__) if span in names})
        }
        for rule, subjects in past.items()
    }


def _profile(folder: Location, manifest: Manifest, span: str) -> SpanProfile:
    """Reads a span's profile. Raises: DatasetError: its report or sums are broken."""
    path, sums = span_file(span, REPORT), span_file(span, "summaries/pixels/")
    totals, moments = dict[str, dict[int, Counter[str]]](), dict[str, dict[str, Any]]()
    try:
        report = SpanReport.of_bytes(read_inner(folder, path, manifest_parts.MOST_BYTES))
        counts = by_split(filter(None, report.shards))
        profiles = {split: each.profile for split, each in counts.items()}
        for file in (file for file in manifest.files if file.startswith(sums)):
            data = read_inner(folder, file, manifest_parts.MOST_BYTES)
            for row in arrow_tables.read_table(folder, file, data).to_pylist():
                total = totals.setdefault(row["feature"], {}).setdefault(row["channel"], Counter())
                total.update({name: row[name] for name in profile.PIXEL_SUMS})
        for name, each in totals.items():
            channels = len(manifest.statistics.get(name, {}).get("mean", each))
            moments[name] = profile.pixel_moments([each[channel] for channel in sorted(each)], channels)
        return SpanProfile(profiles, moments)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{folder / path} is broken ({error}): build again") from None


@dataclass(frozen=True)
class Verdict:
    """Figures of one comparison, with their limits."""

    live: str  # the live version's name
    figures: tuple[Figure, ...] = ()
    not_compared: tuple[str, ...] = ()  # a line with the reason for each skipped part
    usual: Mapping[str, Any] = field(default_factory=dict)  # `gate.usual`: compared spans, for later versions
    approved: Past = field(default_factory=dict)  # `gate.approved`: breaches tolerated later, once approved

    @property
    def breaches(self) -> tuple[Figure, ...]:
        """Figures beyond their limits."""
        return tuple(figure for figure in self.figures if figure.is_breach)

    def to_json(self) -> dict[str, Any]:
        """Returns the manifest's `gate`: every figure by rule and subject, and the breaches."""
        figures: dict[str, dict[str, float]] = {}
        for figure in self.figures:
            figures.setdefault(figure.rule, {})[figure.name] = figure.value
        breaches = [figure.to_json() for figure in self.breaches]
        json = {"live": self.live, "figures": figures, "breaches": breaches, "not_compared": list(self.not_compared)}
        kept = {"usual": dict(self.usual), "approved": dict(self.approved)}
        return json | {name: entry for name, entry in kept.items() if entry}


def gate_entry(spec: "Spec", base: Base, folder: Location, manifest: Manifest) -> dict[str, Any]:
    """Compares a version, published or assembled in a folder, with the live one, for its manifest's entry `gate`.

    Empty without a live version or with `gate: false`. An unreadable live version does not prevent publishing; the
    entry says so. Damaged files of either version are skipped, and count as a breach.
    """
    if spec.gate is False or base.version in (None, manifest.version):
        return {}
    try:
        if base.live is None:
            raise DatasetError(base.fault)
        before = ComparedVersion.read(base.folder, base.live)
    except DatasetError as error:
        return Verdict(base.version or "", not_compared=(str(error),)).to_json()
    if not Usual.of(before.manifest).is_whole:
        names = [name for name, span in before.manifest.spans.items() if not span.members][-DAYS:]
        with suppress(DatasetError):  # if one is damaged, only limits decide
            before = replace(before, spans={name: _profile(before.folder, before.manifest, name) for name in names})
    after = ComparedVersion.read(folder, manifest)
    known = {key for span in before.manifest.spans.values() for key in (span.key, *span.members.values())}
    keys = {name: {*span.members.values()} or {span.key} for name, span in manifest.spans.items()}
    new = [name for name, of_span in keys.items() if not of_span <= known]
    spans, faults = dict[str, SpanProfile](), [after.fault] if after.fault else []
    told = (name for name in new if span_file(name, REPORT) in manifest.files)  # forgetting a row takes it away
    for name in told if len(new) < len(keys) else ():  # unless all are new
        try:
            spans[name] = _profile(folder, manifest, name)
        except DatasetError as error:
            spans[name] = SpanProfile({})
            faults.append(str(error))
    return judge(before, replace(after, spans=spans, fault="; ".join(faults)), spec.gate).to_json()


def judge(before: ComparedVersion, after: ComparedVersion, gate: "Gate") -> Verdict:
    """Compares a version with the live one, `before`, by all rules."""
    known, earlier, compared = Usual.of(before.manifest), list[Figure](), compare(before, after)
    if before.spans:  # what is usual is unknown: takes the live version's last spans
        of_live = compare(before, before)
        known = replace(known, is_whole=bool(before.profiles) and not _damaged(of_live, gate))
        earlier = [each for each in _limited(of_live.figures, before, before, gate) if each.span]
    usual = known.after(earlier, {})
    rows = {name: after.manifest.spans[name].rows.get("written", 0) for name in after.spans}
    of_spans = [figure for span, count in rows.items() for figure in usual.row_figures(span, count)]
    limited = _limited([*compared.figures, *of_spans], before, after, gate)
    learned = {LEARNED} - gate.model_fields_set
    figures = [usual.applied(each, learns=each.rule in learned - gate.given(each.feature)) for each in limited]
    if damaged := _damaged(compared, gate):  # unjudged parts must not go live unnoticed
        detail = f"{'; '.join(damaged)}; see `recordmill verify`"
        figures.append(Figure("not_compared", "features", len(damaged), detail, limit=0.0))
    drift = after.manifest.drift.get("features", {})  # against a frozen analysis: as lasting as a span
    lasting = [each for each in figures if each.span or (each.rule == "pixels" and each.feature in drift)]
    kept = usual.after(lasting, rows)
    entry = kept.to_json() if after.manifest.spans else {}
    return Verdict(before.manifest.version, tuple(figures), tuple(compared.not_compared), entry, kept.approved)


def _damaged(compared: Compared, gate: "Gate") -> list[str]:
    return [line for feature, line in compared.damaged if gate.features.get(feature) is not False]


def _limited(all_: Iterable[Figure], before: ComparedVersion, after: ComparedVersion, gate: "Gate") -> Iterator[Figure]:
    """Yields the figures to judge, with limits; leaves out those of few rows or values, which differ by chance."""
    for figure in all_:
        name, is_judged = figure.feature, gate.features.get(figure.feature) is not False
        options = after.options(name)
        if figure.rule == "schema_changes":
            is_asked = is_edited(before.options(name), options) and gate.schema_changes != "any"
            yield replace(figure, limit=0.0 if is_judged and gate.schema_changes is not None and not is_asked else None)
        elif is_judged and figure.counted >= (gate.min_values if figure.rule in DISTRIBUTIONS else gate.min_rows):
            limit = gate.limit(figure.rule, name)
            if figure.rule == "ids_moved" and "ids_moved" not in gate.given(name):
                ids = read_description(after.manifest.features[name]).ids
                keeps_ids = ids is not None and ids.are_classes and options.get("classes") != "fresh"
                limit = limit if keeps_ids else None
            if figure.limit is not None and figure.rule not in gate.model_fields_set:  # at most the default
                limit = min(figure.limit, limit or 0.0)
            yield replace(figure, limit=limit)
