"""Attempts at a build: each has its workspace, and continues the finished work of an earlier one.

    OUT/.building/<build key>/run-<12 hex digits>/

A new attempt removes unfinished work, and keeps

- the chunk files of the jobs before the writing one;
- if every chunk was read: the analysis, and each shard with a report and files of the reported sizes.

It keeps nothing if a rejected row is doubtful: its file may have been missing for a while.

    run = begin(output, building_folder(output), plan.build_key, pieces, is_doubtful)
    if run.kept: print(run.kept)          # the transform graph and 12 of 16 shards

Late writers of the earlier attempt do no harm (`pipeline.build.attempt.places`).
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from recordmill.pipeline.build.attempt.places import PASSES, PLAN, BucketPlace, Kept, LocalPlace, Run
from recordmill.pipeline.build.attempt.reconcile import take_groups
from recordmill.pipeline.build.context import reports
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.build.runners.job import Rest
from recordmill.pipeline.dataset.file_names import index_bytes
from recordmill.pipeline.dataset.manifest_parts import PackFile
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.open_store import is_local

Report = dict[str, Any]
Piece = tuple[int, str, int]  # a chunk's source, file and bytes


def begin(
    output: str,
    building: str,
    build_key: str,
    pieces: Sequence[Piece],
    is_doubtful: Callable[[Reject], bool] = lambda reject: False,
) -> Run:
    """Begins an attempt with the finished work of an earlier one, or empty; the caller holds the output's lease.

    Drops attempts at other chunks than `pieces`, or with a doubtful rejected row. Raises: OSError, OutputError.
    """
    place = (LocalPlace if is_local(output) else BucketPlace)(output, building, build_key)
    digest = hashlib.sha256(json.dumps(pieces).encode()).hexdigest()
    fitting = [
        run
        for run in place.runs()
        if (reports.read_report(run.workspace, PLAN) or {}).get("chunks") == digest
        and not any(map(is_doubtful, _rejects(run.workspace)))
    ]
    taken = None
    if fitting:
        most = max(fitting, key=lambda run: len(run.workspace.names("reports")))
        chunks = sum(source >= 0 for source, *_ in pieces)  # the others mark what fits no other command
        taken = place.take_over(most, lambda run: finished_work(run, chunks))
    run = taken or place.new_run()
    reports.write_report(run.workspace, PLAN, {"chunks": digest, "version": run.version})
    place.remove_others(run)
    shutil.rmtree(Path(run.folder, "scratch"), ignore_errors=True)
    if not is_local(output):  # readers of the bucket may not read this machine's cache
        Path(run.folder).mkdir(0o700, parents=True, exist_ok=True)
    for name in reports.FOLDERS:
        Path(run.folder, name).mkdir(parents=True, exist_ok=True)
    return run


def finished_work(run: Run, chunks: int) -> Kept | None:
    """Returns the finished work of an attempt, possibly still running; None unless all chunks were read."""
    analysis = reports.read_report(run.workspace, f"reports/{reports.ANALYSIS}")
    steps, read, expected = list(map(reports.chunk_step, range(chunks))), list[Report](), Counter[int]()
    for report in filter(None, reports.read_reports(run.workspace, steps)):
        read.append(report)
        expected.update(take_groups(report))
    if analysis is None or len(read) < chunks or analysis["export"] not in run.workspace.names("analysis"):
        return None
    sizes = run.shards.sizes()
    read_shards = zip(expected, reports.read_reports(run.workspace, map(reports.shard_step, expected)), strict=True)
    shards = {group: report for group, report in read_shards if report and _is_whole(report, sizes)}
    groups = frozenset(expected.keys() - shards.keys())
    again = enumerate(reports.read_reports(run.workspace, steps)) if groups else ()  # together they fill the memory
    wanted = frozenset(chunk for chunk, report in again if report and groups & take_groups(report).keys())
    finished = [report for chunk, report in enumerate(read) if chunk not in wanted]
    return Kept(analysis["export"], shards, groups, wanted, _counts(finished, list(shards.values())))


def rest_of(run: Run, plan: BuildPlan) -> Rest[Kept]:
    """Follows the job that writes the shards: first its chunks, then its shards."""
    chunks, span_of = len(plan.chunks), plan.layout.span_of_group
    groups = frozenset(group for group in range(plan.layout.groups) if span_of(group) not in plan.spans.kept)

    def count() -> tuple[int, int]:
        steps = Counter(name.removeprefix("reports/").partition("-")[0] for name in run.workspace.names("reports"))
        if steps["chunk"] < chunks:
            return steps["chunk"], chunks - steps["chunk"]
        return steps["shard"], len(groups) - steps["shard"]

    def find() -> Kept | None:
        kept = finished_work(run, chunks) or Kept("", {}, groups, frozenset(range(chunks)))  # if rows are still read
        return kept if kept.groups else None

    return Rest(count, find)


def _counts(chunks: list[Report], shards: list[Report]) -> dict[str, int]:
    """Returns the counters of finished chunks and shards, as `worker.read_chunk` and `build_shard` count."""
    return {
        "chunks": len(chunks),
        "read": sum(chunk["read"] for chunk in chunks),
        "refused": sum(chunk["rejected"] for chunk in chunks),
        "left_out": sum(chunk["duplicates"] + chunk["forgotten"] for chunk in chunks),
        "analyzed": 1,
        "written": sum(sum(shard["written_by_source"].values()) for shard in shards),
        "dropped": sum(shard["rejected"] for shard in shards),
    }


def _is_whole(report: Report, sizes: dict[str, int]) -> bool:
    files = {report["file"]: report["bytes"], report["index"]: index_bytes(report["records"])}
    files |= {pack["file"]: PackFile(**pack).bytes for pack in report.get("packs", ())}
    return all(sizes.get(name) == size for name, size in files.items())


def _rejects(workspace: Store) -> Iterator[Reject]:
    """Reads the rejects of all jobs of an attempt."""
    names = [name for folder in ("rejects", *PASSES) for name in workspace.names(folder)]
    return reports.read_rejects(workspace, [name for name in names if name.endswith(".jsonl")])
