"""The transform graph in the driver: made from what was learned, stored in the workspace, or reused and compared.

The driver makes it once, over no rows. `analyze_in_place` is tf.Transform's way for a function without analyzers: a
small Beam job over no rows gives the same export for three times the CPU.
"""

import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.impl_helper import analyze_in_place
from tensorflow_transform.tf_metadata import metadata_io
from tfx_bsl.tfxio import tensor_adapter

from recordmill.pipeline.build.analysis.tokenizers import FOLDER, SUFFIXES, read_model
from recordmill.pipeline.build.base.live_analysis import LiveAnalysis
from recordmill.pipeline.build.context import graph, reports
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.texts.chat import with_template
from recordmill.pipeline.build.texts.encode import RowEncoder, graph_column
from recordmill.pipeline.compare.distributions import Drift
from recordmill.pipeline.compare.versions import compare_ids
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.paths import attempt_name, is_name, path_within
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.graphs import MODEL_FILE, UnsafeGraphError, check_model
from recordmill.pipeline.sources.user_code import FAILURES, UserCode, blame, load
from recordmill.pipeline.versions.stores.base import Store
from recordmill.transforms.base.stored import KEY, part_name
from recordmill.transforms.engines.transform_graph import Preprocessing
from recordmill.transforms.texts.chat_spec import Chat
from recordmill.transforms.texts.text_ids_spec import TextIds
from recordmill.transforms.texts.text_spec import Tokenized

ANALYZED = "reports/analyzed"  # the report of the user's own analyzers: the export's name
STORED = ("string", "int64", "float32")
BATCH = 4096  # rows in one call of the analysis graph
EMPTY = {pa.binary(): b"", pa.float32(): 0.0, pa.int64(): 0}


@dataclass(frozen=True)
class LearnedAnalysis:
    """Everything a build learned."""

    rows: dict[str, int] | None  # rows seen by the look, by split; None if nothing was learned
    statistics: dict[str, dict[str, Any]]  # by feature, as in `dataset.json`
    vocabularies: dict[str, list[bytes]]  # words in id order, by the feature after which each is named
    models: dict[str, bytes]  # trained tokenizers, by the feature after which each is named
    drift: dict[str, Drift] = field(default_factory=dict)


def complete(planned: PlannedBuild, models: Mapping[str, bytes] | None = None) -> PlannedBuild:
    """Returns the build with all words and models, trained `models` by owner. Raises: UserError: a file is invalid."""
    texts, learned, trained = planned.texts(), dict(planned.learned), models or {}
    for name, text in texts.items():
        if name in planned.models:
            owner = planned.models[name]
            given: TextIds = texts[owner]
            if given.model is None and owner not in trained:
                continue
            known = with_template(text, partial(_read, planned)) if isinstance(text, Chat) else learned[name]
            data = trained[owner] if given.model is None else _read(planned, given.model)
            model = read_model(data, given, given.model or owner, padding=known.padding)
            found = {each: getattr(model, each) for each in ("special", "separator_id", "types")}
            learned[name] = replace(known, model=model.data, **found)
        elif isinstance(text, Tokenized) and (words := text.given_words()):
            learned[name] = replace(learned[name], words=words)
    return replace(planned, learned=learned)


def _read(planned: PlannedBuild, path: str) -> bytes:
    try:
        with planned.files.open(path) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def make_preprocessing(context: PlannedBuild, found: LearnedAnalysis, folder: str) -> Preprocessing:
    """Makes a build's `preprocessing_fn`; its vocabularies' folder, local or a URL, is named by a hash."""
    words = {vocabulary_name(name): _lines(each) for name, each in found.vocabularies.items()}
    folder = f"{folder.rstrip('/')}/vocabularies-{hashlib.sha256(repr(words).encode()).hexdigest()[:32]}"
    tf.io.gfile.makedirs(folder)
    paths = {name: f"{folder}/{vocabulary_name(name)}" for name in found.vocabularies}
    for file_name, text in words.items():
        with tf.io.gfile.GFile(f"{folder}/{file_name}", "wb") as file:
            file.write(text)
    own = None
    if context.preprocessing:
        read = [(name, part) for name, each in context.features.items() for part in each.read_parts()]
        beside = {part_name(*each): each[0] for each in [*context.encoded(), *read]}
        label, code = context.schema.label, context.user_code
        own = OwnPreprocessing(context.preprocessing, label, code, context.workspace, beside)
    return Preprocessing(context.features, context.learned, paths, found.statistics, own)


def make_graph(context: PlannedBuild, preprocessing: Preprocessing) -> str:
    """Makes and stores tf.Transform's export of a function without analyzers; returns its name."""
    folder = os.path.join(context.scratch, attempt_name("export"))
    analyze_in_place(preprocessing, False, {}, graph.input_specs(context), folder)
    return _keep_export(folder, context, os.path.dirname(context.scratch))


def _keep_export(made: str, planned: PlannedBuild, temp: str) -> str:
    """Stores an export, its tables without `temp`, their folder; returns its name. Raises: PreprocessingError."""
    saved_model = Path(made, "transform_fn")
    path = saved_model / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for each in (meta.graph_def for meta in model.meta_graphs):
        for node in (*each.node, *(node for function in each.library.function for node in function.node_def)):
            if "shared_name" in node.attr:
                node.attr["shared_name"].s = node.attr["shared_name"].s.replace(temp.encode() + b"/", b"")
    data = model.SerializeToString(deterministic=True)
    if planned.preprocessing and (problems := check_model(data).problems):
        raise PreprocessingError(f"{planned.preprocessing}: {problems[0]}: use others, without Python, files or state")
    path.write_bytes(data)
    (saved_model / "fingerprint.pb").unlink(missing_ok=True)  # optional, and outdated
    return graph.pack_graph(planned.workspace, made)


def keep_analyzed(saved_model: str, metadata: object, planned: PlannedBuild, temp: str) -> None:
    """Stores and reports the export of the user's analyzers, in a worker; `WriteTransformFn` would fail on retries."""
    with reports.leaving_error(planned.workspace), tempfile.TemporaryDirectory(prefix="recordmill-") as made:
        for parent, _, names in tf.io.gfile.walk(saved_model):  # copied, local or at a URL of TensorFlow's
            local = os.path.join(made, "transform_fn", parent[len(saved_model) :].strip("/"))
            os.makedirs(local)
            for name in names:
                tf.io.gfile.copy(f"{parent.rstrip('/')}/{name}", os.path.join(local, name))
        metadata_io.write_metadata(metadata, os.path.join(made, "transformed_metadata"))
        reports.write_report(planned.workspace, ANALYZED, {"export": _keep_export(made, planned, temp)})


def frozen_models(planned: PlannedBuild, live: LiveAnalysis) -> dict[str, bytes]:
    """Returns the version's trained tokenizers, by owner. Raises: OutputError: a file contradicts the manifest."""
    return {owner: live.read(model_file(planned, owner)) for owner in dict.fromkeys(planned.trained().values())}


def model_file(planned: PlannedBuild, owner: str) -> str:
    """Returns the path in a version of the tokenizer named after this feature."""
    return f"{FOLDER}/{owner}.{SUFFIXES[planned.texts()[owner].tokenizer]}"


def keep_graph(planned: PlannedBuild, live: LiveAnalysis) -> str:
    """Stores the version's graph; returns the archive's name. Raises: OutputError: damaged. UnsafeGraphError."""
    with tempfile.TemporaryDirectory(dir=planned.scratch) as folder:
        for name in graph.GRAPH_FOLDERS:
            os.mkdir(os.path.join(folder, name))
        for file in live.files:
            if file.split("/")[0] not in graph.GRAPH_FOLDERS:
                continue
            path, data, name = path_within(folder, file), live.read(file), file.rpartition("/")[2]
            problems: Sequence[str] = ()
            if name.startswith("saved_model."):
                problems = check_model(data).problems if name == MODEL_FILE else ("TensorFlow might load it instead",)
            for problem in problems:
                what = f"the live version's graph is not taken over: {file}: {problem}"
                raise UnsafeGraphError(f"{what}; build once without `analysis: frozen`")
            path.write_bytes(data)
        return graph.pack_graph(planned.workspace, folder)


def learned_changes(planned: PlannedBuild, live: LiveAnalysis, found: LearnedAnalysis) -> Iterator[str]:
    """Yields a line for each change of the graph: both values, or numbers of words. Each changes every record."""
    for name, words in found.vocabularies.items():
        file = f"transform_fn/assets/{vocabulary_name(name)}"
        if hashlib.sha256(_lines(words)).hexdigest() != live.files.get(file):
            new, lost, moved = compare_ids(_ids(live.read(file).splitlines()), _ids(words))
            yield f"{name}.vocabulary: {len(new):,} new, {len(lost):,} gone, {len(moved):,} with another id"
    for name, model in found.models.items():
        if hashlib.sha256(model).hexdigest() != live.files.get(model_file(planned, name)):
            yield f"{name}.tokenizer: retrained"
    for name, options in planned.features.items():
        before, now = live.statistics.get(name, {}), found.statistics.get(name, {})
        for key in options.used_statistics:
            if before.get(key) != now.get(key):
                yield f"{name}.{key}: {before.get(key)} → {now.get(key)}"


def _ids(words: Sequence[bytes]) -> dict[str, int]:
    return {word.decode("utf-8", "surrogateescape"): id_ for id_, word in enumerate(words)}


def _lines(words: Sequence[bytes]) -> bytes:
    return b"".join(word + b"\n" for word in words)


class PreprocessingError(UserError):
    """The user's function returned something unstorable; the message is one clear line."""


class OwnPreprocessing:
    """The user's tf.Transform function, which extends or replaces the features' outputs; by name, with its modules.

        def preprocessing_fn(inputs, outputs):
            outputs["log_price"] = tf.math.log1p(inputs["price"])
            return outputs

    `inputs` are the raw columns by feature, `outputs` the built-in function's results; the returned tensors are stored.
    It is pickled by name, and imported on the first call.
    """

    def __init__(
        self, reference: str, label: str | None, code: UserCode | None, errors: Store, beside: Mapping[str, str]
    ) -> None:
        """Takes the workspace for a worker's errors (`context.reports`), and the features of parts made elsewhere."""
        self._reference, self._label, self._code, self._errors, self._beside = reference, label, code, errors, beside

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the tensors to store. Raises: UserCodeError; PreprocessingError: some are invalid or missing."""
        with reports.leaving_error(self._errors):  # tf.Transform calls it in workers that ran none of our steps
            if self._code is not None:
                self._code.install()
            function = load(self._reference)
            try:
                outcome = function(dict(inputs), dict(outputs))
            except UserError:
                raise
            except FAILURES as error:
                raise blame(error, self._reference) from None
            if not isinstance(outcome, dict) or not all(isinstance(name, str) for name in outcome):
                got = type(outcome).__name__
                raise PreprocessingError(f"{self._reference} should return a dict of tensors by name, got {got}")
            if self._label is not None and self._label not in outcome:
                raise PreprocessingError(f"{self._reference} returned no '{self._label}', the label")
            if not outcome:
                raise PreprocessingError(f"{self._reference} returned nothing to store")
            for name, value in outcome.items():
                wrong, of = _why_not_stored(name, value), self._beside.get(name, "")
                is_taken = name in outputs or (of in outcome and type(outcome[of]) is type(outputs[of]))
                if of and is_taken and value is not outputs.get(name):
                    wrong = f"is made before or after the graph, for '{of}': leave it as it came, or take another name"
                if wrong:
                    raise PreprocessingError(f"{self._reference}: '{name}' {wrong}")
            return outcome


def _why_not_stored(name: str, value: Any) -> str | None:
    if name == KEY:
        return "is the name of every record's own key: rename it"
    if not is_name(name):
        return "is not a valid name: a letter, then letters, digits and underscores"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or not isinstance(shape, tf.TensorShape) or hasattr(value, "dense_shape"):
        return f"is a {type(value).__name__}: return a tensor, or a ragged one"
    if dtype.name not in STORED:
        return f"is {dtype.name}: cast it to float32, int64 or string"
    if hasattr(value, "row_splits"):
        if value.uniform_row_length is not None and shape[1] is not None:  # tf.Transform cannot trace it
            return "is ragged, and all its rows have one length: return its `to_tensor()`"
        return None if value.ragged_rank == 1 and shape.rank == 2 else "has lists in lists: one list a row is stored"
    if not shape.rank or not shape[1:].is_fully_defined():
        return f"has the shape {shape}: the first axis is the rows, all others need known sides, or make it ragged"
    return None


def analyzed_columns(context: PlannedBuild, preprocessing: Preprocessing) -> frozenset[str]:
    """Returns the columns that the user's own analyzers read. Raises: PreprocessingError: they read images."""
    own = set(tft.get_analyze_input_columns(preprocessing, graph.input_specs(context)))
    images = own & set(context.images())
    if images:
        raise PreprocessingError(
            f"{context.preprocessing} analyzes the images of {', '.join(sorted(images))}: an analyzer sees numbers, "
            "texts and categories only; `normalize: dataset` learns images' mean and variance"
        )
    return frozenset(own)


def schema(planned: PlannedBuild) -> pa.Schema:
    """Returns the Arrow schema of the analysis' input; tf.Transform wants lists."""
    columns = {name: planned.graph_type(name) for name in planned.inputs()}
    return pa.schema([(name, kind if pa.types.is_list(kind) else pa.list_(kind)) for name, kind in columns.items()])


def tensor_config(planned: PlannedBuild) -> tensor_adapter.TensorAdapterConfig:
    """Configures the columns' tensors: one scalar per row, or ragged lists."""
    form = schema_pb2.TensorRepresentation
    representations = {
        name: form(ragged_tensor={"feature_path": {"step": [name]}, "row_partition_dtype": form.INT64})
        if pa.types.is_list(planned.graph_type(name))
        else form(dense_tensor={"column_name": name, "shape": {}})
        for name in planned.inputs()
    }
    return tensor_adapter.TensorAdapterConfig(schema(planned), representations)


def analysis_batches(planned: PlannedBuild, analyzed: Collection[str], rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields batches of keyed rows of the train split; fills only the `analyzed` columns."""
    looked = {name: planned.features[name] for name in analyzed}
    form, encoder = schema(planned), RowEncoder(looked, planned.learned, planned.schema.named)
    for start in range(0, rows.num_rows, BATCH):
        batch = encoder.good(rows.slice(start, BATCH))
        columns = list[pa.Array]()
        for name in form.names:
            if name in analyzed:
                values = graph_column(batch, name).combine_chunks()
            else:
                kind = planned.graph_type(name)
                values = pa.repeat(pa.scalar([] if pa.types.is_list(kind) else EMPTY[kind], kind), batch.num_rows)
            if not pa.types.is_list(values.type):
                values = pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)
            columns.append(values)
        yield pa.RecordBatch.from_arrays(columns, schema=form)
