"""The serving model: raw columns to model-ready tensors, the transform graph and `tensorflow.features` composed.

The exported SavedModel needs TensorFlow alone (and tensorflow-text where the spec asks for its operations). Its
signature `serving_default` takes every feature but the label, `with_label` takes all; inputs are named by feature:
string (image bytes, text, names), float32 or int64, shape [rows]. A feature of many values a row takes all rows'
values, one after another, and the number of each row's values as `<feature>_lengths` (int64, [rows]).
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.stored import part_name
from recordmill.transforms.tensorflow.features import Features, model_features
from recordmill.transforms.tensorflow.transform_graph import transform_graph

LENGTHS = "lengths"
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
    if not isinstance(spec, tf.RaggedTensorSpec):
        return {feature: tf.TensorSpec([None], spec.dtype, name=feature)}
    lengths = part_name(feature, LENGTHS)
    return {
        feature: tf.TensorSpec([None], spec.dtype, name=feature),
        lengths: tf.TensorSpec([None], tf.int64, name=lengths),
    }


def _joined(feature: str, spec: Any, raw: Mapping[str, tf.Tensor]) -> Any:
    if not isinstance(spec, tf.RaggedTensorSpec):
        return raw[feature]
    return tf.RaggedTensor.from_row_lengths(raw[feature], raw[part_name(feature, LENGTHS)])
