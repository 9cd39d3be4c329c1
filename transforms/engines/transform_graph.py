"""The transform graph, raw to stored: made from the spec, loaded from tf.Transform's export, and served.

`Preprocessing` makes the graph without analyzers: a look at the rows has already learned all statistics
(`pipeline.build.summaries`). `TransformGraph` loads tf.Transform's export of it, in half the time of
`tft.TFTransformOutput(export).transform_features_layer()`.

`export_serving` composes it with `tensorflow_features`: raw columns to model-ready tensors. The SavedModel needs only
TensorFlow (and tensorflow-text if the spec uses its operations). Its signature `serving_default` takes every feature
but the label, `with_label` takes all; inputs are named by feature: string (image bytes, text, names), float32 or int64,
shape [rows]. A list feature takes the concatenated values of all rows, and the number of each row's values as
`<feature>_lengths` (int64, [rows]).
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from recordmill.transforms.base.description import NOTHING, Learned, argument_name
from recordmill.transforms.base.graph import Context, Prepared, Statistics, Stored
from recordmill.transforms.base.stored import LAST, LENGTHS, UNENCODED, part_name
from recordmill.transforms.engines.tensorflow_features import KINDS, Features, model_features

if TYPE_CHECKING:
    from recordmill.transforms.base.feature import Feature


@dataclass(frozen=True)
class Preprocessing:
    """The function for tf.Transform."""

    features: Mapping[str, "Feature"]  # options by feature (`Spec.resolved_features`)
    learned: Mapping[str, Learned] = field(default_factory=dict)  # words, classes and models, by feature
    vocabularies: Mapping[str, str] = field(default_factory=dict)
    """Paths of vocabularies, one word a line, by owning feature."""
    statistics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Statistics by feature, as in `dataset.json`; only those of numbers are used."""
    own: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Stored]] | None = None
    """The user's function: maps raw columns and stored tensors to the tensors to store instead."""

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, Stored]:
        """Returns the stored tensors by part name."""
        prepared: dict[str, Prepared] = {}
        columns = {name: inputs[name] for name in self.features if name in inputs}
        context = Context(columns, prepared, self.features)
        for name in sorted(self.features, key=lambda name: not self.features[name].is_image):
            own = replace(context, learned=self.learned.get(name, NOTHING))
            prepared[name] = KINDS[self.features[name].kind].prepare(self.features[name], inputs.get(name), own)
        made = ((name, prepared[name].store(self._given(name))) for name in self.features)
        stored = {part_name(name, part): tensor for name, parts in made for part, tensor in parts.items()}
        if self.own is None:
            return stored
        workers = (UNENCODED, LAST)
        return self.own(columns, {name: tensor for name, tensor in stored.items() if not name.endswith(workers)})

    def _given(self, name: str) -> Statistics:
        owner = self.features[name].owner(name)
        if owner in self.vocabularies:
            path, of = self.vocabularies[owner], f"{name}_vocabulary"  # a tensor would be read at every call
            return Statistics(lambda words, unknown: tft.apply_vocabulary(words, path, default_value=unknown, name=of))
        learned = self.statistics.get(name, {})
        found = {key: learned[key] for key in self.features[name].used_statistics if key in learned}
        given: dict[str, Any] = {key: found[key] for key in ("mean", "minimum", "median", "boundaries") if key in found}
        if "variance" in found:
            given["scale"] = 1 / math.sqrt(found["variance"]) if found["variance"] > 0 else 1.0
        if "maximum" in found:
            extent = found["maximum"] - found["minimum"]
            given["range_scale"] = 1 / extent if extent > 0 else 1.0
        return Statistics(**{key: tf.constant(value, tf.float64) for key, value in given.items()})


class TransformGraph(tf.Module):
    """The loaded graph; it can be part of a SavedModel."""

    def __init__(self, export: str) -> None:
        """Loads tf.Transform's export from the folder with `transform_fn`."""
        super().__init__()
        self._loader = SavedModelLoader(os.path.join(export, tft.TFTransformOutput.TRANSFORM_FN_DIR))
        self._tables = vars(self._loader)  # a SavedModel saves only resources in attributes

    def __call__(self, raw: Mapping[str, Stored]) -> dict[str, Stored]:
        """Returns the stored tensors that depend only on these columns."""
        stored: dict[str, Stored] = self._loader.apply_transform_model(raw)
        return stored


_LOADING = Lock()  # `lru_cache` lets concurrent threads each load a graph


def transform_graph(export: str) -> TransformGraph:
    """Loads the graph once a process, for building shards and the serving model."""
    with _LOADING:
        return _loaded(export)


@lru_cache(maxsize=1)
def _loaded(export: str) -> TransformGraph:
    return TransformGraph(export)


Inputs = Mapping[str, tf.TypeSpec]
"""Graph inputs by feature: `tf.TensorSpec`s of shape [rows], or `tf.RaggedTensorSpec`s."""


def export_serving(export: str, descriptions: Features, inputs: Inputs, label: str | None, folder: str) -> None:
    """Writes the SavedModel into a new folder."""
    model, graph = tf.Module(), transform_graph(export)
    model._graph = graph  # a SavedModel saves only resources in attributes
    served = {name: each for name, each in descriptions.items() if each.is_served}
    inputs = {name: spec for name, spec in inputs.items() if name in served or name not in descriptions}
    others, wanted = ({name: each[name] for name in each if name != label} for each in (inputs, served))
    signatures = {"serving_default": _signature(graph, others, wanted)}
    if label is not None:
        signatures["with_label"] = _signature(graph, inputs, served)
    tf.saved_model.save(model, folder, signatures=signatures)


def _signature(graph: TransformGraph, inputs: Inputs, wanted: Features) -> Callable[..., Any]:
    """Makes a function from inputs, by name, to features; omits those that need others, such as the label."""

    def serve(**raw: tf.Tensor) -> dict[str, tf.Tensor]:
        stored = graph({name: _joined(name, spec, raw) for name, spec in inputs.items()})
        return model_features({name: each for name, each in wanted.items() if name in stored}, stored)

    specs = dict[str, tf.TensorSpec]()
    for feature, given in inputs.items():  # signatures take no ragged tensors
        argument = argument_name(feature)
        specs[argument] = tf.TensorSpec([None], given.dtype, name=argument)
        if isinstance(given, tf.RaggedTensorSpec):
            lengths = part_name(argument, LENGTHS)
            specs[lengths] = tf.TensorSpec([None], tf.int64, name=lengths)
    return tf.function(serve, autograph=False).get_concrete_function(**specs)


def _joined(feature: str, spec: Any, raw: Mapping[str, tf.Tensor]) -> Any:
    argument = argument_name(feature)
    if not isinstance(spec, tf.RaggedTensorSpec):
        return raw[argument]
    return tf.RaggedTensor.from_row_lengths(raw[argument], raw[part_name(argument, LENGTHS)])
