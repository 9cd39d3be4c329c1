"""A build's two large jobs: a look at all rows for what the transform graph must hold; and the writing of the shards.

chunks ─ LookAtChunks ─▶ (bucket, sums) ─ GroupByBucket ─▶ MergeBuckets ─▶ files (`pipeline.build.summaries`)
chunks ─ ReadChunks ─▶ packed rows ─ GroupByShard ─▶ BuildShards ─▶ reports ─▶ CountDuplicates
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform.beam as tft_beam

from recordmill.pipeline.build.analysis import graph
from recordmill.pipeline.build.base.live_analysis import LearnedAnewError, LiveAnalysis
from recordmill.pipeline.build.beam.placement import CountDuplicates
from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.beam.steps import TEMP, ListChunks, Step, WorkerStep, probe_temp
from recordmill.pipeline.build.context import reports
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import install_user_code
from recordmill.pipeline.build.summaries.look import Look, PartialSums, Sums, kept, learned, statistics_look
from recordmill.pipeline.build.summaries.summary import train_rows
from recordmill.pipeline.build.worker.build_shard import ShardBuilder
from recordmill.pipeline.build.worker.keyed_rows import keyed_blocks
from recordmill.pipeline.build.worker.packing import Packed
from recordmill.pipeline.build.worker.read_chunk import ChunkReader, LookReader
from recordmill.pipeline.dataset.paths import attempt_name
from recordmill.pipeline.sources.source_reader import Chunk

COUNTED = "reports/counted"


def run_look(look: Look, chunks: Sequence[Chunk], runner: Runner) -> Sums:
    """Looks at all chunks, unless nothing is to be learned or an earlier attempt has; returns the reduced buckets."""
    done = look.read_done() if look.summaries else {}
    if done is None:
        with runner.pipeline(look.planned) as pipeline:
            sums = (
                pipeline
                | "ListChunks" >> ListChunks(look.planned.workspace, chunks)
                | "LookAtChunks" >> beam.ParDo(LookAtChunks(look))
                | "GroupByBucket" >> beam.GroupByKey()
            )
            if look.planned.has_spans:
                kept = [(key, None) for key in look.kept.keys()] if look.kept else []  # noqa: SIM118 - no mapping
                read = sums | "MergeSpans" >> beam.ParDo(Step(look.planned, _of_bucket(look.merge_span)))
                _ = (
                    [read, pipeline | "ListKept" >> beam.Create(kept)]
                    | "AllSpans" >> beam.Flatten()
                    | "GroupBySummary" >> beam.GroupByKey()
                    | "AddUpSpans" >> beam.ParDo(Step(look.planned, _of_bucket(look.add_up)))
                )
            else:
                _ = sums | "MergeBuckets" >> beam.ParDo(Step(look.planned, _of_bucket(look.merge)))
        done = look.finish()
    return done


class LookAtChunks(WorkerStep):
    """Adds up the sums of a bundle's chunks (`worker.read_chunk.LookReader`) before it passes them on."""

    def __init__(self, look: Look) -> None:
        super().__init__(look.planned, lambda: LookReader(look).read)
        self._look = look

    def start_bundle(self) -> None:
        self._sums = PartialSums(self._look.summaries)

    def process(self, chunk: Chunk) -> Iterator[tuple[str, bytes]]:
        with reports.leaving_error(self._planned.workspace):
            yield from self._sums.add(self._function(chunk), self._planned.spans[chunk.source])

    def finish_bundle(self) -> Iterator[Any]:
        for element in self._sums.flush():
            yield beam.transforms.window.GlobalWindows.windowed_value(element)


def _of_bucket(function: Callable[[str, Any], Any]) -> Callable[[tuple[str, Any]], Iterable[Any]]:
    return lambda bucket: [function(*bucket)]


def learn(
    planned: PlannedBuild,
    chunks: Sequence[Chunk],
    runner: Runner,
    export: str | None = None,
    temp: str | None = None,
    live: LiveAnalysis | None = None,
) -> PlannedBuild:
    """Looks at the rows, if the graph learns from them, and makes the graph; returns the build with both.

    `export` is the archive of an earlier attempt's export, `temp` a folder that TensorFlow opens from every worker, for
    the user's own analyzers, and `live` the live version's analysis, if it is frozen, or if spans are kept. Raises:
    UserError: a file of the spec cannot be read, a tokenizer cannot be trained, the user's own function fails, the
    workers do not reach the folder of its analyzers, or the live version is damaged. LearnedAnewError: the graph
    differs from that of the kept spans.
    """
    given = graph.complete(planned)
    look = statistics_look(given, live)
    if look.summaries and live and live.spans and not (live.is_frozen or live.summaries):
        raise LearnedAnewError([f"{live.manifest.version} holds no summaries of its rows"])
    done = run_look(look, chunks, runner)
    is_frozen = live is not None and live.is_frozen
    found = kept(look, done, live, graph.frozen_models(given, live)) if live and is_frozen else learned(look, done)
    context = graph.complete(given, found.models)
    if live is not None and not is_frozen:
        install_user_code(context)
        _check_kept(context, found, live)
    if export is not None:
        report = reports.read_report(context.workspace, f"reports/{reports.ANALYSIS}")
        assert report is not None  # noqa: S101 - the attempt keeps the export it names
        return replace(context, export=export, analyzed=frozenset(report["analyzed"]))
    install_user_code(context)
    if live is None:
        context, name = _make_graph(context, found, chunks, runner, temp)
    else:
        name = graph.keep_graph(context, live)
    values = {"rows": found.rows, "statistics": found.statistics, "drift": found.drift}
    report = {"export": name, "analyzed": sorted(context.analyzed), **values}
    reports.write_report(context.workspace, f"reports/{reports.ANALYSIS}", report)
    reports.Progress(context.progress, reports.ANALYSIS).add(analyzed=1)
    return replace(context, export=name)


def _check_kept(context: PlannedBuild, found: graph.LearnedAnalysis, live: LiveAnalysis) -> None:
    """Checks that the graph equals that of the kept spans. Raises: LearnedAnewError."""
    changes = list(graph.learned_changes(context, live, found))
    preprocessing = graph.make_preprocessing(context, found, context.scratch)
    if preprocessing.own and graph.analyzed_columns(context, preprocessing):
        changes.append(f"{context.preprocessing} uses tf.Transform's analyzers, which read all rows")
    if context.measured_images() and live.sample_share < context.sample_share:
        changes.append("with fewer rows, the sample of images is a larger share of them")
    if context.open_label() and live.rejected_labels:
        changes.append(f"{context.schema.label}: {live.rejected_labels:,} rows were rejected for a label without id")
    if changes:
        raise LearnedAnewError(changes)


def _make_graph(
    context: PlannedBuild, found: graph.LearnedAnalysis, chunks: Sequence[Chunk], runner: Runner, temp: str | None
) -> tuple[PlannedBuild, str]:
    """Makes the graph, by a separate job if the user's function has analyzers; returns the export's name."""

    def read(chunk: Chunk) -> Iterator[pa.RecordBatch]:
        for block in keyed_blocks(context, chunk, images=()):
            yield from graph.analysis_batches(context, columns, train_rows(context, block.rows))

    preprocessing = graph.make_preprocessing(context, found, context.scratch)
    columns = graph.analyzed_columns(context, preprocessing) if preprocessing.own else frozenset[str]()
    if not columns:
        return context, graph.make_graph(context, preprocessing)
    context = replace(context, analyzed=context.analyzed | columns)
    if not runner.is_local:
        if temp is None:
            raise graph.PreprocessingError(
                f"{context.preprocessing} uses tf.Transform's analyzers, and every worker opens their temporary files "
                f"with TensorFlow: add --temp; {TEMP}"
            )
        probe_temp(context, temp, runner)
    folder = f"{(temp or context.scratch).rstrip('/')}/{attempt_name('recordmill')}"
    try:
        preprocessing = graph.make_preprocessing(context, found, folder)
        with runner.pipeline(context) as pipeline, tft_beam.Context(temp_dir=folder):
            batches = (
                pipeline
                | "ListChunks" >> ListChunks(context.workspace, chunks)
                | "ReadForAnalysis" >> beam.ParDo(WorkerStep(context, lambda: read))
            )
            given = (batches, graph.tensor_config(context))
            saved_model, made = given | "Analyze" >> tft_beam.AnalyzeDataset(preprocessing)
            metadata = beam.pvalue.AsSingleton(made.deferred_metadata)
            _ = saved_model | "KeepExport" >> beam.Map(graph.keep_analyzed, metadata, context, folder)
    finally:
        with suppress(tf.errors.OpError):  # never made, or undeletable: the export is kept elsewhere
            tf.io.gfile.rmtree(folder)
    report = reports.read_report(context.workspace, graph.ANALYZED)
    assert report is not None  # noqa: S101 - the job has ended
    return context, str(report["export"])


def run_job(context: PlannedBuild, chunks: Sequence[Chunk], finished: Sequence[int], runner: Runner) -> None:
    """Builds the shards of chunks, and counts duplicates; the results are reports and files in the build's folder.

    Also counts the duplicates of `finished`, the groups of the shards that an earlier attempt built.
    """
    install_user_code(context)
    with runner.pipeline(context) as pipeline:
        groups = [pipeline | "ListFinished" >> beam.Create(list(finished))] if finished else []
        if chunks:
            groups.append(
                pipeline
                | "ListChunks" >> ListChunks(context.workspace, chunks)
                | "ReadChunks" >> beam.ParDo(WorkerStep(context, lambda: ChunkReader(context).read))
                | "GroupByShard" >> beam.GroupByKey()
                | "BuildShards" >> beam.ParDo(WorkerStep(context, lambda: _shard_step(context)))
            )
        shards = groups[0] if len(groups) == 1 else groups | "AllShards" >> beam.Flatten()
        _ = shards | "CountDuplicates" >> CountDuplicates(context)
    reports.write_report(context.workspace, COUNTED, {})


def is_counted(context: PlannedBuild) -> bool:
    """Whether an earlier attempt has counted the duplicates of all shards."""
    return reports.read_report(context.workspace, COUNTED) is not None


def _shard_step(context: PlannedBuild) -> Callable[[tuple[int, Iterable[Packed]]], Iterator[int]]:
    """Makes a worker's function that builds a shard, unless another job has, and yields its group."""
    builder = cache(partial(ShardBuilder, context))  # made for the first shard

    def build(group: tuple[int, Iterable[Packed]]) -> Iterator[int]:
        if reports.read_report(context.workspace, f"reports/{reports.shard_step(group[0])}") is None:
            builder().build(*group)
        yield group[0]

    return build
