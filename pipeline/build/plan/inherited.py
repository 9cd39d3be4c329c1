"""The parts of the live version that a build takes over: ids of classes, a frozen graph, spans whose shards stay.

All of it is decided here, by the snapshot of the output (`pipeline.versions.base`), before anything is planned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from recordmill.pipeline.build.base.live_analysis import (
    LiveAnalysis,
    Names,
    damaged,
    graph_changes,
    keeps_ids,
    names_to_keep,
)
from recordmill.pipeline.build.plan.spans import SpanError
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.base import Base, Forgotten, rolls_back
from recordmill.pipeline.versions.stores.base import OutputError


@dataclass(frozen=True)
class Inherited:
    """The parts of the live version that the next one continues; none in a first build."""

    names: Names = field(default_factory=dict)
    """The names of classes that keep their ids, by feature."""
    frozen: LiveAnalysis | None = None
    """The analysis that is taken over instead of learning one."""
    spans: LiveAnalysis | None = None
    """The analysis to whose sums those of the spans that are read are added, where shards of others may stay."""
    forgotten: Forgotten = field(default_factory=Forgotten)
    """The keys that are left out."""
    notes: tuple[str, ...] = ()
    """Lines for the user: what cannot be taken over, and why."""


def inherit(
    spec: Spec, base: Base | None, options: RunOptions, *graph: Mapping[str, str], keeps_spans: bool
) -> Inherited:
    """Decides what a build takes over, nothing without a base.

    `graph` are the versions of packages, and the digests of files, that decide the graph (`graph_changes`).
    `keeps_spans` is False where the graph of the live version's spans turned out to be another.

    Raises:
        OutputError: the live version is damaged, so that its ids or its analysis cannot be kept.
        SpanError: some spans are to be built alone, and the others cannot stay.
    """
    if base is None or base.latest is None:
        return Inherited(forgotten=base.forgotten if base else Forgotten())
    names, notes, live = _names(spec, base), tuple[str, ...](), base.live
    frozen = None
    if spec.is_frozen:
        if live is None:
            raise damaged(base.output, base.fault)
        if changes := graph_changes(live, spec, *graph):
            notes = (f"the frozen analysis cannot be kept, all is learned and built anew: {'; '.join(changes)}",)
        else:
            frozen = LiveAnalysis(base.output, live)
    fault = _span_fault(spec, base, frozen, options) if keeps_spans else "its graph is another"
    if fault and options.spans:
        raise SpanError(f"--span keeps the other spans of the live version, and cannot: {fault}; build without --span")
    keeps = spec.has_spans and options.limit is None and live is not None and not fault
    spans = LiveAnalysis(base.output, live, is_frozen=frozen is not None) if keeps and live else None
    return Inherited(names, frozen, spans, base.forgotten, notes)


def _names(spec: Spec, base: Base) -> Names:
    if not any(map(keeps_ids, spec.features.values())):
        return {}
    try:
        if base.live is None:
            raise DatasetError(base.fault)
        return names_to_keep(spec, base.folder, base.live)
    except DatasetError as error:
        raise OutputError(
            f"the ids of classes cannot be kept, since the live version is damaged: {error}; "
            f"{rolls_back(base.output)}, or give new ids by `classes: fresh`"
        ) from None


def _span_fault(spec: Spec, base: Base, frozen: LiveAnalysis | None, options: RunOptions) -> str:
    """Says why no span of the live version can be kept; empty where they can."""
    if base.live is None:
        return f"the live version is damaged: {base.fault}"
    if base.holds_forgotten_rows:
        return "the live version holds forgotten rows"
    if spec.is_frozen:
        return "" if frozen else "the frozen analysis is another"
    holds_sums = spec.summaries and "forgotten" not in base.live.provenance
    return "" if holds_sums and not options.spans else "`analysis: refresh` learns a graph of all rows"
