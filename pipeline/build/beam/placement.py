"""Decides rows' places where these depend on the data: the placement look, and what follows from it, on the runner.

    chunks ─ ReadContents ─▶ by key ─ follow_firsts ─▶ by content ─ FindDuplicates ─▶ members of clusters
      drop        members ─ dropped ─▶ by chunk ─▶ files of rows to leave out
      same_split  members ─ incidences ─▶ by unit ─ shared ─▶ join_clusters ─▶ moves ─▶ by chunk ─▶ files of moves
      fail        members ─ count ─▶ an error that names the first
    chunks ─ ReadClasses ─▶ by hash ─▶ counts of classes ─▶ bounds of strata

The files are in the workspace, one for each chunk that they concern; the driver sees counts alone. Most specs need none
of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.beam.duplicates import FindDuplicates
from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.beam.shared_steps import Keep, ListChunks, Send, rows_of, send
from recordmill.pipeline.build.context.build_context import PlannedBuild, RowDecisions, Strata
from recordmill.pipeline.build.context.graph import install_user_code
from recordmill.pipeline.build.context.reports import leaving_error
from recordmill.pipeline.build.context.workspace import read_report, write_report
from recordmill.pipeline.build.duplicates import decisions
from recordmill.pipeline.build.duplicates.counts import (
    NEAR,
    outline,
    published,
    read_counts,
    refusal,
    write_count,
    write_moved_count,
)
from recordmill.pipeline.build.duplicates.decisions import (
    DROPPED,
    MOVED,
    dropped,
    with_joined,
    write_decisions,
    write_joined,
)
from recordmill.pipeline.build.duplicates.find import DuplicatesError, follow_firsts
from recordmill.pipeline.build.duplicates.fingerprints import BUCKET, by_hash, fingerprints, to_one
from recordmill.pipeline.build.worker.packing import Packed
from recordmill.pipeline.build.worker.placement import (
    ContentReader,
    contents_of_chunk,
    cut_strata,
    read_classes,
    write_classes,
)
from recordmill.pipeline.sources.source_reader import Chunk

FOLDER = "decisions"
UNITS = "units"
Step = Callable[[pa.Table], pa.Table]


def place(planned: PlannedBuild, chunks: Sequence[Chunk], runner: Runner) -> RowDecisions:
    """Decides the rows' places, or takes over what an earlier attempt decided.

    Raises:
        DuplicatesError: there are duplicates, and the spec says `fail`.
    """
    by, action = planned.schema.split_by, planned.duplicates.action
    is_stratified = by is not None and by.stratify is not None
    if action == "keep" and not is_stratified:
        return RowDecisions()
    if (decided := read_report(planned.workspace, f"{FOLDER}/decided")) is not None:
        return RowDecisions(**decided)
    decisions = RowDecisions()
    if action in ("drop", "fail"):
        decisions = _resolve(planned, decisions, chunks, runner)
    if is_stratified:
        decisions = replace(decisions, strata=_stratify(planned, decisions, chunks, runner))
    if action == "same_split":
        decisions = _resolve(planned, decisions, chunks, runner)
    write_report(planned.workspace, f"{FOLDER}/decided", asdict(decisions))
    return decisions


def _resolve(planned: PlannedBuild, decisions: RowDecisions, chunks: Sequence[Chunk], runner: Runner) -> RowDecisions:
    """Finds the duplicates and resolves them."""
    with runner.pipeline(planned) as pipeline:
        _ = pipeline | "ListChunks" >> ListChunks(planned.workspace, chunks) | ResolveDuplicates(planned, decisions)
    action, contents = planned.duplicates.action, partial(contents_of_chunk, planned)
    counts = read_counts(planned.workspace, f"{FOLDER}/counts")
    if action == "fail" and counts.groups:
        raise DuplicatesError(refusal(planned, chunks, counts, contents))
    if planned.hashed_images():
        write_report(planned.workspace, NEAR, published(counts, planned.layout.splits, contents))
    if action == "drop":
        return replace(decisions, dropped=DROPPED)
    return replace(decisions, moved=MOVED) if action == "same_split" else decisions


def _stratify(planned: PlannedBuild, decisions: RowDecisions, chunks: Sequence[Chunk], runner: Runner) -> Strata:
    """Cuts each class of the feature that the spec stratifies by."""
    with runner.pipeline(planned) as pipeline:
        _ = (
            pipeline
            | "ListChunks" >> ListChunks(planned.workspace, chunks)
            | "ReadClasses" >> beam.ParDo(ReadClasses(planned, decisions))
            | "GroupByHash" >> beam.GroupByKey()
            | "CountClasses" >> beam.ParDo(Keep(planned, write_classes))
        )
    return cut_strata(planned)


class ResolveDuplicates(beam.PTransform):  # type: ignore[misc]
    """From chunks to the files of decisions, or of counts for `fail`."""

    def __init__(self, planned: PlannedBuild, decisions: RowDecisions) -> None:
        super().__init__()
        self._planned, self._decisions = planned, decisions

    def expand(self, chunks: beam.PCollection) -> None:
        """Adds the steps."""
        planned = self._planned
        distance = planned.duplicates.distance if planned.hashed_images() else None
        read = chunks | beam.ParDo(ReadContents(planned, self._decisions)).with_outputs(UNITS, main="rows")
        found = (
            read["rows"]
            | "GroupByKeyHash" >> beam.GroupByKey()
            | "FollowFirsts" >> self._send(partial(_by_hash, follow_firsts, "high", planned.buckets()))
            | "FindDuplicates" >> FindDuplicates(planned, distance, FOLDER)
        )
        if planned.duplicates.action == "drop":
            self._drop(found)
        elif planned.duplicates.action == "fail":
            self._count(found)
        else:
            self._move(found, read[UNITS])

    def _drop(self, found: beam.PCollection) -> None:
        self._write(found | "ChooseDropped" >> self._send(partial(_by_chunk, dropped)), DROPPED, "position")

    def _count(self, found: beam.PCollection) -> None:
        _ = found | "Count" >> beam.ParDo(Keep(self._planned, partial(write_count, f"{FOLDER}/counts")))

    def _move(self, found: beam.PCollection, of_chunks: beam.PCollection) -> None:
        planned = self._planned
        write = partial(write_joined, f"{FOLDER}/joined-decisions.arrow", decisions.join_clusters)
        of_units = (
            found
            | "ListUnits" >> self._send(partial(_by_hash, decisions.incidences, "unit", planned.buckets()))
            | "GroupByUnit" >> beam.GroupByKey()
        )
        joined = beam.pvalue.AsList(
            of_units
            | "ChooseShared" >> self._send(partial(_in_one, decisions.shared))
            | "GroupShared" >> beam.GroupByKey()
            | "JoinClusters" >> beam.ParDo(Keep(planned, write))
        )
        moves = of_units | "FindMoves" >> beam.ParDo(
            Send(planned, partial(with_joined, planned, decisions.moves)), joined
        )
        together = {"moves": moves, "units": of_chunks} | "AddChunks" >> beam.CoGroupByKey()
        self._write(together | "FindMovesOfChunks" >> beam.ParDo(FindMovesOfChunks(planned)), MOVED, "unit")
        if planned.hashed_images():
            count = partial(write_moved_count, f"{FOLDER}/counts")
            outlines = found | "Outline" >> self._send(outline)
            _ = outlines | "CountMoved" >> beam.ParDo(Keep(planned, count), joined)

    def _write(self, by_chunk: beam.PCollection, folder: str, order: str) -> None:
        write = partial(write_decisions, folder, order)
        _ = by_chunk | "GroupByChunk" >> beam.GroupByKey() | "Write" >> beam.ParDo(Keep(self._planned, write))

    def _send(self, step: Step) -> beam.ParDo:
        return beam.ParDo(Send(self._planned, step))


class ReadContents(beam.DoFn):  # type: ignore[misc]
    """Sends the fingerprints of chunks to their keys' buckets, and for `same_split` the chunks' units to theirs."""

    def __init__(self, planned: PlannedBuild, decisions: RowDecisions) -> None:
        self._planned, self._decisions = planned, decisions

    def setup(self) -> None:
        """Sources may be the user's own."""
        install_user_code(self._planned)
        self._reader = ContentReader(self._planned, self._decisions)

    def process(self, chunk: Chunk) -> Iterator[Any]:
        """Reads one chunk."""
        planned, buckets = self._planned, self._planned.buckets()
        with leaving_error(planned.workspace):
            contents = self._reader.read(chunk)
            if not contents.num_rows:
                return
            rows = fingerprints(contents, "hash", "sample", "unit", near=bool(planned.hashed_images()))
            yield from send(planned, by_hash(rows, "hash", buckets))
            if planned.duplicates.action == "same_split":
                distinct = np.unique(contents["unit"].to_numpy())
                table = pa.table({"unit": distinct, "chunk": np.full(len(distinct), chunk.index)})
                for element in send(planned, by_hash(table, "unit", buckets)):
                    yield beam.pvalue.TaggedOutput(UNITS, element)


class ReadClasses(beam.DoFn):  # type: ignore[misc]
    """Sends the classes and hashes of chunks to the buckets of the hashes."""

    def __init__(self, planned: PlannedBuild, decisions: RowDecisions) -> None:
        self._planned, self._decisions = planned, decisions

    def setup(self) -> None:
        """Sources may be the user's own."""
        install_user_code(self._planned)

    def process(self, chunk: Chunk) -> Iterator[tuple[int, Packed]]:
        """Reads one chunk."""
        planned = self._planned
        with leaving_error(planned.workspace):
            table = read_classes(planned, self._decisions, chunk)
            if table.num_rows:
                yield from send(planned, by_hash(table, "hash", planned.buckets()))


class FindMovesOfChunks(beam.DoFn):  # type: ignore[misc]
    """Sends the moves of a bucket of units to the chunks that hold these."""

    def __init__(self, planned: PlannedBuild) -> None:
        self._planned = planned

    def process(self, element: tuple[int, dict[str, Iterable[Packed]]]) -> Iterator[tuple[int, Packed]]:
        """Takes one bucket."""
        moves, of_chunks = (list(element[1][name]) for name in ("moves", "units"))
        if moves:
            with leaving_error(self._planned.workspace):
                found = decisions.moves_of_chunks(rows_of(moves), rows_of(of_chunks))
                yield from send(self._planned, found.append_column(BUCKET, found["chunk"]))


def _by_hash(step: Step, column: str, buckets: int, table: pa.Table) -> pa.Table:
    return by_hash(step(table), column, buckets)


def _by_chunk(step: Step, table: pa.Table) -> pa.Table:
    found = step(table)
    return found.append_column(BUCKET, found["chunk"])


def _in_one(step: Step, table: pa.Table) -> pa.Table:
    return to_one(step(table))
