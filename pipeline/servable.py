"""Joins a version's transform with a trained model in one SavedModel: raw rows in, names of classes and scores out.

The transform is the version's `serving/`, whose digests and operations are checked before it is loaded. The result
needs TensorFlow alone: no Recordmill where it is loaded and served.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import keras
import tensorflow as tf

from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.private_folder import private_temporary_files
from recordmill.pipeline.verify.files import serving_model
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.stored import IMAGES, part_name
from recordmill.transforms.tensorflow.transform_graph import LENGTHS

Tensors: TypeAlias = Mapping[str, tf.Tensor]
Prepare: TypeAlias = Callable[[Tensors], Tensors]
ACTIVATIONS = {"softmax": tf.nn.softmax, "sigmoid": tf.nn.sigmoid}


class Servable(tf.Module):
    """A trained model behind the transform of its dataset; call it with raw rows, or save it to be served."""

    def __init__(
        self,
        model: keras.Model,
        dataset: DatasetVersion,
        *,
        activation: Literal["softmax", "sigmoid"] | None = None,
        top: int | None = None,
        prepare: Prepare = dict,
    ) -> None:
        """Loads the transform and joins it with the model: see `recordmill.keras.servable`."""
        super().__init__(name="servable")
        if keras.backend.backend() != "tensorflow":
            raise UserError(f"a SavedModel is TensorFlow's, and Keras runs on {keras.backend.backend()}")
        self._loaded = tf.saved_model.load(serving_model(str(dataset.folder)))
        self._transform = self._loaded.signatures["serving_default"]
        self._model, self._weights = model, [variable.value for variable in model.variables]
        self._names, self._top, self._prepare = _class_names(dataset), top, prepare
        self._activation = ACTIVATIONS[activation] if activation else tf.identity
        self._specs = self._transform.structured_input_signature[1]
        self._inputs = {name: self._specs[name] for name in self._needed(dataset)}
        serve = tf.function(self._serve, autograph=False)
        with private_temporary_files():
            self.signature = serve.get_concrete_function(**self._inputs)

    def __call__(self, **raw: Any) -> dict[str, tf.Tensor]:
        """Returns the outputs for a batch of raw rows, by input as the signature takes them."""
        return self.signature(**{name: tf.constant(raw[name], spec.dtype) for name, spec in self._inputs.items()})

    def save(self, folder: str | Path) -> None:
        """Writes the SavedModel into a folder, such as `models/emoji/1`, where TensorFlow Serving finds version 1."""
        with private_temporary_files():  # TensorFlow uses AutoGraph here, which writes modules and runs them
            tf.saved_model.save(self, str(folder), signatures={"serving_default": self.signature})

    def _serve(self, **raw: tf.Tensor) -> dict[str, tf.Tensor]:
        features = self._prepare(self._transform(**self._with_blanks(raw)))
        output = self._model(_inputs_of(self._model, features), training=False)
        if isinstance(output, Mapping):
            return dict(output)
        scores = self._activation(tf.cast(output, tf.float32))
        if self._names is None or scores.shape.rank != 2 or scores.shape[1] != len(self._names):
            return {"output": scores}
        best, ids = tf.math.top_k(scores, min(self._top or len(self._names), len(self._names)))
        return {"classes": tf.gather(tf.constant(self._names), ids), "scores": best}

    def _needed(self, dataset: DatasetVersion) -> list[str]:
        """Names the raw inputs that clients send: those of the model's own features where no other can matter."""
        wanted = getattr(self._model, "input", None)
        kinds = {name: feature["kind"] for name, feature in dataset.manifest.features.items()}
        has_others = dataset.manifest.spec.get("preprocessing") or self._prepare is not dict
        if not isinstance(wanted, Mapping) or has_others:
            return list(self._specs)
        if any(name not in self._specs or kinds.get(name) == "boxes" for name in wanted):
            return list(self._specs)
        return [name for name in self._specs if name in wanted or not self._may_be_blank(name, kinds)]

    def _may_be_blank(self, name: str, kinds: Mapping[str, str]) -> bool:
        is_list = part_name(name, LENGTHS) in self._specs or name.removesuffix(f"_{LENGTHS}") != name
        return not is_list and kinds.get(name) not in IMAGES

    def _with_blanks(self, raw: Tensors) -> dict[str, tf.Tensor]:
        """Adds an empty text or 0 for each row where the model does not look at an input."""
        one_each = (name for name in raw if part_name(name, LENGTHS) not in self._specs)  # a list's values are more
        rows = tf.shape(raw[next(one_each)])
        blanks = {
            name: tf.fill(rows, tf.constant("" if spec.dtype == tf.string else 0, spec.dtype))
            for name, spec in self._specs.items()
            if name not in raw
        }
        return {**raw, **blanks}


def _class_names(dataset: DatasetVersion) -> list[str] | None:
    """Returns the names of the label's classes; None where the label has none."""
    if dataset.label is None:
        return None
    label = read_description(dataset.manifest.feature(dataset.label))
    is_named = isinstance(label, CategoryDescription | CategoriesDescription) and label.vocabulary is not None
    return dataset.classes if is_named else None


def _inputs_of(model: keras.Model, features: Tensors) -> Any:
    """Returns what the model takes of the features. Raises: UserError: it takes something else."""
    wanted = getattr(model, "input", None)
    if wanted is None:  # a subclass of keras.Model, which takes what it was trained on
        return dict(features)
    if not isinstance(wanted, Mapping):
        if not hasattr(wanted, "shape") or len(features) != 1 and wanted.name not in features:
            raise UserError(
                "the model takes a list of inputs, or one of another name: make it take a mapping by feature"
            )
        wanted = {(wanted.name if wanted.name in features else next(iter(features))): wanted}
        ((name, _),) = _checked(wanted, features).items()
        return features[name]
    return {name: features[name] for name in _checked(wanted, features)}


def _checked(wanted: Mapping[str, Any], features: Tensors) -> Mapping[str, Any]:
    for name, given in wanted.items():
        if name not in features:
            raise UserError(
                f"the model takes '{name}', the transform gives {', '.join(sorted(features))}: give `prepare`"
            )
        if not features[name].shape.is_compatible_with(given.shape):
            raise UserError(
                f"the model takes '{name}' of shape {tuple(given.shape)}, the transform gives "
                f"{tuple(features[name].shape)}: give `prepare`, which makes the one from the other"
            )
    return wanted
