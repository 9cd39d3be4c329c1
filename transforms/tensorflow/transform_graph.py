"""The transform graph, raw to stored: made of the spec, loaded from tf.Transform's export, and served.

`Preprocessing` makes the graph, without an analyzer: all that is learned of the data is given, since a look at the rows
found it before (`pipeline.build.summaries`). `TransformGraph` is tf.Transform's export of it, loaded.
`tft.TFTransformOutput(export).transform_features_layer()` gives the same graph inside a Keras layer. Saving that layer
in a SavedModel takes twice as long as saving the graph.

`export_serving` composes it with `tensorflow.features`: raw columns to model-ready tensors. The exported SavedModel
needs TensorFlow alone (and tensorflow-text where the spec asks for its operations). Its signature `serving_default`
takes every feature but the label, `with_label` takes all; inputs are named by feature: string (image bytes, text,
names), float32 or int64, shape [rows]. A feature of many values a row takes all rows' values, one after another, and
the number of each row's values as `<feature>_lengths` (int64, [rows]).
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from threading import Lock
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from recordmill.transforms.contract.kinds.base import FeatureOptions, argument_name
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.contract.kinds.number import NumberOptions
from recordmill.transforms.contract.kinds.text import vocabulary_owner
from recordmill.transforms.contract.stored import LENGTHS, UNENCODED, part_name
from recordmill.transforms.tensorflow.features import KINDS, Features, model_features
from recordmill.transforms.tensorflow.kind import Context, Prepared, Statistics, Stored
from recordmill.transforms.tensorflow.number import used_statistics


@dataclass(frozen=True)
class Preprocessing:
    """The function that tf.Transform calls."""

    features: Mapping[str, FeatureOptions]
    """The spec's options by feature (`Spec.options()`), complete with words, classes and models."""
    vocabularies: Mapping[str, str] = field(default_factory=dict)
    """The path of each vocabulary's file, a word a line, by the feature that it is named after."""
    statistics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The statistics by feature, as `dataset.json` holds them; those of numbers count."""
    own: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Stored]] | None = None
    """The user's function: takes the raw columns and the stored tensors, gives the tensors to store instead."""

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, Stored]:
        """Returns the stored tensors by the parts' names."""
        prepared: dict[str, Prepared] = {}
        columns = {name: inputs[name] for name in self.features if name in inputs}
        context = Context(columns, prepared, self.features)
        for name in sorted(self.features, key=lambda name: not isinstance(self.features[name], ImageOptions)):
            options = self.features[name]
            prepared[name] = KINDS[options.kind].prepare(options, inputs.get(name), context)
        stored = {
            part_name(name, part): tensor
            for name in self.features
            for part, tensor in prepared[name].store(self._given(name)).items()
        }
        if self.own is None:
            return stored
        return self.own(columns, {name: tensor for name, tensor in stored.items() if not name.endswith(UNENCODED)})

    def _given(self, name: str) -> Statistics:
        owner = vocabulary_owner(name, self.features[name])
        if owner in self.vocabularies:
            return Statistics(lookup=partial(_lookup, self.vocabularies[owner], f"{name}_vocabulary"))
        options, learned = self.features[name], self.statistics.get(name, {})
        used = used_statistics(options) if isinstance(options, NumberOptions) else ()
        return number_statistics({key: learned[key] for key in used if key in learned})


def _lookup(path: str, name: str, words: tf.Tensor, unknown: int) -> tf.Tensor:
    return tft.apply_vocabulary(words, path, default_value=unknown, name=name)  # a tensor would be read at each call


def number_statistics(found: Mapping[str, Any]) -> Statistics:
    """Returns the statistics of a number as constants of the graph.

    Args:
        found: those that the graph uses of `mean` and `variance`, `minimum` and `maximum`, `median`, and `boundaries`.
    """
    given = {name: found[name] for name in ("mean", "minimum", "median", "boundaries") if name in found}
    if "variance" in found:
        given["scale"] = 1 / math.sqrt(found["variance"]) if found["variance"] > 0 else 1.0
    if "maximum" in found:
        extent = found["maximum"] - found["minimum"]
        given["range_scale"] = 1 / extent if extent > 0 else 1.0
    return Statistics(**{name: tf.constant(value, tf.float64) for name, value in given.items()})


class TransformGraph(tf.Module):
    """The graph, loaded; it may be part of a SavedModel."""

    def __init__(self, export: str) -> None:
        """Loads tf.Transform's export from the folder that holds `transform_fn`."""
        super().__init__()
        self._loader = SavedModelLoader(os.path.join(export, tft.TFTransformOutput.TRANSFORM_FN_DIR))
        self._tables = vars(self._loader)  # a SavedModel holds only resources that it finds in attributes

    def __call__(self, raw: Mapping[str, Stored]) -> dict[str, Stored]:
        """Returns the stored tensors that follow from these columns; those that need another column are left out."""
        stored: dict[str, Stored] = self._loader.apply_transform_model(raw)
        return stored


_LOADING = Lock()  # held while a graph is loaded: `lru_cache` lets threads that ask at once each load one


def transform_graph(export: str) -> TransformGraph:
    """Loads the graph once in a process that builds shards and then saves the serving model."""
    with _LOADING:
        return _loaded(export)


@lru_cache(maxsize=1)
def _loaded(export: str) -> TransformGraph:
    return TransformGraph(export)


Inputs = Mapping[str, tf.TypeSpec]
"""The transform graph's inputs by feature: `tf.TensorSpec`s of shape [rows], or `tf.RaggedTensorSpec`s."""


class ServingModel(tf.Module):
    """Raw to model-ready for the features given."""

    def __init__(self, export: str) -> None:
        """Loads tf.Transform's export from the folder that holds `transform_fn`."""
        super().__init__()
        self._graph = transform_graph(export)

    def signature(self, inputs: Inputs, wanted: Features) -> Callable[..., Any]:
        """Makes a concrete function that takes these inputs by name and gives these features.

        A feature that needs another input, such as a weight that the user's function computes from the label, is left
        out.
        """

        def serve(**raw: tf.Tensor) -> dict[str, tf.Tensor]:
            stored = self._graph({name: _joined(name, spec, raw) for name, spec in inputs.items()})
            return model_features({name: each for name, each in wanted.items() if name in stored}, stored)

        specs = {name: spec for feature, given in inputs.items() for name, spec in _flat(feature, given).items()}
        return tf.function(serve, autograph=False).get_concrete_function(**specs)


def export_serving(export: str, descriptions: Features, inputs: Inputs, label: str | None, folder: str) -> None:
    """Writes the SavedModel into a folder that is not there yet."""
    model = ServingModel(export)
    others = {name: spec for name, spec in inputs.items() if name != label}
    wanted = {name: description for name, description in descriptions.items() if name != label}
    signatures = {"serving_default": model.signature(others, wanted)}
    if label is not None:
        signatures["with_label"] = model.signature(inputs, descriptions)
    tf.saved_model.save(model, folder, signatures=signatures)


def _flat(feature: str, spec: Any) -> dict[str, tf.TensorSpec]:
    """Returns a feature's inputs: a signature takes no ragged tensors."""
    argument = argument_name(feature)
    lengths = part_name(argument, LENGTHS)
    if not isinstance(spec, tf.RaggedTensorSpec):
        return {argument: tf.TensorSpec([None], spec.dtype, name=argument)}
    return {
        argument: tf.TensorSpec([None], spec.dtype, name=argument),
        lengths: tf.TensorSpec([None], tf.int64, name=lengths),
    }


def _joined(feature: str, spec: Any, raw: Mapping[str, tf.Tensor]) -> Any:
    argument = argument_name(feature)
    if not isinstance(spec, tf.RaggedTensorSpec):
        return raw[argument]
    return tf.RaggedTensor.from_row_lengths(raw[argument], raw[part_name(argument, LENGTHS)])
