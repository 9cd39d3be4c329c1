"""Runs the passes before the job (`pipeline.build.worker.pre_passes`; most specs need none), and makes its graph."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import apache_beam as beam
import tensorflow_transform as tft
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from recordmill.pipeline.build.analysis.complete_options import complete_options
from recordmill.pipeline.build.analysis.inputs import analysis_specs
from recordmill.pipeline.build.analysis.own_preprocessing import OwnPreprocessing, PreprocessingError
from recordmill.pipeline.build.beam.analyzers import BeamAnalyzers
from recordmill.pipeline.build.beam.vocabularies import VocabularyOptions
from recordmill.pipeline.build.context.build_context import BuildContext, PlannedBuild
from recordmill.pipeline.build.context.failures import leaving_error, raising_left_error
from recordmill.pipeline.build.context.row_schema import RowDecisions
from recordmill.pipeline.build.worker.content_pass import ContentReader, decide_duplicates
from recordmill.pipeline.build.worker.pre_passes import (
    ClassReader,
    WordReader,
    find_classes,
    find_strata,
    train_models,
    unread,
)
from recordmill.pipeline.sources.base import Chunk
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.text import TextOptions
from recordmill.transforms.tensorflow.cleaning import text_ops
from recordmill.transforms.tensorflow.preprocessing import Preprocessing

Reader: TypeAlias = ClassReader | WordReader | ContentReader


def run_pre_passes(
    planned: PlannedBuild, chunks: Sequence[Chunk], runner: PipelineRunner, options: PipelineOptions
) -> BuildContext:
    """Runs the small passes that the spec needs before the job; gives the build with what they found."""
    run = partial(_run_pass, planned, chunks, runner, options)
    decisions, label, classes, models = _decide_rows(planned, chunks, run), planned.schema.label, None, {}
    if planned.preprocessing is not None and label is not None and planned.open_label():
        run(ClassReader(planned, decisions, label))
        classes = find_classes(planned, chunks)
    if planned.trained():
        run(WordReader(planned, decisions))
        models = train_models(planned, chunks)
    features = complete_options(planned, models, classes)
    context = BuildContext.of(planned, decisions, features=features)
    if context.preprocessing is None:
        return context
    return replace(context, analyzed=context.analyzed | _analyzed_columns(context))


def _decide_rows(planned: PlannedBuild, chunks: Sequence[Chunk], run: Callable[[Reader], None]) -> RowDecisions:
    """Runs the passes that leave rows out or decide their splits; each sees what the one before decided."""
    split_by, action, before = planned.schema.split_by, planned.duplicates.action, RowDecisions()
    if action in ("drop", "fail"):
        run(ContentReader(planned, before))
        before = decide_duplicates(planned, chunks)
    if split_by is not None and split_by.stratify is not None:
        run(ClassReader(planned, before, split_by.stratify, for_strata=True))
        before = RowDecisions(strata=find_strata(planned, chunks), dropped=before.dropped)
    if action == "same_split":
        run(ContentReader(planned, before))
        before = RowDecisions(strata=before.strata, moved=decide_duplicates(planned, chunks).moved)
    return before


def _run_pass(
    planned: PlannedBuild, chunks: Sequence[Chunk], runner: PipelineRunner, options: PipelineOptions, reader: Reader
) -> None:
    chunks = unread(planned, reader.name, chunks)
    if not chunks:
        return
    with raising_left_error(planned.path("scratch")), beam.Pipeline(runner=runner, options=options) as pipeline:
        _ = pipeline | "ListChunks" >> beam.Create(chunks) | "ReadFirst" >> beam.ParDo(ReadFirst(reader, planned))


class ReadFirst(beam.DoFn):  # type: ignore[misc]
    """A reader of `pipeline.build.worker.pre_passes` on Beam."""

    def __init__(self, reader: Reader, planned: PlannedBuild) -> None:
        self._reader, self._planned = reader, planned

    def setup(self) -> None:
        """Sources may be the user's own."""
        install_user_code(self._planned)

    def process(self, chunk: Chunk) -> None:
        """Reads one chunk."""
        with leaving_error(self._planned.path("scratch")):
            self._reader.read(chunk)


def _analyzed_columns(context: BuildContext) -> frozenset[str]:
    """Gives the columns that the user's own analyzers read.

    Raises:
        PreprocessingError: they read images.
    """
    preprocessing_fn = make_preprocessing(context, make_analyzers(context))
    own = set(tft.get_analyze_input_columns(preprocessing_fn, analysis_specs(context)))
    images = own & set(context.images()) - context.analyzed
    if images:
        raise PreprocessingError(
            f"{context.preprocessing} analyzes the images of {', '.join(sorted(images))}: an analyzer sees numbers, "
            "texts and categories only; images' mean and variance are had by `normalize: dataset`"
        )
    return frozenset(own & set(context.schema.features))


def make_preprocessing(context: BuildContext, analyzers: BeamAnalyzers) -> Preprocessing:
    """Makes the `preprocessing_fn` of a build."""
    install_user_code(context)
    own = None
    if context.preprocessing:
        own = OwnPreprocessing(context.preprocessing, context.schema.label, context.user_code, context.path("scratch"))
    return Preprocessing(context.features, analyzers, own)


def make_analyzers(context: BuildContext) -> BeamAnalyzers:
    """Makes the analyzers of a build, which know the options of its vocabularies."""
    options = {
        name: VocabularyOptions.of(name, feature)
        for name, feature in context.features.items()
        if isinstance(feature, TextOptions | NameOptions)
    }
    return BeamAnalyzers(options, context.path("reports"))


def install_user_code(planned: PlannedBuild) -> None:
    """Loads what this process needs to run the graph: the user's modules, and tensorflow-text's operations."""
    if planned.user_code is not None:
        planned.user_code.install()
    if any(text.needs_tensorflow_text for text in planned.texts().values()):
        text_ops()
