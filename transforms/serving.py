"""The serving model: raw columns to model-ready tensors, the transform graph and `transforms.finish` composed.

The exported SavedModel needs TensorFlow alone. Its signature `serving_default` takes every feature but the label,
`with_label` takes all; inputs are named by feature: string (image bytes, text, names), float32 or int64, shape [rows].
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from transforms.finish import finish


class ServingModel(tf.Module):
    """Raw to model-ready for the features given."""

    def __init__(self, export: str, descriptions: Mapping[str, Mapping[str, Any]]) -> None:
        """Loads tf.Transform's export from the folder that holds `transform_fn`."""
        super().__init__()
        self._layer = tft.TFTransformOutput(export).transform_features_layer()
        self._descriptions = descriptions

    def signature(self, inputs: Mapping[str, tf.DType]) -> Callable[..., Any]:
        """A concrete function that takes these inputs by name and gives their features."""
        wanted = {name: self._descriptions[name] for name in self._descriptions if name in inputs}

        def serve(**raw: tf.Tensor) -> dict[str, tf.Tensor]:
            return finish(wanted, self._layer(raw))

        specs = {name: tf.TensorSpec([None], dtype, name=name) for name, dtype in inputs.items()}
        return tf.function(serve, autograph=False).get_concrete_function(**specs)


def export_serving(
    export: str,
    descriptions: Mapping[str, Mapping[str, Any]],
    inputs: Mapping[str, tf.DType],
    label: str | None,
    folder: str,
) -> None:
    """Writes the SavedModel into a folder that is not there yet."""
    model = ServingModel(export, descriptions)
    signatures = {"serving_default": model.signature({name: t for name, t in inputs.items() if name != label})}
    if label is not None:
        signatures["with_label"] = model.signature(inputs)
    tf.saved_model.save(model, folder, signatures=signatures)
