"""The parts of the live version that a build continues: ids of classes, a frozen graph, shards of spans.

They are decided by the snapshot of the output (`pipeline.versions.base`), before anything is planned.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from recordmill.pipeline.build.base import live_analysis
from recordmill.pipeline.build.base.live_analysis import LiveAnalysis, Names
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.counts import ShardReport, SpanReport
from recordmill.pipeline.dataset.file_names import REJECTED, REPORT, span_file, span_of_file
from recordmill.pipeline.dataset.manifest import Json, Manifest, Shard, version_folder
from recordmill.pipeline.dataset.manifest_parts import MOST_BYTES
from recordmill.pipeline.dataset.paths import read_checked
from recordmill.pipeline.dataset.placement import Layout
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.sources.paths import note
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.forgotten import Forgotten
from recordmill.pipeline.versions.latest import rolls_back
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_location


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


class SpanFiles(NamedTuple):
    """The small files of a span, which a later build reads if it keeps the span."""

    report: SpanReport
    rejected: bytes  # the lines of rejected rows


def files_of(base: Manifest, spans: Iterable[str]) -> list[str]:
    """Lists the small files of spans of a version."""
    chosen = set(spans)
    return [path for path in base.files if span_of_file(path) in chosen]


def read_spans(output: str, base: Manifest, spans: Iterable[str]) -> dict[str, SpanFiles]:
    """Reads the reports of spans of a version. Raises: OutputError: a file is missing or damaged."""
    folder, kept = version_folder(open_location(output), base.version), dict[str, SpanFiles]()
    for span in spans:
        names = [span_file(span, name) for name in (REPORT, REJECTED)]
        try:
            report, rejected = (
                read_checked(folder, name, base.files[name]["sha256"], MOST_BYTES) if name in base.files else b""
                for name in names
            )
            kept[span] = SpanFiles(SpanReport.of_bytes(report), rejected)
        except ValueError as error:
            raise OutputError(
                f"the span {span} cannot be kept, since the live version is damaged ({error}): build with --compact, "
                f"or {rolls_back(output)}"
            ) from error
    return kept


def shards_by_group(kept: Mapping[str, SpanFiles], layout: Layout) -> dict[int, ShardReport]:
    """Returns the reports of kept shards by group in a new layout, without empty shards."""
    reports = (zip(layout.groups_of_span(name), span.report.shards, strict=True) for name, span in kept.items())
    return {group: report for group, report in chain.from_iterable(reports) if report is not None}


def kept_shards(base: Manifest, spans: Collection[str], layout: Layout) -> dict[int, Shard]:
    """Returns the shards of a version's spans by group in a new layout."""
    listed = {span: list[Shard]() for span in spans}
    for shard in (shard for split in layout.splits for shard in base.splits[split].shards):
        if shard.span in listed:
            listed[shard.span].append(shard)
    pairs = (zip(layout.groups_of_span(span), shards, strict=True) for span, shards in listed.items())
    return dict(chain.from_iterable(pairs))


def add_up_duplicates(entries: Iterable[Json]) -> Json:
    """Adds up the manifest's entries on duplicates within spans, at least one."""
    first, *others = entries
    total = json.loads(json.dumps(first))
    for entry in others:
        total["keys_across"] += entry["keys_across"]
        _add(total["exact"], entry["exact"])
    return dict(total)


def _add(total: Json, more: Json) -> None:
    for name in ("groups", "rows"):
        total[name] += more[name]
    _add_counts(total["within"], more["within"])
    for earlier, counts in more["across"].items():
        _add_counts(total["across"].setdefault(earlier, {}), counts)
    examples = [*total["examples"], *more["examples"]]
    examples.sort(key=lambda pair: pair[0]["split"] == pair[1]["split"])  # pairs of two splits come first
    total["examples"] = examples[:5]


def _add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
