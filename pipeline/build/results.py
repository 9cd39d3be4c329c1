"""Reads and reconciles the reports of a finished job."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.rejects import read_rejects
from recordmill.pipeline.build.context.steps import chunk_step, shard_step
from recordmill.pipeline.build.duplicates.counts import count_all
from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.build.reconcile import check_analysis, check_shards, check_sources, expected_rows
from recordmill.pipeline.build.reject_limits import RejectLimits, by_frequency
from recordmill.pipeline.build.reject_places import RejectPlaces
from recordmill.pipeline.dataset.atomic_files import read_report
from recordmill.pipeline.dataset.text_lengths import Lengths, add_up
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.redaction import public_url
from recordmill.pipeline.sources.rejects import Reject

Report = dict[str, Any]
COUNTED = ("read", "written", "rejected", "duplicates")
"""The counts of rows: the first is the sum of the others."""


class NothingToPublishError(UserError):
    """No row of the train split became a record; the message says why."""


@dataclass(frozen=True)
class Results:
    """The reports of a finished job, and their sums."""

    plan: BuildPlan
    context: BuildContext
    chunks: list[Report]
    shards: dict[int, Report]
    """By group; a group without rows has no report."""
    export: str
    """The folder of the analysis' export."""
    statistics: dict[str, Report]
    """The results of the analysis, by feature."""

    @cached_property
    def rejects(self) -> list[Reject]:
        """All rejects, by source, file and position."""
        names = [report["rejects"] for report in [*self.chunks, *self.shards.values()] if report["rejects"]]
        rejects = [reject for name in names for reject in read_rejects(self.context.path("rejects"), name)]
        return sorted(rejects, key=lambda reject: (reject.chunk, reject.position, reject.column or ""))

    @cached_property
    def reasons(self) -> dict[str, int]:
        """The number of rejects by reason, the most frequent first."""
        return dict(by_frequency(Counter(reject.reason for reject in self.rejects)))

    def by_source(self) -> list[Report]:
        """Rows read, written, rejected and left out as duplicates, for each source."""
        counts: list[Report] = [
            {"format": source.format, "path": published_path(source.path), **dict.fromkeys(COUNTED, 0)}
            for source in self.plan.spec.source
        ]
        for chunk, report in zip(self.plan.chunks, self.chunks, strict=True):
            counts[chunk.source]["read"] += report["read"]
            counts[chunk.source]["duplicates"] += report["duplicates"]
        for shard in self.shards.values():
            for source, written in shard["written_by_source"].items():
                counts[int(source)]["written"] += written
        for reject in self.rejects:
            counts[self.plan.chunks[reject.chunk].source]["rejected"] += 1
        return counts

    @cached_property
    def duplicates(self) -> Report:
        """The manifest's entry on duplicates."""
        return count_all(self.context, [report["contents"] for report in self.shards.values()])

    @property
    def rejected_in_statistics(self) -> int:
        """The number of rejected rows that the statistics contain: those that shards of the train split rejected."""
        train = (shard["rejected"] for shard in self.shards.values() if shard["split"] == "train")
        return sum(train) if self.context.sees_rows() else 0

    @cached_property
    def rejects_jsonl(self) -> bytes:
        """The published file of rejects: one JSON object a line."""
        places = self.places
        lines = "".join(json.dumps(places.published(reject), ensure_ascii=False) + "\n" for reject in self.rejects)
        return lines.encode("utf-8", "backslashreplace")

    @property
    def places(self) -> RejectPlaces:
        """The places of rejected rows."""
        return RejectPlaces(self.plan, [report["positions"] for report in self.chunks])


def published_path(path: str) -> str:
    """A source's path without private parts: a URL without password and query, or the last part of a local path.

    Nothing that is published names a place on the machine that built it.
    """
    return public_url(path) if "://" in path else os.path.basename(path.rstrip("/"))


def collect(plan: BuildPlan, context: BuildContext) -> Results:
    """Reads a finished job's reports and reconciles them.

    Raises:
        ReconcileError: rows were lost or counted twice.
        TooManyRejectsError: more rows were rejected than the spec allows.
        NothingToPublishError: the train split has no record.
    """
    folder = context.path("reports")
    chunks = [_needed(folder, chunk_step(chunk.index)) for chunk in plan.chunks]
    expected = expected_rows(chunks)
    shards = {group: report for group in sorted(expected) if (report := read_report(folder, shard_step(group)))}
    check_shards(chunks, shards)
    export = os.path.join(context.path("analysis"), _needed(folder, "analysis")["export"])
    groups = context.layout.shard_of_group
    statistics = _statistics(context, sum(rows for group, rows in expected.items() if groups(group)[0] == "train"))
    _add_transcoded(statistics, shards.values())
    _add_lengths(statistics, [shard for shard in shards.values() if shard["split"] == "train"])
    results = Results(plan, context, chunks, shards, export, statistics)
    check_sources(results.by_source())
    RejectLimits(plan, context)()
    if not any(shard["records"] for shard in shards.values() if shard["split"] == "train"):
        raise NothingToPublishError(_why_nothing(results))
    return results


def _needed(folder: str, name: str) -> Report:
    report = read_report(folder, name)
    if report is None:
        raise RuntimeError(f"the job ended without its report '{name}'")
    return report


def _statistics(context: BuildContext, train_rows: int) -> dict[str, Report]:
    statistics: dict[str, Report] = {}
    for analysis in _needed(context.path("reports"), "analysis")["analyses"]:
        report = _needed(context.path("reports"), analysis)
        check_analysis(analysis, report["rows"], train_rows if context.sees_rows() else 0)
        statistics |= report[analysis]
    return statistics


def _add_transcoded(statistics: dict[str, Report], shards: Iterable[Report]) -> None:
    """Adds to each feature's statistics the number of transcoded images by their first format."""
    total: Counter[str] = Counter()
    for shard in shards:
        total.update(shard["transcoded"])
    for which, count in sorted(total.items()):
        feature, form = which.rsplit(" ", 1)
        statistics.setdefault(feature, {}).setdefault("transcoded", {})[form] = count


def _add_lengths(statistics: dict[str, Report], shards: Sequence[Report]) -> None:
    """Adds to each text's statistics the lengths of the train split's texts."""
    measured: dict[str, list[Lengths]] = {}
    for shard in shards:
        for feature, lengths in shard["lengths"].items():
            measured.setdefault(feature, []).append(lengths)
    packed = [shard["records"] for shard in shards if "packed" in shard]
    for feature, several in measured.items():
        rows = {"packed_rows": sum(packed)} if packed else {}
        statistics.setdefault(feature, {})["lengths"] = add_up(several) | rows


def _why_nothing(results: Results) -> str:
    read = sum(report["read"] for report in results.chunks)
    if not read:
        return "the source holds no rows"
    empty = sum(
        shard["packed"]["documents"]
        for shard in results.shards.values()
        if shard["split"] == "train" and "packed" in shard
    )
    if empty:
        return f"no row of the split 'train' became a record: its {empty} documents have no ids, and nothing to pack"
    if not results.reasons:
        return f"none of the {read} rows is in the split 'train': give it a larger share, or more data"
    reasons = ", ".join(f"{reason}: {count}" for reason, count in list(results.reasons.items())[:3])
    return (
        f"no row of the split 'train' became a record: of {read} rows {len(results.rejects)} were rejected "
        f"({reasons}). The first: {results.places.example(results.rejects[0])}"
    )
