"""What is made before the job is: its `preprocessing_fn`, and what small passes over the data find first.

Which passes a spec needs: `pipeline.build.worker.pre_passes`. Most need none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import tensorflow_transform as tft
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from recordmill.pipeline.build.analysis.inputs import analysis_specs
from recordmill.pipeline.build.analysis.own_preprocessing import OwnPreprocessing, PreprocessingError
from recordmill.pipeline.build.analysis.tokenizer_models import read_model
from recordmill.pipeline.build.beam.analyzers import BeamAnalyzers
from recordmill.pipeline.build.beam.vocabularies import VocabularyOptions
from recordmill.pipeline.build.context.build_context import CLASSES, Work
from recordmill.pipeline.build.worker.content_pass import ContentReader, with_duplicates
from recordmill.pipeline.build.worker.pre_passes import (
    ClassReader,
    WordReader,
    trained_models,
    unread,
    with_classes,
    with_strata,
)
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.base import Chunk
from recordmill.pipeline.spec.features.classes import read_classes
from recordmill.transforms.contract.text_options import needs_tensorflow_text
from recordmill.transforms.tensorflow.cleaning import text_ops
from recordmill.transforms.tensorflow.preprocessing import Preprocessing


def look_first(work: Work, chunks: Sequence[Chunk], runner: PipelineRunner, options: PipelineOptions) -> Work:
    """Runs the small passes that the spec needs before the job; gives the work with what they found."""
    split_by, label, duplicates = work.rows.split_by, work.rows.label, work.duplicates["action"]
    if duplicates in ("drop", "fail"):
        work = _with_duplicates(work, chunks, runner, options)
    if split_by is not None and split_by.stratify is not None:
        _run_first(ClassReader(work, split_by.stratify, for_strata=True), work, chunks, runner, options)
        work = with_strata(work, chunks)
    if duplicates == "same_split":
        work = _with_duplicates(work, chunks, runner, options)
    if work.preprocessing is not None and label is not None and work.open_label():
        _run_first(ClassReader(work, label), work, chunks, runner, options)
        work = with_classes(work, chunks, label)
    models: dict[str, bytes] = {}
    if work.trained():
        _run_first(WordReader(work), work, chunks, runner, options)
        models = trained_models(work, chunks)
    return with_analyzed_columns(with_given(work, models))


def _with_duplicates(work: Work, chunks: Sequence[Chunk], runner: PipelineRunner, options: PipelineOptions) -> Work:
    _run_first(ContentReader(work), work, chunks, runner, options)
    return with_duplicates(work, chunks)


def with_given(work: Work, trained: Mapping[str, bytes]) -> Work:
    """The work with what its features' options name: tokenizers' models, trained or from files, and files of words.

    Raises:
        UserError: a file cannot be read, or is not what it should be.
    """
    features = {}
    for name, options in work.features.items():
        added: dict[str, Any] = {}
        if name in work.models:
            owner = work.models[name]
            data = trained[owner] if owner in trained else _read(work, work.features[owner]["model"])
            added = read_model(data, work.features[owner], work.features[owner]["model"] or owner).options()
        elif options["kind"] == "text" and isinstance(options["vocabulary"], str):
            added = {"given_words": _words(options["vocabulary"])}
        features[name] = {**options, **added}
    return replace(work, features=features)


def _read(work: Work, path: str) -> bytes:
    try:
        with work.files.open(path) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def _words(path: str) -> tuple[str, ...]:
    try:
        return read_classes(path)
    except ValueError as error:
        raise UserError(str(error)) from None


def _run_first(
    reader: ClassReader | WordReader | ContentReader,
    work: Work,
    chunks: Sequence[Chunk],
    runner: PipelineRunner,
    options: PipelineOptions,
) -> None:
    chunks = unread(work, reader.what, chunks)
    if not chunks:
        return
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        _ = pipeline | "ListChunks" >> beam.Create(chunks) | "ReadFirst" >> beam.ParDo(ReadFirst(reader, work))


class ReadFirst(beam.DoFn):  # type: ignore[misc]
    """A reader of `pipeline.build.worker.pre_passes` on Beam."""

    def __init__(self, reader: ClassReader | WordReader | ContentReader, work: Work) -> None:
        self._reader = reader
        self._work = work

    def setup(self) -> None:
        """Sources may be the user's own."""
        install(self._work)

    def process(self, chunk: Chunk) -> None:
        """Reads one chunk."""
        self._reader.read(chunk)


def with_analyzed_columns(work: Work) -> Work:
    """The work with the columns that the user's own analyzers read.

    Raises:
        PreprocessingError: they read pictures.
    """
    if work.preprocessing is None:
        return work
    own = set(tft.get_analyze_input_columns(make_preprocessing(work, make_analyzers(work)), analysis_specs(work)))
    pictures = own & set(work.images()) - work.analyzed
    if pictures:
        raise PreprocessingError(
            f"{work.preprocessing} analyzes the pictures of {', '.join(sorted(pictures))}: an analyzer sees numbers, "
            "texts and categories only; pictures' mean and variance are had by `normalize: dataset`"
        )
    return replace(work, analyzed=work.analyzed | (own & set(work.rows.features)))


def make_preprocessing(work: Work, analyzers: BeamAnalyzers) -> Preprocessing:
    """The `preprocessing_fn` of a build."""
    install(work)
    own = OwnPreprocessing(work.preprocessing, work.rows.label, work.user_code) if work.preprocessing else None
    return Preprocessing(work.features, analyzers, own)


def make_analyzers(work: Work) -> BeamAnalyzers:
    """The analyzers of a build, which know the options of its vocabularies."""
    options = {
        name: VocabularyOptions.of(name, feature)
        for name, feature in work.features.items()
        if feature["kind"] in ("text", *CLASSES)
    }
    return BeamAnalyzers(options, work.path("reports"))


def install(work: Work) -> None:
    """Makes ready what this process needs to load the graph: the user's modules, and tensorflow-text's operations."""
    if work.user_code is not None:
        work.user_code.install()
    if any(options["kind"] == "text" and needs_tensorflow_text(options) for options in work.features.values()):
        text_ops()
