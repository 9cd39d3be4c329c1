"""The gate: checks before a version goes live. It limits figures of the comparison with the live version.

>>> verdict = judge(ComparedVersion.read(live_folder, live), ComparedVersion.read(folder, manifest), spec.gate)
... # doctest: +SKIP
>>> [str(figure) for figure in verdict.breaches]  # doctest: +SKIP
['rows_lost of train is 0.4, more than 0.1: 1,000 → 600 rows']
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recordmill.pipeline.compare.comparison import Compared, compare
from recordmill.pipeline.compare.figures import Figure, read_breaches
from recordmill.pipeline.compare.usual import DAYS, Past, Usual, with_last_spans, with_new_spans
from recordmill.pipeline.compare.versions import ComparedVersion, is_edited
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.versions.base import Base

if TYPE_CHECKING:
    from recordmill.pipeline.spec.gate import Gate
    from recordmill.pipeline.spec.model import Spec

DISTRIBUTIONS = ("psi", "shift", "jensen_shannon", "l_infinity", "names_lost")
"""The rules of which `min_values` are needed; of the others it is `min_rows`."""
KEEPING_IDS = ("category", "categories")
"""The kinds whose names keep their ids from version to version."""


@dataclass(frozen=True)
class Verdict:
    """All figures of one comparison, with their limits."""

    live: str
    """The version that was live."""
    figures: tuple[Figure, ...] = ()
    not_compared: tuple[str, ...] = ()
    """A line for each part that could not be compared, with the reason."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """The entry `gate.usual`, by which later versions know the spans that were compared."""
    approved: Past = field(default_factory=dict)
    """The entry `gate.approved`: the breaches that are none in later versions, if this one is approved."""

    @property
    def breaches(self) -> tuple[Figure, ...]:
        """The figures above their limits."""
        return tuple(figure for figure in self.figures if figure.is_breach)

    def to_json(self) -> dict[str, Any]:
        """Returns what the manifest holds as `gate`: every figure by rule and subject, and the breaches."""
        figures: dict[str, dict[str, float]] = {}
        for figure in self.figures:
            figures.setdefault(figure.rule, {})[figure.name] = figure.value
        json = {
            "live": self.live,
            "figures": figures,
            "breaches": [figure.to_json() for figure in self.breaches],
            "not_compared": list(self.not_compared),
        }
        kept = {"usual": dict(self.usual), "approved": dict(self.approved)}
        return json | {name: entry for name, entry in kept.items() if entry}


def breach_lines(gate: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the breaches of a manifest's `gate`, a line each."""
    return tuple(map(str, read_breaches(gate)))


def gate_entry(spec: "Spec", base: Base, folder: Location, manifest: Manifest) -> dict[str, Any]:
    """Compares a version, published or assembled in a folder, with the live one, for its manifest's entry `gate`.

    A live version that cannot be read is no reason to publish none: the entry says so. Where a file of either version
    is damaged, they are compared as far as it goes, and that is a breach.

    Returns:
        The figures, the breaches, and what was not compared; empty where nothing is live, or the spec has no gate.
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
    """Compares a version with the live one, `before`, rule by rule."""
    usual, compared = _usual(before, gate), compare(before, after)
    rows = {name: after.manifest.spans[name].rows.get("written", 0) for name in after.spans}
    of_spans = [figure for span, count in rows.items() for figure in usual.row_figures(span, count)]
    limited = _limited([*compared.figures, *of_spans], before, after, gate)
    figures = [usual.applied(figure) for figure in limited]
    if damaged := _damaged(compared, gate):  # what is not judged must not go live by itself
        detail = f"{'; '.join(damaged)}; see `recordmill verify`"
        figures.append(Figure("not_compared", "features", len(damaged), detail, limit=0.0))
    drift = after.manifest.drift.get("features", {})  # against a frozen analysis: it lasts as a span does
    lasting = [each for each in figures if each.span or (each.rule == "pixels" and each.feature in drift)]
    kept = usual.after(lasting, rows)
    entry = kept.to_json() if after.manifest.spans else {}
    return Verdict(before.manifest.version, tuple(figures), tuple(compared.not_compared), entry, kept.approved)


def _usual(before: ComparedVersion, gate: "Gate") -> Usual:
    """Returns the figures that new spans usually have; where none are known, those of the live version's last spans."""
    known = Usual.of(before.manifest)
    if not before.spans:
        return known.after([], {})
    compared = compare(before, before)
    known = replace(known, is_whole=bool(before.profiles) and not _damaged(compared, gate))
    return known.after([each for each in _limited(compared.figures, before, before, gate) if each.span], {})


def _damaged(compared: Compared, gate: "Gate") -> list[str]:
    return [line for feature, line in compared.damaged if gate.features.get(feature) is not False]


def _limited(
    figures: Iterable[Figure], before: ComparedVersion, after: ComparedVersion, gate: "Gate"
) -> Iterator[Figure]:
    """Returns the figures that are judged, with their limits: those of few rows or values differ by chance alone."""
    for figure in figures:
        if figure.rule == "schema_changes":
            yield replace(figure, limit=_schema_limit(figure.feature, before, after, gate))
        elif figure.counted >= (gate.min_values if figure.rule in DISTRIBUTIONS else gate.min_rows):
            if gate.features.get(figure.feature) is not False:
                is_limited = figure.rule != "ids_moved" or _limits_ids(figure.feature, after, gate)
                limit = gate.limit(figure.rule, figure.feature) if is_limited else None
                if figure.limit is not None and figure.rule not in gate.model_fields_set:  # the default is the widest
                    limit = min(figure.limit, limit or 0.0)
                yield replace(figure, limit=limit)


def _schema_limit(feature: str, before: ComparedVersion, after: ComparedVersion, gate: "Gate") -> float | None:
    """Returns no limit for a change that a person asked for by the feature's options."""
    is_asked = is_edited(before.options(feature), after.options(feature)) and gate.schema_changes != "any"
    return None if gate.schema_changes is None or is_asked or gate.features.get(feature) is False else 0.0


def _limits_ids(feature: str, after: ComparedVersion, gate: "Gate") -> bool:
    """Whether ids of a feature must stay: where they are kept from version to version, or the spec limits them."""
    kind, options = after.manifest.features[feature]["kind"], after.options(feature)
    return (kind in KEEPING_IDS and options.get("classes") != "fresh") or gate.is_own("ids_moved", feature)
