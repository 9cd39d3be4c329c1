"""Stored to model-ready: the one way from a record to what a model is fed, for training and for serving.

All functions take the features' descriptions as `dataset.json` holds them, work on a batch, and run eagerly, inside
`Dataset.map` and inside a SavedModel.

>>> batches.map(lambda serialized: parse(manifest.features, serialized))  # doctest: +SKIP
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from recordmill.transforms.contract import stored as layout
from recordmill.transforms.contract.finish_options import SERVED, FinishOptions
from recordmill.transforms.contract.stored import KEY, part_name, stored_features, stored_parts
from recordmill.transforms.tensorflow import image, image_sequence, text
from recordmill.transforms.tensorflow.kind import Options, Parts, Stored
from recordmill.transforms.tensorflow.kinds import KINDS

Features = Mapping[str, Options]
IMAGES = {"image": image.finish, "image_sequence": image_sequence.finish}
TYPES = {"bytes": tf.string, "int64": tf.int64, "float32": tf.float32}


def parse_spec(features: Features, *, with_key: bool = False) -> dict[str, Any]:
    """Gives what `tf.io.parse_example` needs to read the features, and the row's key where it is asked for."""
    return {name: part_spec(stored) for name, stored in stored_features(features, with_key=with_key).items()}


def part_spec(stored: layout.Stored) -> tf.io.FixedLenFeature | tf.io.RaggedFeature:
    """How TensorFlow parses one part."""
    kind = TYPES[stored.dtype]
    if stored.shape is None:
        return tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(list(stored.shape), kind)


def finish(
    features: Features,
    stored: Mapping[str, Stored],
    options: FinishOptions = SERVED,
) -> dict[str, tf.Tensor]:
    """Makes a batch of stored features model-ready: decoded, normalized, padded.

    Args:
        features: the features' descriptions; their order is the result's.
        stored: for each of their parts a tensor of shape [rows], or ragged [rows, None]; anything else is left out.
        options: of pictures and texts; by default what the serving model gives.

    Returns:
        Tensors of shape [rows, …] and the dtypes that the kinds' own `finish` state, by the parts' names. No rows give
        tensors of no rows.
    """
    ready: dict[str, tf.Tensor] = {}
    for name, description in features.items():
        parts: Parts = {part: stored[part_name(name, part)] for part in stored_parts(description)}
        if description["kind"] in IMAGES:
            finished = _pictures(description, parts, options)
        elif description["kind"] == "text" and "packed" not in description:
            finished = _text(description, parts, options)
        else:
            finished = KINDS[description["kind"]].finish(description, parts)
        ready |= {part_name(name, part): tensor for part, tensor in finished.items()}
    return ready


def _pictures(description: Options, parts: Parts, options: FinishOptions) -> Parts:
    dtype = options.dtype or description["dtype"]
    asked = {**description, "dtype": "uint8" if dtype == "uint8" else "float32"}
    finished = IMAGES[description["kind"]](asked, parts)
    return {**finished, "": tf.cast(finished[""], dtype)} if dtype == "bfloat16" else finished


def _text(description: Options, parts: Parts, options: FinishOptions) -> Parts:
    if options.text == "ragged":
        length = options.length_of(description)
        return parts if length is None else {**parts, "": parts[""][:, :length]}
    padded = text.finish({**description, "max_length": options.length_of(description)}, parts)
    if not options.masks:
        return padded
    return {**padded, "mask": tf.sequence_mask(parts[""].row_lengths(), tf.shape(padded[""])[1])}


def unpacked(features: Features, parsed: Mapping[str, Stored]) -> dict[str, Stored]:
    """Makes of what records hold what the transform graph gave: the bytes of packed texts become ids."""
    packed = [name for name, description in features.items() if "packed" in description]
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
        What `finish` gives, with the static number of rows where `serialized` has one; with the key: `key` too, the
        rows' keys as string of shape [rows].

    Raises:
        tf.errors.InvalidArgumentError: a record is no Example, or lacks a feature.
    """
    stored = tf.io.parse_example(serialized, parse_spec(features, with_key=with_key))
    ready = finish(features, unpacked(features, stored), options)
    for tensor in ready.values():  # padding and decoding lose what is known of the number of rows
        if isinstance(tensor, tf.Tensor):
            tensor.set_shape([serialized.shape[0], *tensor.shape[1:]])
    return {**ready, KEY: stored[KEY]} if with_key else ready
