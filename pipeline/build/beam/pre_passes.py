"""Runs the passes before the job (`pipeline.build.worker.pre_passes`; most specs need none), and makes its graph."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import tensorflow_transform as tft
from tfx_bsl.tfxio.tensor_adapter import TensorAdapter

from recordmill.pipeline.build.analysis.complete_options import complete_options
from recordmill.pipeline.build.analysis.inputs import tensor_config
from recordmill.pipeline.build.analysis.own_preprocessing import OwnPreprocessing, PreprocessingError
from recordmill.pipeline.build.beam.analyzers import BeamAnalyzers
from recordmill.pipeline.build.beam.runners import Runner
from recordmill.pipeline.build.beam.vocabularies import VocabularyOptions
from recordmill.pipeline.build.context.build_context import BuildContext, PlannedBuild
from recordmill.pipeline.build.context.failures import leaving_error
from recordmill.pipeline.build.context.row_schema import RowDecisions
from recordmill.pipeline.build.worker.content_pass import ContentPass
from recordmill.pipeline.build.worker.pre_passes import ClassPass, PrePass, Result, StrataPass, WordPass
from recordmill.pipeline.sources.base import Chunk
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.text import TextOptions
from recordmill.transforms.tensorflow.cleaning import text_ops
from recordmill.transforms.tensorflow.preprocessing import Preprocessing


def run_pre_passes(planned: PlannedBuild, chunks: Sequence[Chunk], runner: Runner) -> BuildContext:
    """Runs the small passes that the spec needs before the job; gives the build with what they found.

    Each pass that leaves rows out, or decides their splits, sees what the one before decided.
    """

    def run(pre_pass: PrePass[Result]) -> Result:
        if unread := pre_pass.unread(chunks):
            with runner.pipeline(planned) as pipeline:
                _ = pipeline | "ListChunks" >> beam.Create(unread) | "ReadFirst" >> beam.ParDo(ReadFirst(pre_pass))
        return pre_pass.result(chunks)

    split_by, action = planned.schema.split_by, planned.duplicates.action
    decisions, classes, models = RowDecisions(), None, dict[str, bytes]()
    if action in ("drop", "fail"):
        decisions = run(ContentPass(planned, decisions))
    if split_by is not None and split_by.stratify is not None:
        decisions = replace(decisions, strata=run(StrataPass(planned, decisions, split_by.stratify)))
    if action == "same_split":
        decisions = run(ContentPass(planned, decisions))
    if planned.preprocessing is not None and planned.open_label():
        classes = run(ClassPass(planned, decisions))
    if planned.trained():
        models = run(WordPass(planned, decisions))
    context = BuildContext.of(planned, decisions, features=complete_options(planned, models, classes))
    if context.preprocessing is None:
        return context
    return replace(context, analyzed=context.analyzed | _analyzed_columns(context))


class ReadFirst(beam.DoFn):  # type: ignore[misc]
    """A pass of `pipeline.build.worker.pre_passes` on Beam."""

    def __init__(self, pre_pass: PrePass[Any]) -> None:
        self._pre_pass = pre_pass

    def setup(self) -> None:
        """Sources may be the user's own."""
        install_user_code(self._pre_pass.planned)

    def process(self, chunk: Chunk) -> None:
        """Reads one chunk."""
        with leaving_error(self._pre_pass.planned.path("scratch")):
            self._pre_pass.read(chunk)


def _analyzed_columns(context: BuildContext) -> frozenset[str]:
    """Gives the columns that the user's own analyzers read.

    Raises:
        PreprocessingError: they read images.
    """
    preprocessing_fn = make_preprocessing(context, make_analyzers(context))
    specs = TensorAdapter(tensor_config(context)).TypeSpecs()
    own = set(tft.get_analyze_input_columns(preprocessing_fn, specs))
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
