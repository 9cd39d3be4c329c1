"""The whole job as one Beam pipeline: wires the functions of other modules.

chunks ─ ReadChunks ─▶ packed rows ─ GroupByShard ─▶ BuildShards ─▶ reports
└─▶ AnalyzeDataset ─▶ KeepExport ───────┘
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam

from recordmill.pipeline.build.analysis.inputs import keep_export, tensor_config
from recordmill.pipeline.build.beam.pre_passes import install_user_code, make_analyzers, make_preprocessing
from recordmill.pipeline.build.beam.runners import Runner
from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.failures import leaving_error
from recordmill.pipeline.build.worker.build_shard import ShardBuilder
from recordmill.pipeline.build.worker.packing import Packed
from recordmill.pipeline.build.worker.read_chunk import ChunkReader
from recordmill.pipeline.sources.base import Chunk

ANALYSIS = "analysis"


def run_job(context: BuildContext, chunks: Sequence[Chunk], runner: Runner) -> None:
    """Runs the pipeline to its end; its results are the reports and files in the build's folder."""
    install_user_code(context)
    with runner.pipeline(context) as pipeline, tft_beam.Context(temp_dir=context.path("scratch")):
        build_graph(pipeline, context, chunks)


def build_graph(pipeline: beam.Pipeline, context: BuildContext, chunks: Sequence[Chunk]) -> None:
    """Adds the job's steps to a pipeline."""
    read = (
        pipeline
        | "ListChunks" >> beam.Create(list(chunks))
        | "ReadChunks" >> beam.ParDo(ReadChunks(context)).with_outputs(ANALYSIS, main="rows")
    )
    kept = context.export
    export = _analyze(read[ANALYSIS], context) if kept is None else pipeline | "KeptExport" >> beam.Create([kept])
    _ = (
        read["rows"]
        | "GroupByShard" >> beam.GroupByKey()
        | "BuildShards" >> beam.ParDo(BuildShards(context), beam.pvalue.AsSingleton(export))
    )


def _analyze(batches: beam.PCollection, context: BuildContext) -> beam.PCollection:
    """Analyzes; returns the folder of the export."""
    analyzers = make_analyzers(context)
    saved_model, metadata = (batches, tensor_config(context)) | "Analyze" >> tft_beam.AnalyzeDataset(
        make_preprocessing(context, analyzers)
    )
    return saved_model | "KeepExport" >> beam.Map(
        keep_export, beam.pvalue.AsSingleton(metadata.deferred_metadata), context, sorted(analyzers.asked)
    )


class ReadChunks(beam.DoFn):  # type: ignore[misc]
    """`pipeline.build.worker.read_chunk.ChunkReader` on Beam."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context

    def setup(self) -> None:
        """Makes the worker's reader."""
        install_user_code(self._context)
        self._reader = ChunkReader(self._context)

    def process(self, chunk: Chunk) -> Iterator[Any]:
        """Yields (group, packed rows), and the analysis' batches under their own tag."""
        with leaving_error(self._context.path("scratch")):
            for element in self._reader.read(chunk):
                yield beam.pvalue.TaggedOutput(ANALYSIS, element) if isinstance(element, pa.RecordBatch) else element


class BuildShards(beam.DoFn):  # type: ignore[misc]
    """`pipeline.build.worker.build_shard.ShardBuilder` on Beam."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context

    def setup(self) -> None:
        """Begins without the transform graph."""
        install_user_code(self._context)
        self._builder: ShardBuilder | None = None

    def process(self, group: tuple[int, Iterable[Packed]], export: str) -> Iterator[tuple[int, int]]:
        """Builds one shard; yields its group and its number of records."""
        number, packed = group
        with leaving_error(self._context.path("scratch")):
            if self._builder is None:
                self._builder = ShardBuilder(self._context, export)
            yield number, self._builder.build(number, packed)["records"]
