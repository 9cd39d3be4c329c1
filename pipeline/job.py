"""The whole job as one Beam pipeline, and the runners that it may run on. Wires; the thinking is in the modules named.

chunks ─ ReadChunks ─▶ packed rows ─ GroupByShard ─▶ BuildShards ─▶ reports
└─▶ AnalyzeDataset ─▶ KeepExport ───────┘
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner, create_runner

from pipeline.analysis import keep_export, tensor_config
from pipeline.analyzers import BeamAnalyzers, VocabularyOptions
from pipeline.errors import UserError, did_you_mean
from pipeline.packing import Packed
from pipeline.reading import ChunkReader
from pipeline.shards import ShardBuilder
from pipeline.sources.base import Chunk
from pipeline.work import Work
from transforms.preprocessing import Preprocessing

ANALYSIS = "analysis"


class RunnerError(UserError):
    """The runner cannot be used so; the message is one clear line for the user."""


def run_job(work: Work, chunks: Sequence[Chunk], runner: PipelineRunner, options: PipelineOptions) -> None:
    """Runs the pipeline to its end; its results are the reports and files in the build's folder."""
    with (
        beam.Pipeline(runner=runner, options=options) as pipeline,
        tft_beam.Context(temp_dir=work.path("scratch")),
    ):
        build_graph(pipeline, work, chunks)


def build_graph(pipeline: beam.Pipeline, work: Work, chunks: Sequence[Chunk]) -> None:
    """Adds the job's steps to a pipeline."""
    read = (
        pipeline
        | "ListChunks" >> beam.Create(list(chunks))
        | "ReadChunks" >> beam.ParDo(ReadChunks(work)).with_outputs(ANALYSIS, main="rows")
    )
    saved_model, metadata = (read[ANALYSIS], tensor_config(work)) | "Analyze" >> tft_beam.AnalyzeDataset(
        preprocessing(work)
    )
    export = saved_model | "KeepExport" >> beam.Map(
        keep_export, beam.pvalue.AsSingleton(metadata.deferred_metadata), work
    )
    _ = (
        read["rows"]
        | "GroupByShard" >> beam.GroupByKey()
        | "BuildShards" >> beam.ParDo(BuildShards(work), beam.pvalue.AsSingleton(export))
    )


def preprocessing(work: Work) -> Preprocessing:
    """The `preprocessing_fn` of a build."""
    options = {
        name: VocabularyOptions(
            name,
            top_k=feature.get("vocabulary"),
            minimum_count=feature.get("minimum_count", 1),
            given=feature.get("classes"),
        )
        for name, feature in work.features.items()
    }
    return Preprocessing(work.features, BeamAnalyzers(options, work.path("reports")))


class ReadChunks(beam.DoFn):  # type: ignore[misc]
    """`pipeline.reading.ChunkReader` on Beam."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def setup(self) -> None:
        """Makes the reader, once a worker."""
        self._reader = ChunkReader(self._work)

    def process(self, chunk: Chunk) -> Iterator[Any]:
        """Gives (group, packed rows), and the analysis' batches under their own tag."""
        for element in self._reader.read(chunk):
            yield beam.pvalue.TaggedOutput(ANALYSIS, element) if isinstance(element, pa.RecordBatch) else element


class BuildShards(beam.DoFn):  # type: ignore[misc]
    """`pipeline.shards.ShardBuilder` on Beam."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def setup(self) -> None:
        """Nothing is known yet of the transform graph."""
        self._builder: ShardBuilder | None = None

    def process(self, group: tuple[int, Iterable[Packed]], export: str) -> Iterator[tuple[int, int]]:
        """Builds one shard; gives its group and its number of records."""
        if self._builder is None:
            self._builder = ShardBuilder(self._work, export)
        number, packed = group
        yield number, self._builder.build(number, packed)["records"]


def make_runner(name: str, processes: int, beam_options: Sequence[str]) -> tuple[PipelineRunner, PipelineOptions, bool]:
    """Gives the runner, its options and whether it is the local one.

    `local` is Beam's FnApiRunner by its name: `DirectRunner` would be Prism wherever its binary can be had.

    Raises:
        RunnerError: the options ask for what loses data or does not exist.
    """
    options = _parse(beam_options)
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_threading":
        raise RunnerError(
            "direct_running_mode=multi_threading is refused: Apache Beam 2.77 silently loses records in it "
            "(its data buffer is cleared without a lock). Leave it out: a build uses every core in one process; "
            "or run separate processes with `--processes N`"
        )
    if name != "local":
        if processes > 1:
            raise RunnerError(f"--processes is the local runner's: tell {name} its parallelism after --")
        return _other_runner(name), options, False
    direct.direct_running_mode = "multi_processing" if processes > 1 else "in_memory"
    direct.direct_num_workers = processes
    return FnApiRunner(), options, True


OURS = {"runner": "--runner NAME", "direct_running_mode": "--processes N", "direct_num_workers": "--processes N"}
"""Beam's options that are ours to set, and how they are asked for."""


def _parse(arguments: Sequence[str]) -> PipelineOptions:
    """Parses Beam's options; what Beam would take for its own and drop, or end the process for, is refused."""
    if arguments and not arguments[0].startswith("--"):
        raise RunnerError(f"the argument '{arguments[0]}' is one too many; Beam's options begin with --")
    try:
        options = PipelineOptions(list(arguments), pipeline_type_check=False)
        given = options.get_all_options(drop_default=True, retain_unknown_options=True)
        known = options.get_all_options()
    except SystemExit:  # argparse: its usage, a hundred lines, goes to the log
        raise RunnerError(f"Apache Beam does not take these options: {' '.join(arguments)}") from None
    for option in given:
        if option not in known:
            raise RunnerError(f"Apache Beam has no option --{option}{did_you_mean(option, known, '--{}')}")
        if option in OURS and given[option] != "multi_threading":
            raise RunnerError(f"--{option} stands before the --: use `{OURS[option]}`")
    return options


def _other_runner(name: str) -> PipelineRunner:
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        raise RunnerError(f"there is no runner '{name}': use 'local' or one of Beam's: {reason}") from None


def worker_threads(local: bool, processes: int) -> int:
    """How many threads a worker gives to the transform graph: the cores that it has to itself."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes) if local else cores
