"""Decides rows' places if they depend on the data, and finds and counts duplicates, on the runner.

    chunks ─ ReadContents ─▶ by key ─ follow_firsts ─▶ by content ─ FindDuplicates ─▶ members of clusters
      drop        members ─ dropped ─▶ by chunk ─▶ files of rows to leave out
      same_split  members ─ incidences ─▶ by unit ─ shared ─▶ join_clusters ─▶ moves ─▶ by chunk ─▶ files of moves
      fail        members ─ count ─▶ an error that names the first
    chunks ─ ReadClasses ─▶ by hash ─▶ counts of classes ─▶ bounds of strata

The files are in the workspace, one for each chunk concerned; the driver sees counts alone. Most specs need none of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.beam import steps
from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.beam.steps import Gather, Keep, Send, Step, composite
from recordmill.pipeline.build.context.build_context import PlannedBuild, RowDecisions
from recordmill.pipeline.build.context.reports import read_report, write_report
from recordmill.pipeline.build.duplicates import decisions, find
from recordmill.pipeline.build.duplicates.fingerprints import BUCKET, by_hash, contents_of_shard, fingerprints, to_one
from recordmill.pipeline.build.worker import filter as filter_
from recordmill.pipeline.build.worker import placement
from recordmill.pipeline.build.worker.packing import Packed
from recordmill.pipeline.sources.source_reader import Chunk

FOLDER = "decisions"
UNITS = "units"


@composite
def FindDuplicates(
    rows: beam.PCollection, planned: PlannedBuild, distance: int | None, folder: str
) -> beam.PCollection:
    """Finds the members of whole clusters (`duplicates.find.members`) among fingerprints by the buckets of contents.

    `distance` is the number of bits of looks that may differ, None to find equal contents alone; `folder` holds looks.
    """
    grouped = rows | "GroupByContent" >> beam.GroupByKey()
    if distance is None:
        return grouped | "FindEqual" >> beam.ParDo(Send(planned, find.members))

    def links(task: find.Task) -> Iterator[tuple[int, Packed]]:
        """Compares the looks of a task; yields the links, all in one bucket."""
        return steps.send(planned, to_one(find.find_links(find.read_looks(folder, planned), distance, task)))

    classes = grouped | "FindEqual" >> beam.ParDo(Send(planned, partial(find.members, alone=True)))
    join = partial(decisions.write_joined, f"{folder}/joined-looks.arrow", find.join_links)
    joined = (
        classes
        | "WriteLooks" >> beam.ParDo(Keep(planned, partial(find.write_looks, folder)))
        | "CountLooks" >> beam.CombineGlobally(sum)
        | "ListTasks" >> beam.FlatMap(partial(find.tasks, distance))
        | "SpreadTasks" >> beam.Reshuffle()
        | "FindLinks" >> beam.ParDo(Step(planned, links))
        | "GroupLinks" >> beam.GroupByKey()
        | "JoinLinks" >> beam.ParDo(Keep(planned, join))
    )
    rejoin = partial(decisions.with_joined, planned, partial(find.rejoin, buckets=planned.buckets()))
    return (
        classes
        | "Rejoin" >> beam.ParDo(Send(planned, rejoin), beam.pvalue.AsList(joined))
        | "GroupByCluster" >> beam.GroupByKey()
        | "ChooseWhole" >> beam.ParDo(Send(planned, find.whole))
    )


@composite
def CountDuplicates(groups: beam.PCollection, planned: PlannedBuild) -> None:
    """Counts the duplicates among the records of finished shards, given by group; writes reports by bucket."""
    duplicates = planned.duplicates
    _count(groups, planned, "Exact", None)
    if duplicates.near and duplicates.action == "keep":  # otherwise the placement has counted them
        _count(groups, planned, "Near", duplicates.distance)
    if planned.schema.keys_may_cross:
        write = partial(decisions.write_counts, f"{decisions.COUNTS}/keys", decisions.count_keys)
        _ = (
            groups
            | "ReadKeys" >> beam.ParDo(Gather(planned, partial(_read_shard, planned, "hash", False)))
            | "GroupByKeyHash" >> beam.GroupByKey()
            | "CountKeys" >> beam.ParDo(Keep(planned, write))
        )


def _count(groups: beam.PCollection, planned: PlannedBuild, name: str, distance: int | None) -> None:
    write = partial(decisions.write_counts, f"{decisions.COUNTS}/{name.lower()}", decisions.count)
    _ = (
        groups
        | f"Read{name}" >> beam.ParDo(Gather(planned, partial(_read_shard, planned, "high", distance is not None)))
        | f"Find{name}" >> FindDuplicates(planned, distance, "digests/near")
        | f"Count{name}" >> beam.ParDo(Keep(planned, write))
    )


def _read_shard(planned: PlannedBuild, column: str, near: bool, group: int) -> Iterator[pa.Table]:
    """Yields the fingerprints of a shard's records, if any, with the buckets of a column."""
    contents = contents_of_shard(planned.workspace, group)
    if contents is not None:
        columns = () if column == "high" else ("hash", "sample")
        rows = find.all_take_part(fingerprints(contents, *columns, near=near))
        buckets = planned.bucket_range(planned.layout.span_of_group(group) or "")
        yield by_hash(rows, column, len(buckets), buckets.start)


def place(planned: PlannedBuild, chunks: Sequence[Chunk], runner: Runner) -> RowDecisions:
    """Decides the rows' places, or reuses an earlier attempt's decisions. Raises: DuplicatesError: as `fail` asks."""
    by, action = planned.schema.split_by, planned.duplicates.action
    is_stratified = by is not None and by.stratify is not None
    planned = replace(planned, decisions=RowDecisions(filtered=filter_.FOLDER if planned.filter else None))
    if action == "keep" and not is_stratified:
        return planned.decisions
    if (decided := read_report(planned.workspace, f"{FOLDER}/decided")) is not None:
        return RowDecisions(**decided)
    if action in ("drop", "fail"):
        planned = _resolve(planned, chunks, runner)
    if is_stratified:
        with runner.pipeline(planned) as pipeline:
            _ = (
                pipeline
                | "ListChunks" >> steps.ListChunks(planned.workspace, chunks)
                | "ReadClasses" >> beam.ParDo(steps.WorkerStep(planned, lambda: partial(_read_classes, planned)))
                | "GroupByHash" >> beam.GroupByKey()
                | "CountClasses" >> beam.ParDo(Keep(planned, placement.write_classes))
            )
        planned = replace(planned, decisions=replace(planned.decisions, strata=placement.cut_strata(planned)))
    if action == "same_split":
        planned = _resolve(planned, chunks, runner)
    write_report(planned.workspace, f"{FOLDER}/decided", asdict(planned.decisions))
    return planned.decisions


def _resolve(planned: PlannedBuild, chunks: Sequence[Chunk], runner: Runner) -> PlannedBuild:
    with runner.pipeline(planned) as pipeline:
        _ = (
            pipeline
            | "ListChunks" >> steps.ListChunks(planned.workspace, chunks)
            | "ResolveDuplicates" >> ResolveDuplicates(planned)
        )
    action, contents = planned.duplicates.action, partial(placement.contents_of_chunk, planned)
    found = decisions.read_counts(planned.workspace, f"{FOLDER}/counts")
    if action == "fail" and found.groups:
        raise find.DuplicatesError(decisions.refusal(planned, chunks, found, contents))
    if planned.hashed_images():
        write_report(planned.workspace, decisions.NEAR, decisions.published(found, planned.layout.splits, contents))
    if action == "drop":
        return replace(planned, decisions=replace(planned.decisions, dropped=decisions.DROPPED))
    if action == "same_split":
        return replace(planned, decisions=replace(planned.decisions, moved=decisions.MOVED))
    return planned


@composite
def ResolveDuplicates(chunks: beam.PCollection, planned: PlannedBuild) -> None:
    """Writes the chunks' decisions, or for `fail` the counts."""
    distance = planned.duplicates.distance if planned.hashed_images() else None
    reader = steps.WorkerStep(planned, lambda: partial(_read_contents, planned, placement.ContentReader(planned)))
    read = chunks | "ReadContents" >> beam.ParDo(reader).with_outputs(UNITS, main="rows")
    found = (
        read["rows"]
        | "GroupByKeyHash" >> beam.GroupByKey()
        | "FollowFirsts" >> beam.ParDo(Send(planned, find.follow_firsts, _by_hash(planned, "high")))
        | "FindDuplicates" >> FindDuplicates(planned, distance, FOLDER)
    )
    if planned.duplicates.action == "drop":
        chosen = found | "ChooseDropped" >> beam.ParDo(Send(planned, decisions.dropped, _by_chunk))
        _write(planned, chosen, decisions.DROPPED, "position")
    elif planned.duplicates.action == "fail":
        _ = found | "Count" >> beam.ParDo(
            Keep(planned, partial(decisions.write_counts, f"{FOLDER}/counts", decisions.count))
        )
    else:
        _move(planned, found, read[UNITS])


def _move(planned: PlannedBuild, found: beam.PCollection, of_chunks: beam.PCollection) -> None:
    """Decides the moves of clusters' units, and counts the clusters after them."""

    def spread(element: tuple[int, dict[str, Iterable[Packed]]]) -> Iterator[tuple[int, Packed]]:
        moved, units = (list(element[1][name]) for name in ("moves", "units"))
        if moved:
            found = decisions.moves_of_chunks(steps.rows_of(moved), steps.rows_of(units))
            yield from steps.send(planned, _by_chunk(found))

    of_units = (
        found
        | "ListUnits" >> beam.ParDo(Send(planned, decisions.incidences, _by_hash(planned, "unit")))
        | "GroupByUnit" >> beam.GroupByKey()
    )
    join = partial(decisions.write_joined, f"{FOLDER}/joined-units.arrow", decisions.join_clusters)
    joined = beam.pvalue.AsList(
        of_units
        | "ChooseShared" >> beam.ParDo(Send(planned, decisions.shared, to_one))
        | "GroupShared" >> beam.GroupByKey()
        | "JoinClusters" >> beam.ParDo(Keep(planned, join))
    )
    with_joined = partial(decisions.with_joined, planned)
    moved = of_units | "FindMoves" >> beam.ParDo(Send(planned, partial(with_joined, decisions.moves)), joined)
    together = {"moves": moved, "units": of_chunks} | "AddChunks" >> beam.CoGroupByKey()
    by_chunk = together | "FindMovesOfChunks" >> beam.ParDo(Step(planned, spread))
    _write(planned, by_chunk, decisions.MOVED, "unit")
    if planned.hashed_images():
        count_joined = partial(decisions.write_counts, f"{FOLDER}/counts", partial(with_joined, decisions.count_moved))
        outlines = found | "Outline" >> beam.ParDo(Send(planned, decisions.outline))
        _ = outlines | "CountMoved" >> beam.ParDo(Keep(planned, count_joined), joined)


def _write(planned: PlannedBuild, by_chunk: beam.PCollection, folder: str, order: str) -> None:
    write = Keep(planned, partial(decisions.write_decisions, folder, order))
    _ = by_chunk | "GroupByChunk" >> beam.GroupByKey() | "Write" >> beam.ParDo(write)


def _read_contents(planned: PlannedBuild, reader: placement.ContentReader, chunk: Chunk) -> Iterator[Any]:
    """Sends a chunk's fingerprints to their keys' buckets, and for `same_split` the chunk's units to theirs."""
    contents = reader.read(chunk)
    if not contents.num_rows:
        return
    rows = fingerprints(contents, "hash", "sample", "unit", near=bool(planned.hashed_images()))
    yield from steps.send(planned, _by_hash(planned, "hash")(rows))
    if planned.duplicates.action == "same_split":
        distinct = np.unique(contents["unit"].to_numpy())
        table = pa.table({"unit": distinct, "chunk": np.full(len(distinct), chunk.index)})
        for element in steps.send(planned, _by_hash(planned, "unit")(table)):
            yield beam.pvalue.TaggedOutput(UNITS, element)


def _read_classes(planned: PlannedBuild, chunk: Chunk) -> Iterator[tuple[int, Packed]]:
    table = placement.read_classes(planned, chunk)
    if table.num_rows:
        yield from steps.send(planned, _by_hash(planned, "hash")(table))


def _by_hash(planned: PlannedBuild, column: str) -> steps.TableStep:
    return partial(by_hash, column=column, buckets=planned.buckets())


def _by_chunk(table: pa.Table) -> pa.Table:
    return table.append_column(BUCKET, table["chunk"])
