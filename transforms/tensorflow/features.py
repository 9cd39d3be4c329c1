"""Stored to model-ready: the only way from a record to a model's input, for training and for serving.

All functions work on a batch, and run eagerly, inside `Dataset.map` and inside a SavedModel.

>>> features = read_descriptions(manifest.features)  # doctest: +SKIP
>>> batches.map(lambda serialized: parse(features, serialized))  # doctest: +SKIP
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.finish_options import SERVED, FinishOptions
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.base import Stored as Layout
from recordmill.transforms.contract.kinds.image import ImageDescription, ImageSequenceDescription
from recordmill.transforms.contract.kinds.text import TextDescription, TextsDescription
from recordmill.transforms.contract.stored import KEY, part_name, stored_features
from recordmill.transforms.tensorflow import text, texts
from recordmill.transforms.tensorflow.kind import DTYPES, Parts, Stored
from recordmill.transforms.tensorflow.kinds import KINDS

Features = Mapping[str, Description]


def parse_spec(features: Features, *, with_key: bool = False) -> dict[str, Any]:
    """Returns the specs with which `tf.io.parse_example` reads the features, and the row's key on request."""
    stored = stored_features(features, with_key=with_key)
    return {name: part_spec(part) for name, part in stored.items()}


def part_spec(stored: Layout) -> tf.io.FixedLenFeature | tf.io.RaggedFeature:
    """Returns TensorFlow's spec to parse one part."""
    kind = DTYPES[stored.dtype]
    if stored.shape is None:
        return tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(list(stored.shape), kind)


def model_features(
    features: Features,
    stored: Mapping[str, Stored],
    options: FinishOptions = SERVED,
) -> dict[str, tf.Tensor]:
    """Makes a batch of stored features model-ready: decoded, normalized, padded.

    Args:
        features: the features' descriptions; their order is the result's.
        stored: for each of their parts a tensor of shape [rows], or ragged [rows, None]; anything else is left out.
        options: of images and texts; by default the serving model's.

    Returns:
        Tensors of shape [rows, …] and the dtypes that the kinds' own `features` state, by the parts' names. No rows
        give tensors of no rows.
    """
    ready: dict[str, tf.Tensor] = {}
    for name, description in features.items():
        parts: Parts = {part: stored[part_name(name, part)] for part in description.parts()}
        if isinstance(description, ImageDescription | ImageSequenceDescription):
            result = _images(description, parts, options)
        elif isinstance(description, TextDescription) and description.packed is None:
            result = _text(description, parts, options)
        else:
            result = KINDS[description.kind].features(description, parts)
        ready |= {part_name(name, part): tensor for part, tensor in result.items()}
    return ready


def _images(description: ImageDescription | ImageSequenceDescription, parts: Parts, options: FinishOptions) -> Parts:
    dtype = options.dtype or description.dtype
    requested: Any = replace(description, dtype="uint8" if dtype == "uint8" else "float32")
    ready = KINDS[description.kind].features(requested, parts)
    return {**ready, "": tf.cast(ready[""], dtype)} if dtype == "bfloat16" else ready


def _text(description: TextDescription, parts: Parts, options: FinishOptions) -> Parts:
    length = options.length_of(description.max_length)
    if isinstance(description, TextsDescription):
        if options.captions == "all":
            return _all_texts(description, parts if length is None else texts.cut_each(parts, length), options)
        parts = texts.first(description, parts)
    if options.text == "ragged":
        return parts if length is None else {**parts, "": parts[""][:, :length]}
    padded = text.features(replace(description, max_length=length), parts)
    if not options.masks:
        return padded
    return {**padded, "mask": tf.sequence_mask(parts[""].row_lengths(), tf.shape(padded[""])[1])}


def _all_texts(description: TextsDescription, parts: Parts, options: FinishOptions) -> Parts:
    if options.text == "ragged":
        return parts
    padded = texts.features(replace(description, max_length=options.length_of(description.max_length)), parts)
    if not options.masks:
        return padded
    return {**padded, "mask": tf.sequence_mask(padded["lengths"], tf.shape(padded[""])[2])}


def unpacked(features: Features, parsed: Mapping[str, Stored]) -> dict[str, Stored]:
    """Restores the transform graph's output from records: the bytes of packed texts become ids."""
    packed = [name for name, each in features.items() if isinstance(each, TextDescription) and each.packed is not None]
    return {**parsed, **{name: text.unpacked(parsed[name]) for name in packed}}


def parse(
    features: Features,
    serialized: tf.Tensor,
    *,
    with_key: bool = False,
    options: FinishOptions = SERVED,
) -> dict[str, tf.Tensor]:
    """Reads a batch of serialized Examples, string of shape [rows], in one parse and makes it model-ready.

    Returns:
        The tensors of `model_features`, with the static number of rows where `serialized` has one; with the key:
        `key` too, the rows' keys as string of shape [rows].

    Raises:
        tf.errors.InvalidArgumentError: a record is no Example, or lacks a feature.
    """
    stored = tf.io.parse_example(serialized, parse_spec(features, with_key=with_key))
    ready = model_features(features, unpacked(features, stored), options)
    for tensor in ready.values():  # padding and decoding lose the static number of rows
        if isinstance(tensor, tf.Tensor):
            tensor.set_shape([serialized.shape[0], *tensor.shape[1:]])
    return {**ready, KEY: stored[KEY]} if with_key else ready
