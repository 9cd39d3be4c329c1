"""The parts of the live version that a build continues: ids of classes, a frozen graph, shards of spans.

They are decided by the snapshot of the output (`pipeline.versions.base`), before anything is planned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recordmill.pipeline.build.base import live_analysis
from recordmill.pipeline.build.base.live_analysis import LiveAnalysis, Names
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.sources.paths import note
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.forgotten import Forgotten
from recordmill.pipeline.versions.latest import rolls_back
from recordmill.pipeline.versions.stores.base import OutputError


class SpanError(UserError):
    """A single span cannot be built into the live version; the message says why, and what to do."""


@dataclass(frozen=True)
class Inherited:
    """The parts of the live version that the next one continues; none in a first build."""

    names: Names = field(default_factory=dict)  # class names that keep their ids, by feature
    analysis: LiveAnalysis | None = None
    """The live version's analysis, frozen or one to add to; None where all is learned."""
    base: Manifest | None = None  # live version, if its spans may be kept
    damaged: tuple[str, ...] = ()  # spans of `base` with missing files
    forgotten: Forgotten = field(default_factory=Forgotten)  # keys to leave out
    notes: tuple[str, ...] = ()  # lines for the user: what cannot be kept, and why

    def with_spans(self, kept: tuple[str, ...]) -> LiveAnalysis | None:
        """Returns the analysis for a build that keeps these spans; None if it learns everything."""
        needed = self.analysis is not None and (self.analysis.is_frozen or kept)
        return replace(self.analysis, spans=kept) if self.analysis and needed else None


def inherit(
    spec: Spec, base: Base | None, options: RunOptions, feature_files: Mapping[str, str], *, keeps_spans: bool
) -> Inherited:
    """Decides what a build takes from its base: nothing without one. Raises: OutputError, SpanError, as `Given.of`."""
    if base is None or base.latest is None:
        return Inherited(forgotten=base.forgotten if base else Forgotten())
    names, notes, live, frozen = _names(spec, base), list[str](), base.live, False
    if spec.is_frozen:
        if live is None:
            raise live_analysis.damaged(base.output, base.fault)
        changes = live_analysis.graph_changes(live, spec, live_analysis.package_versions(), feature_files)
        frozen = not changes
        if changes:
            notes.append(f"the frozen analysis cannot be kept, everything is learned and rebuilt: {'; '.join(changes)}")
    fault = _span_fault(spec, base, frozen, options) if keeps_spans else "its graph is another"
    if fault and options.spans:
        raise SpanError(f"--span keeps the other spans of the live version, and cannot: {fault}; build without --span")
    keeps = live is not None and spec.has_spans and options.limit is None and not fault
    analysis = LiveAnalysis(base.output, live, is_frozen=frozen) if live and (frozen or keeps) else None
    damaged = sorted({span for span in base.missing.values() if span}) if keeps else []
    notes += note("spans read again, since the live version lacks files", damaged)
    return Inherited(names, analysis, live if keeps else None, tuple(damaged), base.forgotten, tuple(notes))


def _names(spec: Spec, base: Base) -> Names:
    if not any(map(live_analysis.keeps_ids, spec.features.values())):
        return {}
    try:
        if base.live is None:
            raise DatasetError(base.fault)
        return live_analysis.names_to_keep(spec, base.folder, base.live)
    except DatasetError as error:
        raise OutputError(
            f"the ids of classes cannot be kept, since the live version is damaged: {error}; "
            f"{rolls_back(base.output)}, or give new ids by `classes: fresh`"
        ) from None


def _span_fault(spec: Spec, base: Base, frozen: bool, options: RunOptions) -> str:
    """Says why no span of the live version can be kept; empty if they can."""
    if base.live is None:
        return f"the live version is damaged: {base.fault}"
    if base.holds_forgotten_rows:
        return "the live version holds forgotten rows"
    if spec.is_frozen:
        return "" if frozen else "the frozen analysis is another"
    holds_sums = spec.summaries and "forgotten" not in base.live.provenance
    return "" if holds_sums and not options.spans else "`analysis: refresh` learns a graph of all rows"
