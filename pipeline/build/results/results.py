"""Reads and reconciles the reports of a finished job."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from recordmill.pipeline.build.attempt.failures import RejectLimits, RejectPlaces, by_frequency, leave
from recordmill.pipeline.build.base.live_analysis import SpanFiles, add_up_duplicates, published_path, shards_by_group
from recordmill.pipeline.build.context import reports
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import unpack_graph
from recordmill.pipeline.build.context.reports import ChunkReport
from recordmill.pipeline.build.duplicates.decisions import manifest_entry
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.build.summaries.look import rows_behind
from recordmill.pipeline.compare.distributions import profile_drift
from recordmill.pipeline.dataset.counts import Counts, ShardReport, SpanReport, by_split, counted_as
from recordmill.pipeline.dataset.manifest import Json, Span
from recordmill.pipeline.dataset.profile import Profile
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import Reject

Report = TypeVar("Report")
COUNTED = ("read", "written", "rejected", "duplicates")
"""The counts of rows: the first is the sum of the others and FORGOTTEN."""
FORGOTTEN = "forgotten"


class ReconcileError(UserError):
    """Rows were lost or counted twice; the message gives the place and the numbers."""


def check_shards(expected: Mapping[int, int], shards: Mapping[int, ShardReport]) -> None:
    """Checks by group that every packed row is a record, some windows or a reject. Raises: ReconcileError."""
    for group, rows in expected.items():
        if group not in shards:
            raise ReconcileError(f"{rows} rows were read for shard group {group}, and the shard was not built")
        shard = shards[group]
        where = f"shard {shard.number} of {shard.split}"
        built = shard.files.records - (shard.counts.more_windows or 0) + shard.counts.rejected
        if built != rows:
            read = f"{rows} rows were read for {where}"
            raise ReconcileError(f"{read}, {built} came out of it: the runner lost or repeated rows")


def check_sources(counts: Sequence[Mapping[str, Any]]) -> None:
    """Checks for each source that read = written + rejected + duplicates + forgotten. Raises: ReconcileError."""
    for source, count in enumerate(counts):
        if count["read"] != sum(count.get(fate, 0) for fate in ("written", "rejected", "duplicates", "forgotten")):
            fates = f"{count['read']} rows read, {count['written']} written, {count['rejected']} rejected"
            left_out = f"{count['duplicates']} left out as duplicates and {count.get('forgotten', 0)} as forgotten"
            raise ReconcileError(f"source {source} ({count['path']}): {fates}, {left_out}: the rest is lost")


def check_look(seen: Mapping[str, int], packed: Mapping[str, int]) -> None:
    """Checks for each split that the look saw every packed row once. Raises: ReconcileError."""
    for split, rows in seen.items():
        if rows != packed.get(split, 0):
            read = f"{packed.get(split, 0)} were read for its shards: the runner lost or repeated rows"
            raise ReconcileError(f"the statistics are of {rows} rows of the split '{split}', {read}")


class NothingToPublishError(UserError):
    """No row of the train split became a record."""


@dataclass(frozen=True)
class Results:
    """The reports of a finished job, and their sums."""

    plan: BuildPlan
    context: PlannedBuild
    chunks: list[ChunkReport]
    shards: dict[int, ShardReport]  # by group; groups without rows are missing. Without spans they are small.
    counts: Mapping[str, Counts]  # of all shards, by split
    export: str  # the folder of the analysis's export
    statistics: dict[str, Json]  # the results of the analysis, by feature
    drift: Json  # the manifest's entry on the rows' distance from a frozen analysis; empty without one
    kept: Mapping[str, SpanFiles] = field(default_factory=dict)  # the kept spans; `shards` includes their shards

    @property
    def built(self) -> dict[int, ShardReport]:
        """The reports of the job's own shards, by group."""
        span_of = self.context.layout.span_of_group
        return {group: report for group, report in self.shards.items() if span_of(group) not in self.kept}

    @cached_property
    def rejects(self) -> list[Reject]:
        """All rejects of the job, by source, file and position."""
        names = [*(chunk.rejects for chunk in self.chunks), *(shard.rejects for shard in self.built.values())]
        rejects = reports.read_rejects(self.context.workspace, filter(None, names))
        return sorted(rejects, key=lambda reject: (reject.chunk, reject.position, reject.column or ""))

    @cached_property
    def spans(self) -> dict[str, SpanFiles]:
        """The version's spans, kept ones and those of the job; without spans all rows are one, ""."""
        sources, rejects = defaultdict[str, dict[str, Counter[str]]](dict), defaultdict[str, list[Reject]](list)
        parts = list[Counter[str]]()  # of the plan's sources; after --compact several of one span
        for part in self.plan.sources:
            none = Counter(dict.fromkeys((*COUNTED, FORGOTTEN), 0))
            parts.append(sources[part.span or ""].setdefault(str(part.index), none))
        for chunk, of in zip(self.plan.chunks, self.chunks, strict=True):
            parts[chunk.source].update(read=of.read, duplicates=of.duplicates, forgotten=of.forgotten)
        for shard in self.built.values():
            for source, written in shard.counts.written_by_source.items():
                parts[source]["written"] += written
        for reject in self.rejects:
            source = self.plan.chunks[reject.chunk].source
            parts[source]["rejected"] += 1
            rejects[self.plan.sources[source].span or ""].append(reject)
        spans = dict[str, SpanFiles]()
        for span in [*self.plan.spans.spans] or [""]:
            if span in self.kept:
                spans[span] = self.kept[span]
                continue
            reasons = dict(by_frequency(Counter(counted_as(each.reason, each.message) for each in rejects[span])))
            shards = [self.shards.get(group) for group in self.context.layout.groups_of_span(span)]
            shards = [shard and replace(shard, rejects=None) for shard in shards]
            report = SpanReport(sources[span], reasons, manifest_entry(self.context, span), shards)
            spans[span] = SpanFiles(report, self.places.lines(rejects[span]))
        return spans

    @property
    def reasons(self) -> dict[str, int]:
        """The number of rejects by reason, the most frequent first."""
        reasons = Counter[str]()
        for span in self.spans.values():
            reasons.update(span.report.reasons)
        return dict(by_frequency(reasons))

    def by_source(self) -> list[Json]:
        """Counts rows read, written, rejected and dropped as duplicates, for each source of the spec."""
        counts = [Counter[str]() for _ in self.plan.spec.source]
        for index, rows in (each for span in self.spans.values() for each in span.report.sources.items()):
            counts[int(index)].update(rows)
        found = [{"format": each.format, "path": published_path(each.path)} for each in self.plan.spec.source]
        both = zip(found, counts, strict=True)
        return [source | {name: rows[name] for name in self.counted} for source, rows in both]

    @property
    def counted(self) -> tuple[str, ...]:
        """The names of the counts in the manifest; `forgotten` only with a list of forgotten keys."""
        return (*COUNTED, FORGOTTEN) if self.plan.given.inherited.forgotten.keys else COUNTED

    @property
    def duplicates(self) -> Json:
        """The manifest's entry on duplicates; with spans, on those within each span."""
        return add_up_duplicates(span.report.duplicates for span in self.spans.values())

    @property
    def span_entries(self) -> dict[str, Span]:
        """The manifest's entries on the version's spans, with their rows."""
        entries = dict(self.plan.spans.spans)
        for name, span in self.plan.spans.built.items():
            parts = self.spans[name].report.sources.values()
            entries[name] = replace(span, rows={what: sum(rows[what] for rows in parts) for what in self.counted})
        return entries

    @property
    def in_statistics(self) -> Json:
        """The manifest's entries on rejected rows among those that were learned from."""
        if self.plan.frozen is not None:
            rejects = self.plan.frozen.manifest.rejects
            return {name: rejects[name] for name in ("in_statistics", "learned_from") if name in rejects}
        behind = rows_behind(self.context, self.counts)
        return {"in_statistics": max(behind.values(), default=0), "learned_from": behind}

    @property
    def rejects_jsonl(self) -> bytes:
        """The published file of rejects: one JSON object a line, span by span."""
        return b"".join(span.rejected for span in self.spans.values())

    @cached_property
    def places(self) -> RejectPlaces:
        """The places of rejected rows."""
        return RejectPlaces(self.plan, [report.positions for report in self.chunks])


def collect(plan: BuildPlan, context: PlannedBuild, kept: Mapping[str, SpanFiles] = MappingProxyType({})) -> Results:
    """Reads a finished job's reports and reconciles them; adds those of the kept spans.

    Raises: ReconcileError; TooManyRejectsError: more than the spec allows. NothingToPublishError: no row in `train`.
    """
    chunks, expected, shards = list[ChunkReport](), Counter[int](), dict[int, ShardReport]()
    for number, chunk in enumerate(reports.read_chunks(context.workspace, len(plan.chunks))):
        read = _needed(reports.chunk_step(number), chunk)
        chunks.append(replace(read, groups={}))
        expected.update(read.groups)
    groups = sorted(expected)

    def built() -> Iterator[ShardReport]:
        for group, report in zip(groups, reports.read_shards(context.workspace, groups), strict=True):
            if report is not None:
                shards[group] = report if plan.spec.has_spans else report.small  # a later version keeps spans' counts
                yield report

    of_job = by_split(built())
    check_shards(expected, shards)
    of_spans = shards_by_group(kept, plan.layout)
    shards = dict(sorted({**shards, **of_spans}.items()))
    both = of_job, by_split(of_spans.values())
    splits = dict.fromkeys(shard.split for shard in shards.values())
    counts = {split: Counts.sum(each[split] for each in both if split in each) for split in splits}
    analysis = _needed(reports.ANALYSIS, reports.read_report(context.workspace, f"reports/{reports.ANALYSIS}"))
    if analysis["rows"] is not None:  # there was a look
        packed = Counter[str]()
        for group, rows in expected.items():
            packed[plan.layout.shard_of_group(group)[0]] += rows
        check_look(analysis["rows"], packed)
    statistics, train = analysis["statistics"], counts.get("train", Counts())
    for feature, found in Counts.sum(counts.values()).statistics.items():
        statistics.setdefault(feature, {}).update(found)
    for feature, lengths in train.lengths.items():
        statistics.setdefault(feature, {})["lengths"] = lengths
    drift = _drift(plan, analysis, of_job["train"].profile if "train" in of_job else {})
    export = unpack_graph(context.workspace, analysis["export"])
    results = Results(plan, context, chunks, shards, counts, export, statistics, drift, kept)
    check_sources(results.by_source())
    RejectLimits(plan, context)()
    if not any(shard.files.records for shard in shards.values() if shard.split == "train"):
        left = leave(results.rejects, results.places, context.workspace) if results.rejects else []
        raise NothingToPublishError(". ".join([_why_nothing(results), *left]))
    return results


def _needed(name: str, report: Report | None) -> Report:
    if report is None:
        raise RuntimeError(f"the job ended without its report '{name}'")
    return report


def _drift(plan: BuildPlan, analysis: Json, built: Profile) -> Json:
    if plan.frozen is None:
        return {}
    features, learned = analysis["drift"], plan.frozen.profiles or {}
    for name, figures in profile_drift(learned.get("train", {}), built).items():
        features[name] = features.get(name, {}) | figures
    return {"against": plan.frozen.learned_in, "rows": analysis["rows"] or {}, "features": features}


def _why_nothing(results: Results) -> str:
    read = sum(report.read for report in results.chunks)
    if not read:
        return "the source holds no rows"
    if not results.reasons:
        return f"none of the {read} rows is in the split 'train': give it a larger share, or more data"
    reasons = ", ".join(f"{reason}: {count}" for reason, count in list(results.reasons.items())[:3])
    rejected = f"of {read} rows {len(results.rejects)} were rejected ({reasons})"
    first = results.places.example(results.rejects[0])
    return f"no row of the split 'train' became a record: {rejected}. The first: {first}"
