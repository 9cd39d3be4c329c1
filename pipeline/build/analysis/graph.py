"""The transform graph in the driver: made of what was learned, kept in the workspace, or taken over and compared.

The driver makes it once, over no rows. `analyze_in_place` is tf.Transform's way for a function without analyzers: a
small Beam job over no rows gives the same export for three times the CPU.
"""

import hashlib
import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_transform.impl_helper import analyze_in_place
from tensorflow_transform.tf_metadata import metadata_io

from recordmill.pipeline.build.analysis.own_preprocessing import OwnPreprocessing
from recordmill.pipeline.build.analysis.tokenizers import FOLDER, SUFFIXES, read_model
from recordmill.pipeline.build.base.live_analysis import LiveAnalysis
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import GRAPH_FOLDERS, input_specs, pack_graph
from recordmill.pipeline.build.context.reports import ANALYSIS, Progress, read_report, write_report
from recordmill.pipeline.compare.distributions import Drift
from recordmill.pipeline.compare.ids import compare_ids
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.paths import attempt_name, path_within
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.graphs import MODEL_FILE, UnsafeGraphError, check_model
from recordmill.pipeline.spec.features.category import read_classes
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.number import NumberOptions
from recordmill.transforms.contract.kinds.text import TextOptions
from recordmill.transforms.tensorflow.number import used_statistics
from recordmill.transforms.tensorflow.transform_graph import Preprocessing

ANALYZED = "reports/analyzed"  # the report of the user's own analyzers: the export's name


@dataclass(frozen=True)
class LearnedAnalysis:
    """All that a build learned."""

    rows: dict[str, int] | None
    """The rows that the look saw, by split; None where there was nothing to learn."""
    statistics: dict[str, dict[str, Any]]
    """By feature, as `dataset.json` holds them."""
    vocabularies: dict[str, list[bytes]]
    """The words with an id, in the order of the ids, by the feature that the vocabulary is named after."""
    models: dict[str, bytes]
    """The tokenizers that were trained, by the feature that each is named after."""
    drift: dict[str, Drift] = field(default_factory=dict)


def complete_options(
    planned: PlannedBuild, models: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, FeatureOptions]:
    """Returns the options of all features, by name.

    Args:
        planned: the build.
        models: tokenizers that were trained, by the feature that each is named after, once they are; others are read
            from files.

    Raises:
        UserError: a file cannot be read, or is not what it should be.
    """
    return {
        name: _complete_text(planned, name, options, models) if isinstance(options, TextOptions) else options
        for name, options in planned.features.items()
    }


def _complete_text(planned: PlannedBuild, name: str, options: TextOptions, models: Mapping[str, bytes]) -> TextOptions:
    if name in planned.models:
        owner = planned.models[name]
        given = planned.texts()[owner]
        if given.model is None and owner not in models:
            return options
        data = models[owner] if given.model is None else _read(planned, given.model)
        return read_model(data, given, given.model or owner).complete(options)
    if isinstance(options.vocabulary, str):
        try:
            return replace(options, words=read_classes(options.vocabulary))
        except ValueError as error:
            raise UserError(str(error)) from None
    return options


def _read(planned: PlannedBuild, path: str) -> bytes:
    try:
        with planned.files.open(path) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def make_preprocessing(context: PlannedBuild, found: LearnedAnalysis, folder: str) -> Preprocessing:
    """Makes the `preprocessing_fn` of a build; writes its vocabularies' files below a folder, local or at a URL.

    Their folder is named after their content: the graph holds its name, so that its bytes follow from the input.
    """
    words = {vocabulary_name(name): _lines(each) for name, each in found.vocabularies.items()}
    folder = f"{folder.rstrip('/')}/vocabularies-{hashlib.sha256(repr(words).encode()).hexdigest()[:32]}"
    tf.io.gfile.makedirs(folder)
    paths = {name: f"{folder}/{vocabulary_name(name)}" for name in found.vocabularies}
    for file_name, text in words.items():
        with tf.io.gfile.GFile(f"{folder}/{file_name}", "wb") as file:
            file.write(text)
    own = None
    if context.preprocessing:
        own = OwnPreprocessing(context.preprocessing, context.schema.label, context.user_code, context.workspace)
    return Preprocessing(context.features, paths, found.statistics, own)


def make_graph(context: PlannedBuild, preprocessing: Preprocessing) -> str:
    """Makes tf.Transform's export of a function without analyzers, and keeps it; returns its name."""
    folder = os.path.join(context.scratch, attempt_name("export"))
    analyze_in_place(preprocessing, False, {}, input_specs(context), folder)
    return _keep_export(folder, context, os.path.dirname(context.scratch))


def _keep_export(made: str, planned: PlannedBuild, temp: str) -> str:
    """Keeps the export of a local folder; returns its name. `temp` is where the graph's files were made."""
    _forget_folder(Path(made, "transform_fn"), temp)
    return pack_graph(planned.workspace, made)


def keep_analyzed(saved_model: str, metadata: object, planned: PlannedBuild, temp: str) -> None:
    """Keeps the export of the user's own analyzers, in a worker, and reports it.

    `tft_beam.WriteTransformFn` would fail when a runner repeats it.
    """
    with tempfile.TemporaryDirectory(prefix="recordmill-") as made:
        _download(saved_model, os.path.join(made, "transform_fn"))
        metadata_io.write_metadata(metadata, os.path.join(made, "transformed_metadata"))
        write_report(planned.workspace, ANALYZED, {"export": _keep_export(made, planned, temp)})


def _download(folder: str, into: str) -> None:
    """Copies a folder, local or at a URL that TensorFlow opens, into a new local one."""
    for parent, _, names in tf.io.gfile.walk(folder):
        local = os.path.join(into, parent[len(folder) :].strip("/"))
        os.makedirs(local)
        for name in names:
            tf.io.gfile.copy(f"{parent.rstrip('/')}/{name}", os.path.join(local, name))


def report_analysis(planned: PlannedBuild, export: str, found: LearnedAnalysis) -> None:
    """Reports a finished analysis: the export, what was found, and the analyzed columns."""
    learned = {"rows": found.rows, "statistics": found.statistics, "drift": found.drift}
    report = {"export": export, "analyzed": sorted(planned.analyzed), **learned}
    write_report(planned.workspace, f"reports/{ANALYSIS}", report)
    Progress(planned.progress, ANALYSIS).add(analyzed=1)


def analyzed_columns(planned: PlannedBuild) -> frozenset[str]:
    """Returns the columns that a finished analysis read, those of the user's own analyzers too."""
    report = read_report(planned.workspace, f"reports/{ANALYSIS}")
    assert report is not None  # noqa: S101 - the attempt keeps the export that it names
    return frozenset(report["analyzed"])


def _forget_folder(saved_model: Path, folder: str) -> None:
    """Takes a folder out of a SavedModel: TensorFlow names a table by its file's absolute path."""
    path = saved_model / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in (meta.graph_def for meta in model.meta_graphs):
        for node in itertools.chain(graph.node, *(function.node_def for function in graph.library.function)):
            if "shared_name" in node.attr:
                node.attr["shared_name"].s = node.attr["shared_name"].s.replace(folder.encode() + b"/", b"")
    path.write_bytes(model.SerializeToString(deterministic=True))
    (saved_model / "fingerprint.pb").unlink(missing_ok=True)  # optional, and that of the earlier bytes


def frozen_models(planned: PlannedBuild, live: LiveAnalysis) -> dict[str, bytes]:
    """Returns the tokenizers that the version trained, by the feature that each is named after.

    Raises:
        OutputError: one is not what the version's manifest says.
    """
    return {owner: live.read(model_file(planned, owner)) for owner in dict.fromkeys(planned.trained().values())}


def model_file(planned: PlannedBuild, owner: str) -> str:
    """Returns the path in a version of the tokenizer that is named after this feature."""
    return f"{FOLDER}/{owner}.{SUFFIXES[planned.texts()[owner].tokenizer]}"


def keep_graph(planned: PlannedBuild, live: LiveAnalysis) -> str:
    """Writes the graph of the version into the workspace; returns the archive's name.

    Raises:
        OutputError: a file is not what the version's manifest says.
        UnsafeGraphError: the graph could do more than compute; the version may be somebody else's.
    """
    with tempfile.TemporaryDirectory(dir=planned.scratch) as folder:
        for name in GRAPH_FOLDERS:
            os.mkdir(os.path.join(folder, name))
        for file in live.files:
            if file.split("/")[0] in GRAPH_FOLDERS:
                path_within(folder, file).write_bytes(_safe(file, live.read(file)))
        return pack_graph(planned.workspace, folder)


def _safe(file: str, data: bytes) -> bytes:
    """Returns a file of the graph. Raises: UnsafeGraphError: it is a program that TensorFlow should not load."""
    name = file.rpartition("/")[2]
    if name.startswith("saved_model."):
        problems = check_model(data).problems if name == MODEL_FILE else ("TensorFlow might load it instead",)
        for problem in problems:
            raise UnsafeGraphError(
                f"the live version's graph is not taken over: {file}: {problem}; build once without `analysis: frozen`"
            )
    return data


def learned_changes(planned: PlannedBuild, live: LiveAnalysis, found: LearnedAnalysis) -> Iterator[str]:
    """Yields a line for each value of the graph that is another than the live one, with both; of words their number.

    One makes every record another.
    """
    for name, words in found.vocabularies.items():
        file = f"transform_fn/assets/{vocabulary_name(name)}"
        if _digest(_lines(words)) != live.files.get(file):
            new, lost, moved = compare_ids(_ids(live.read(file).splitlines()), _ids(words))
            yield f"{name}.vocabulary: {len(new):,} new, {len(lost):,} gone, {len(moved):,} with another id"
    for name, model in found.models.items():
        if _digest(model) != live.files.get(model_file(planned, name)):
            yield f"{name}.tokenizer: trained anew"
    for name, options in planned.features.items():
        before, now = live.statistics.get(name, {}), found.statistics.get(name, {})
        for key in used_statistics(options) if isinstance(options, NumberOptions) else ():
            if before.get(key) != now.get(key):
                yield f"{name}.{key}: {before.get(key)} → {now.get(key)}"


def _ids(words: Sequence[bytes]) -> dict[str, int]:
    return {word.decode("utf-8", "surrogateescape"): id_ for id_, word in enumerate(words)}


def _lines(words: Sequence[bytes]) -> bytes:
    return b"".join(word + b"\n" for word in words)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
