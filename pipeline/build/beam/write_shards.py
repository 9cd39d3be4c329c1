"""The job that writes the shards, as one Beam pipeline.

chunks ─ ReadChunks ─▶ packed rows ─ GroupByShard ─▶ BuildShards ─▶ reports ─▶ CountDuplicates
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

import apache_beam as beam

from recordmill.pipeline.build.attempt.attempts import Kept
from recordmill.pipeline.build.beam.placement import CountDuplicates
from recordmill.pipeline.build.beam.runner import Add, Runner
from recordmill.pipeline.build.beam.steps import ListChunks, WorkerStep
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import install_user_code
from recordmill.pipeline.build.context.reports import read_report, shard_step, write_report
from recordmill.pipeline.build.runners.job import OvertakenError, Rest
from recordmill.pipeline.build.worker.build_shard import ShardBuilder
from recordmill.pipeline.build.worker.packing import Packed
from recordmill.pipeline.build.worker.read_chunk import ChunkReader
from recordmill.pipeline.sources.source_reader import Chunk

COUNTED = "reports/counted"


def run_job(
    context: PlannedBuild,
    chunks: Sequence[Chunk],
    finished: Sequence[int],
    runner: Runner,
    rest: Rest[Kept] = Rest(),  # noqa: B008 - frozen
) -> None:
    """Runs the pipeline to its end; its results are the reports and files in the build's folder.

    Also counts the duplicates of `finished`, the groups of the shards that an earlier attempt built. Raises:
    OvertakenError: all is built, but there was a backup, and workers may still write in this attempt.
    """
    install_user_code(context)

    def add_rest() -> Add | None:
        if (kept := rest.find()) is None:
            return None
        left = [chunk for chunk in chunks if chunk.index in kept.chunks]
        planned = replace(context, groups=kept.groups)
        return partial(build_graph, context=planned, chunks=left, finished=sorted(kept.shards))

    add = partial(build_graph, context=context, chunks=chunks, finished=finished)
    had_backup = runner.run(context, add, Rest(rest.count, add_rest))
    write_report(context.workspace, COUNTED, {})
    if had_backup:
        raise OvertakenError("the cancelled run of the job may still write")


def is_counted(context: PlannedBuild) -> bool:
    """Whether an earlier attempt has counted the duplicates of all shards."""
    return read_report(context.workspace, COUNTED) is not None


def build_graph(
    pipeline: beam.Pipeline, context: PlannedBuild, chunks: Sequence[Chunk], finished: Sequence[int] = ()
) -> None:
    """Adds the job's steps to a pipeline."""
    groups = [pipeline | "ListFinished" >> beam.Create(list(finished))] if finished else []
    if chunks:
        groups.append(_build(pipeline, context, chunks))
    shards = groups[0] if len(groups) == 1 else groups | "AllShards" >> beam.Flatten()
    _ = shards | "CountDuplicates" >> CountDuplicates(context)


def _build(pipeline: beam.Pipeline, context: PlannedBuild, chunks: Sequence[Chunk]) -> beam.PCollection:
    """Reads chunks and builds shards; returns their groups."""
    reader = WorkerStep(context, lambda: ChunkReader(context).read)
    builder = WorkerStep(context, lambda: partial(_build_shard, context, cache(partial(ShardBuilder, context))))
    return (
        pipeline
        | "ListChunks" >> ListChunks(context.workspace, chunks)
        | "ReadChunks" >> beam.ParDo(reader)
        | "GroupByShard" >> beam.GroupByKey()
        | "BuildShards" >> beam.ParDo(builder)
    )


def _build_shard(
    context: PlannedBuild, builder: Callable[[], ShardBuilder], group: tuple[int, Iterable[Packed]]
) -> Iterator[int]:
    """Builds one shard, unless another job has, with a builder made for the first one; yields its group."""
    if read_report(context.workspace, f"reports/{shard_step(group[0])}") is None:
        builder().build(*group)
    yield group[0]
