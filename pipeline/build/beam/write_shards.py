"""The job that writes the shards, as one Beam pipeline: wires the functions of other modules.

chunks ─ ReadChunks ─▶ packed rows ─ GroupByShard ─▶ BuildShards ─▶ reports ─▶ CountDuplicates
"""

from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from recordmill.pipeline.build.beam.duplicates import CountDuplicates
from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.beam.shared_steps import ListChunks
from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.graph import install_user_code
from recordmill.pipeline.build.context.reports import leaving_error
from recordmill.pipeline.build.context.workspace import read_report, write_report
from recordmill.pipeline.build.worker.build_shard import ShardBuilder
from recordmill.pipeline.build.worker.packing import Packed
from recordmill.pipeline.build.worker.read_chunk import ChunkReader
from recordmill.pipeline.sources.source_reader import Chunk

COUNTED = "reports/counted"


def run_job(context: BuildContext, chunks: Sequence[Chunk], finished: Sequence[int], runner: Runner) -> None:
    """Runs the pipeline to its end; its results are the reports and files in the build's folder.

    Args:
        context: the build.
        chunks: those that are read.
        finished: the groups of the shards that an earlier attempt built, whose duplicates are counted with the others.
        runner: the runner.
    """
    install_user_code(context)
    with runner.pipeline(context) as pipeline:
        build_graph(pipeline, context, chunks, finished)
    write_report(context.workspace, COUNTED, {})


def is_counted(context: BuildContext) -> bool:
    """Whether an earlier attempt has counted the duplicates of all shards."""
    return read_report(context.workspace, COUNTED) is not None


def build_graph(
    pipeline: beam.Pipeline, context: BuildContext, chunks: Sequence[Chunk], finished: Sequence[int] = ()
) -> None:
    """Adds the job's steps to a pipeline."""
    groups = [pipeline | "ListFinished" >> beam.Create(list(finished))] if finished else []
    if chunks:
        groups.append(_build(pipeline, context, chunks))
    shards = groups[0] if len(groups) == 1 else groups | "AllShards" >> beam.Flatten()
    _ = shards | "CountDuplicates" >> CountDuplicates(context)


def _build(pipeline: beam.Pipeline, context: BuildContext, chunks: Sequence[Chunk]) -> beam.PCollection:
    """Reads chunks and builds shards; returns their groups."""
    return (
        pipeline
        | "ListChunks" >> ListChunks(context.workspace, chunks)
        | "ReadChunks" >> beam.ParDo(ReadChunks(context))
        | "GroupByShard" >> beam.GroupByKey()
        | "BuildShards" >> beam.ParDo(BuildShards(context))
    )


class ReadChunks(beam.DoFn):  # type: ignore[misc]
    """`pipeline.build.worker.read_chunk.ChunkReader` on Beam."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context

    def setup(self) -> None:
        """Makes the worker's reader."""
        install_user_code(self._context)
        self._reader = ChunkReader(self._context, self._context.decisions, self._context.groups)

    def process(self, chunk: Chunk) -> Iterator[tuple[int, Packed]]:
        """Yields packed rows with their groups."""
        with leaving_error(self._context.workspace):
            yield from self._reader.read(chunk)


class BuildShards(beam.DoFn):  # type: ignore[misc]
    """`pipeline.build.worker.build_shard.ShardBuilder` on Beam."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context

    def setup(self) -> None:
        """Begins without the transform graph."""
        install_user_code(self._context)
        self._builder: ShardBuilder | None = None

    def process(self, group: tuple[int, Iterable[Packed]]) -> Iterator[int]:
        """Builds one shard; yields its group."""
        number, packed = group
        with leaving_error(self._context.workspace):
            if self._builder is None:
                self._builder = ShardBuilder(self._context)
            self._builder.build(number, packed)
            yield number
