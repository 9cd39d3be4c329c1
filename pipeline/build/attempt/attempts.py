"""Attempts at a build: each works in a workspace of its own, and takes over the finished work of an earlier one.

    OUT/.building/<build key>/run-<12 hex digits>/

The new attempt removes unfinished work, and keeps

- the files of each chunk that the jobs before the writing one read;
- if every chunk was read: the analysis, and each shard that has its report and whose files have their sizes.

It keeps nothing if a rejected row is doubtful: a file that is there now may have been away for a while.

    run = begin(output, building_folder(output), plan.build_key, pieces, is_doubtful)
    if run.kept: print(run.kept)          # the transform graph and 12 of 16 shards

How it takes them over, so that a process that still writes for the earlier attempt does no harm, depends on where they
lie (`pipeline.build.attempt.places`).
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
from recordmill.pipeline.build.context.reports import (
    ANALYSIS,
    FOLDERS,
    chunk_step,
    read_rejects,
    read_report,
    read_reports,
    shard_step,
    write_report,
)
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.build.runners.job import Rest
from recordmill.pipeline.dataset.file_names import index_bytes
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.open_store import is_local

Report = dict[str, Any]
Piece = tuple[int, str, int]
"""A chunk's source, file and bytes."""


def begin(
    output: str,
    building: str,
    build_key: str,
    pieces: Sequence[Piece],
    is_doubtful: Callable[[Reject], bool] = lambda reject: False,
) -> Run:
    """Begins an attempt with the finished work of an earlier one, or empty; the caller holds the output's lease.

    Work on other chunks than `pieces` is useless, and so is all of an attempt with a rejected row that `is_doubtful`.

    Raises:
        OSError: the folder cannot be made or written.
        OutputError: the bucket cannot be read or written.
    """
    place = (LocalPlace if is_local(output) else BucketPlace)(output, building, build_key)
    digest = hashlib.sha256(json.dumps(pieces).encode()).hexdigest()
    fitting = [
        run
        for run in place.runs()
        if (read_report(run.workspace, PLAN) or {}).get("chunks") == digest
        and not any(map(is_doubtful, _rejects(run.workspace)))
    ]
    taken = None
    if fitting:
        most = max(fitting, key=lambda run: len(run.workspace.names("reports")))
        chunks = sum(source >= 0 for source, *_ in pieces)  # the rest marks what fits no other command
        taken = place.take_over(most, lambda run: finished_work(run, chunks))
    run = taken or place.new_run()
    write_report(run.workspace, PLAN, {"chunks": digest, "version": run.version})
    place.remove_others(run)
    shutil.rmtree(Path(run.folder, "scratch"), ignore_errors=True)
    if not is_local(output):  # who may read the bucket is not who may read this machine's cache
        Path(run.folder).mkdir(0o700, parents=True, exist_ok=True)
    for name in FOLDERS:
        Path(run.folder, name).mkdir(parents=True, exist_ok=True)
    return run


def finished_work(run: Run, chunks: int) -> Kept | None:
    """Returns the finished work of an attempt, which may be at work; None unless all of its chunks were read."""
    analysis = read_report(run.workspace, f"reports/{ANALYSIS}")
    steps, read, expected = list(map(chunk_step, range(chunks))), list[Report](), Counter[int]()
    for report in filter(None, read_reports(run.workspace, steps)):
        read.append(report)
        expected.update(take_groups(report))
    if analysis is None or len(read) < chunks or analysis["export"] not in run.workspace.names("analysis"):
        return None
    sizes = run.shards.sizes()
    reports = zip(expected, read_reports(run.workspace, map(shard_step, expected)), strict=True)
    shards = {group: report for group, report in reports if report and _is_whole(report, sizes)}
    groups = frozenset(expected.keys() - shards.keys())
    again = enumerate(read_reports(run.workspace, steps)) if groups else ()  # read again: together they fill the memory
    wanted = frozenset(chunk for chunk, report in again if report and groups & take_groups(report).keys())
    finished = [report for chunk, report in enumerate(read) if chunk not in wanted]
    return Kept(analysis["export"], shards, groups, wanted, _counts(finished, list(shards.values())))


def rest_of(run: Run, plan: BuildPlan) -> Rest[Kept]:
    """Follows the job that writes the shards, in an attempt at work: its chunks, then its shards."""
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
    """Returns the progress of finished chunks and shards, by the counters of `worker.read_chunk` and `build_shard`."""
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
    return sizes.get(report["file"]) == report["bytes"] and sizes.get(report["index"]) == index_bytes(report["records"])


def _rejects(workspace: Store) -> Iterator[Reject]:
    """Reads the rejects of an attempt's steps, and of the jobs before the writing one."""
    names = [name for folder in ("rejects", *PASSES) for name in workspace.names(folder)]
    return read_rejects(workspace, [name for name in names if name.endswith(".jsonl")])
