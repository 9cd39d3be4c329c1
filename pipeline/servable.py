"""Joins a version's transform with a trained model in one SavedModel: raw rows in, names of classes and scores out.

The transform is the version's `serving/`; its digests and operations are checked before loading. To load and serve the
result takes TensorFlow, but no Recordmill.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import keras
import tensorflow as tf

from recordmill.dataset import Dataset
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.private_folder import private_temporary_files
from recordmill.pipeline.reader.batches import SplitSource
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.keras_input import inputs_of, served_features
from recordmill.pipeline.reader.options import evaluation_options
from recordmill.pipeline.reader.request import Request, make_request
from recordmill.pipeline.verify.files import serving_model
from recordmill.transforms.base.description import argument_name
from recordmill.transforms.base.kinds import read_description
from recordmill.transforms.base.stored import LENGTHS, ArraySpec, part_name
from recordmill.transforms.images.image_stored import Pixels

Tensors: TypeAlias = Mapping[str, tf.Tensor]
ACTIVATIONS = {"softmax": tf.nn.softmax, "sigmoid": tf.nn.sigmoid}
PREPARE = "give `prepare`, which makes the one from the other"


class Servable(tf.Module):
    """A trained model behind its dataset's transform; call it with raw rows, or save it for serving."""

    def __init__(
        self,
        model: keras.Model,
        dataset: Dataset | Input,
        *,
        activation: Literal["softmax", "sigmoid"] | None = None,
        top: int | None = None,
        prepare: Callable[[Tensors], Any] | None = None,
    ) -> None:
        """Loads the transform and joins it with the model: see `recordmill.keras.servable`."""
        super().__init__(name="servable")
        if keras.backend.backend() != "tensorflow":
            raise UserError(f"a SavedModel is TensorFlow's, and Keras runs on {keras.backend.backend()}")
        version, self._request = _read(dataset)
        self._model, self._top, self._prepare = model, top, prepare
        self._activation = ACTIVATIONS[activation] if activation else tf.identity
        label = self._request.features.get(self._request.label or "")
        is_named = label and label.ids and label.ids.are_classes and label.ids.file
        self._names = version.class_names(str(self._request.label)) if is_named else None
        self._loaded = tf.saved_model.load(serving_model(str(version.folder)))
        is_label_read = version.label in self._request.features and version.label != self._request.label
        self._transform = self._loaded.signatures["with_label" if is_label_read else "serving_default"]
        outputs = self._transform.structured_outputs  # without outputs that need the label
        given = served_features(self._request)
        served = {name: given[name] for name in given if {name, name.removesuffix("_mask")} & {*outputs}}
        self._take = dict if prepare else inputs_of(model, served, "a served row", PREPARE)
        self._specs = self._transform.structured_input_signature[1]
        self._lists = {name for name in self._specs if part_name(name, LENGTHS) in self._specs}
        features = {argument_name(name): each for name, each in version.features.items()}
        self._blanks = {name: _blank(features.get(name), spec.dtype) for name, spec in self._specs.items()}
        taken = keras.tree.flatten(self._take({name: name for name in served}))
        self._inputs = {name: self._specs[name] for name in self._needed(version, taken)}
        serve = tf.function(self._serve, autograph=False)
        with private_temporary_files():
            self.signature = serve.get_concrete_function(**self._inputs)
        self._weights = [variable.value for variable in model.variables]

    def __call__(self, **raw: Any) -> dict[str, tf.Tensor]:
        """Returns the outputs for a batch of raw rows, given by input of the signature."""
        return self.signature(**{name: tf.constant(raw[name], spec.dtype) for name, spec in self._inputs.items()})

    def save(self, folder: str | Path) -> None:
        """Writes the SavedModel into a folder, such as `models/emoji/1`: version 1 for TensorFlow Serving."""
        with private_temporary_files():  # TensorFlow's AutoGraph writes and runs modules here
            tf.saved_model.save(self, str(folder), signatures={"serving_default": self.signature})

    def _serve(self, **raw: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.shape(next(raw[name] for name in raw if name not in self._lists))
        blanks = {  # for inputs that the model ignores: for each row a blank, or an empty list
            name: tf.fill(rows * (name not in self._lists), tf.constant(self._blanks[name], spec.dtype))
            for name, spec in self._specs.items()
            if name not in raw
        }
        features = _as_read(self._transform(**raw, **blanks), self._request)
        output = self._model(self._taken(features), training=False)
        if isinstance(output, list | tuple):
            names = getattr(self._model, "output_names", [f"output_{number}" for number in range(len(output))])
            output = dict(zip(names, output, strict=True))
        if isinstance(output, Mapping):
            return dict(output)
        scores = self._activation(tf.cast(output, tf.float32))
        if self._names is None or scores.shape.rank != 2 or scores.shape[1] != len(self._names):
            return {"output": scores}
        best, ids = tf.math.top_k(scores, min(self._top or len(self._names), len(self._names)))
        return {"classes": tf.gather(tf.constant(self._names), ids), "scores": best}

    def _taken(self, features: Tensors) -> Any:
        if self._prepare is None:
            return self._take(features)
        prepared = self._prepare(features)
        if not isinstance(prepared, Mapping):
            return prepared
        specs = {name: ArraySpec(tuple(each.shape), each.dtype.name) for name, each in prepared.items()}
        return inputs_of(self._model, specs, "`prepare`", "let it return what the model takes")(prepared)

    def _needed(self, version: DatasetVersion, taken: list[str]) -> list[str]:
        """Names the raw inputs that clients send: those of the features taken, unless others may matter."""
        owners = {
            owner
            for owner in version.features
            for name in taken
            if name == owner or (name not in version.features and name.startswith(f"{owner}_"))
        }
        made = {argument_name(owner): read_description(version.features[owner]).lies_on for owner in owners}
        is_made_of_others = any(name not in self._specs or of for name, of in made.items())
        if version.manifest.spec.get("preprocessing") or self._prepare or is_made_of_others:
            return list(self._specs)
        return [name for name in self._specs if {name, name.removesuffix(f"_{LENGTHS}")} & made.keys()]


def _blank(described: Mapping[str, Any] | None, dtype: tf.DType) -> bytes | int:
    """Returns a value valid for a feature's graph: a black pixel, empty bytes, or 0."""
    feature = read_description(described) if described else None
    if feature and (image := feature.as_image):
        shape = [image.planes, 1, 1] if image.planes else [1, 1, 3]
        return bytes(tf.io.encode_png(tf.zeros(shape, tf.uint8 if image.pixel == "uint8" else tf.uint16)).numpy())
    if dtype != tf.string:
        return 0
    return feature.blank if feature else b""


def _read(dataset: Dataset | Input) -> tuple[DatasetVersion, Request]:
    """Returns a version and how to read it. Raises: UserError: the input mixes versions."""
    if not isinstance(dataset, Input):
        given = evaluation_options(next(iter(dataset.splits)), {"batch_size": 1})
        return dataset, make_request(str(dataset.folder), dataset.manifest, given)
    if dataset.folder is None or not isinstance(dataset.source, SplitSource):
        raise UserError("a mixture has no single transform: give `servable` the dataset of the rows to serve")
    return DatasetVersion(dataset.folder, read_manifest(dataset.folder)), dataset.source.request


def _as_read(features: Tensors, request: Request) -> dict[str, tf.Tensor]:
    """Applies the input's options: the dtype of images, the length and the masks of texts."""
    ready, given = dict(features), request.given
    for name, each in request.features.items():
        if name not in ready:
            continue
        text = each.as_text
        if each.as_image and given.dtype is not None:
            may_lack = None in each.as_image.shape or each.is_list or "missing" in each.parts
            ready[name] = _pixels(each.as_image, ready[name], tf.as_dtype(given.dtype), may_lack=may_lack)
        elif text and text.packed is None:
            length = given.length_of(text.max_length)
            for part in () if length is None else ("", *text.aligned):
                lists = ready[part_name(name, part)]
                missing = tf.maximum(0, length - tf.shape(lists)[-1])
                sides = [[0, 0]] * (lists.shape.rank - 1) + [[0, missing]]
                padded = tf.pad(lists[..., :length], sides, constant_values=0 if part else text.padding_id)
                ready[part_name(name, part)] = tf.ensure_shape(padded, [*lists.shape[:-1], length])
            if length is not None and (lengths := part_name(name, LENGTHS)) in ready:  # of texts
                ready[lengths] = tf.minimum(ready[lengths], length)
            if given.masks:
                ready[part_name(name, "mask")] = ready[name] != text.padding_id
    return ready


def _pixels(feature: Pixels, pixels: tf.Tensor, dtype: tf.DType, *, may_lack: bool) -> tf.Tensor:
    """Casts pixels; as uint8 or uint16 they equal the stored ones. Raises: UserError: padding would differ."""
    stored = tf.as_dtype(feature.pixel)
    if stored == tf.float32 or (dtype == stored) == (pixels.dtype == stored):
        return tf.cast(pixels, dtype)
    if may_lack:
        raise UserError(f"padded or missing images cannot be served as {dtype.name}: train without dtype=")
    offset, scale = (tf.constant(each, tf.float32) for each in (feature.offset, feature.scale))
    if dtype == stored:
        return tf.cast(tf.round(pixels / scale + offset), dtype)
    return tf.cast((tf.cast(pixels, tf.float32) - offset) * scale, dtype)
