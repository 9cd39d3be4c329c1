"""The gate checks a version before it goes live: limits figures of the comparison with the live version.

>>> verdict = judge(ComparedVersion.read(live_folder, live), ComparedVersion.read(folder, manifest), spec.gate)
... # doctest: +SKIP
>>> [str(figure) for figure in verdict.breaches]  # doctest: +SKIP
['rows_lost of train is 0.4, more than 0.1: 1,000 → 600 rows']
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recordmill.pipeline.compare.comparison import Compared, compare
from recordmill.pipeline.compare.figures import Figure
from recordmill.pipeline.compare.usual import DAYS, Past, Usual, with_last_spans, with_new_spans
from recordmill.pipeline.compare.versions import ComparedVersion, is_edited
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.versions.base import Base

if TYPE_CHECKING:
    from recordmill.pipeline.spec.gate import Gate
    from recordmill.pipeline.spec.model import Spec

DISTRIBUTIONS = ("psi", "shift", "jensen_shannon", "l_infinity", "names_lost")
"""Rules that need `min_values`; the others need `min_rows`."""
LEARNED = "out_of_vocabulary"  # of free text, each day has new words: too few spans only show how many
KEEPING_IDS = ("category", "categories")  # kinds that keep names' ids from version to version


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
        before = with_last_spans(before, DAYS)
    after = with_new_spans(ComparedVersion.read(folder, manifest), before.manifest)
    return judge(before, after, spec.gate).to_json()


def judge(before: ComparedVersion, after: ComparedVersion, gate: "Gate") -> Verdict:
    """Compares a version with the live one, `before`, by all rules."""
    usual, compared = _usual(before, gate), compare(before, after)
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


def _usual(before: ComparedVersion, gate: "Gate") -> Usual:
    """Returns the usual figures of new spans; if unknown, those of the live version's last spans."""
    known = Usual.of(before.manifest)
    if not before.spans:
        return known.after([], {})
    compared = compare(before, before)
    known = replace(known, is_whole=bool(before.profiles) and not _damaged(compared, gate))
    return known.after([each for each in _limited(compared.figures, before, before, gate) if each.span], {})


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
                keeps_ids = after.manifest.features[name]["kind"] in KEEPING_IDS and options.get("classes") != "fresh"
                limit = limit if keeps_ids else None
            if figure.limit is not None and figure.rule not in gate.model_fields_set:  # at most the default
                limit = min(figure.limit, limit or 0.0)
            yield replace(figure, limit=limit)
