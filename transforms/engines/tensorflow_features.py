"""Stored to model-ready: the only path from a record to a model's input, for training and for serving.

All functions work on a batch, and run eagerly, inside `Dataset.map` and inside a SavedModel.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from recordmill.transforms.base.arrays import ArrayDescription
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.description import Stored as Layout
from recordmill.transforms.base.graph import DTYPES, Context, Kind, Parts, Prepared, Stored, each, padded
from recordmill.transforms.base.stored import KEY, SERVED, FinishOptions, part_name, stored_features
from recordmill.transforms.images import image_graph as image
from recordmill.transforms.images import places_graph as places
from recordmill.transforms.images.image_stored import AnyImages
from recordmill.transforms.texts import text_graph as text
from recordmill.transforms.texts.text_stored import TextDescription, TextsDescription, TokenLabelsDescription
from recordmill.transforms.values import values_graph as values

if TYPE_CHECKING:
    from recordmill.transforms.images.mask_spec import Mask
    from recordmill.transforms.values.values_spec import Array

Features = Mapping[str, Description]


def parse(
    features: Features, serialized: tf.Tensor, *, with_key: bool = False, options: FinishOptions = SERVED
) -> dict[str, tf.Tensor]:
    """Parses a batch of serialized Examples, string of shape [rows], and makes it model-ready (`model_features`).

    Keeps a static number of rows; `with_key` adds the rows' keys as `key`, string [rows]. Raises:
    tf.errors.InvalidArgumentError: a record is not an Example, or lacks a feature.
    """
    stored = tf.io.parse_example(serialized, parse_spec(features, with_key=with_key))
    ready = model_features(features, unpacked(features, stored), options)
    for tensor in ready.values():  # lost by padding and decoding
        if isinstance(tensor, tf.Tensor):
            tensor.set_shape([serialized.shape[0], *tensor.shape[1:]])
    return {**ready, KEY: stored[KEY]} if with_key else ready


def parse_spec(features: Features, *, with_key: bool = False) -> dict[str, Any]:
    """Returns the specs for `tf.io.parse_example` of the features and, on request, the row's key."""
    return {name: part_spec(part) for name, part in stored_features(features, with_key=with_key).items()}


def part_spec(stored: Layout) -> tf.io.FixedLenFeature | tf.io.RaggedFeature:
    """Returns TensorFlow's spec to parse one part."""
    dtype = DTYPES[stored.dtype]
    if stored.shape is None:
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(list(stored.shape), dtype)


def unpacked(features: Features, parsed: Mapping[str, Stored]) -> dict[str, Stored]:
    """Restores the transform graph's output from records: decodes the ids of packed texts."""
    packed = [name for name, each in features.items() if getattr(each, "packed", None) is not None]
    return {**parsed, **{name: text.unpacked(parsed[name]) for name in packed}}


def model_features(
    features: Features, stored: Mapping[str, Stored], options: FinishOptions = SERVED
) -> dict[str, tf.Tensor]:
    """Makes a batch of stored parts, tensors [rows], or ragged [rows, None], model-ready; ignores other tensors.

    Returns tensors [rows, …] by the parts' names, in the features' order, with the dtypes of each kind's `features`;
    zero rows are valid.
    """
    ready: dict[str, tf.Tensor] = {}
    for name, description in features.items():
        parts: Parts = {part: stored[part_name(name, part)] for part in description.parts}
        if isinstance(description, AnyImages):
            dtype = description.dtype if description.is_mask else options.dtype or description.dtype
            requested: Any = replace(description, dtype=dtype if dtype == description.pixel else "float32")
            result = KINDS[description.kind].features(requested, parts)
            result = {**result, "": tf.cast(result[""], dtype)} if dtype == "bfloat16" else result
        elif isinstance(description, TextDescription) and description.packed is None:
            result = _text(description, parts, options)
        elif isinstance(description, TokenLabelsDescription):
            result = _text(description, parts, replace(options, masks=False))
        else:
            result = KINDS[description.kind].features(description, parts)
        ready |= {part_name(name, part): tensor for part, tensor in result.items()}
    return ready


def _text(description: TextDescription | TokenLabelsDescription, parts: Parts, options: FinishOptions) -> Parts:
    length = options.length_of(description.max_length)
    if isinstance(description, TextsDescription) and options.captions == "all":
        parts = parts if length is None else text.cut_each(parts, length)
        if options.text == "ragged":
            return parts
        ready = text.texts_features(replace(description, max_length=length), parts)
        mask = {"mask": tf.sequence_mask(ready["lengths"], tf.shape(ready[""])[2])} if options.masks else {}
        return {**ready, **mask}
    if isinstance(description, TextsDescription):
        parts = text.first_text(description, parts)
    if options.text == "ragged":
        lists = () if length is None else ("", *description.aligned)
        return {**parts, **{part: parts[part][:, :length] for part in lists}}
    ready = text.features(replace(description, max_length=length), parts)
    if not options.masks:
        return ready
    return {**ready, "mask": tf.sequence_mask(parts[""].row_lengths(), tf.shape(ready[""])[1])}


def prepare_mask(options: "Mask", column: tf.Tensor, context: Context) -> Prepared:
    """Stores masks as they come (`pipeline.build.images.masks`); empty bytes for a missing one."""
    missing = {"missing": tf.cast(column == "", tf.int64)} if options.optional else {}
    return Prepared(lambda _: {"": tf.identity(column), **missing})


def prepare_array(options: "Array", column: tf.Tensor, context: Context) -> Prepared:
    """Stores array bytes: at most `max_length` entries of a varying first side; zeros for a missing array."""
    unit, most = options.layout.unit, options.max_length
    if options.layout.is_ragged:
        kept = column if most is None else tf.strings.substr(column, 0, most * unit)
        return Prepared(lambda _: {"": tf.identity(kept)})
    if not options.optional:
        return Prepared(lambda _: {"": tf.identity(column)})
    missing = column == ""
    full = tf.where(missing, tf.constant(bytes(unit)), column)
    return Prepared(lambda _: {"": full, "missing": tf.cast(missing, tf.int64)})


def array_features(description: ArrayDescription, stored: Parts) -> Parts:
    """Returns arrays, shape [rows, *shape]; a varying first side is padded with 0 (`padded`)."""
    layout, data = description.layout, stored[""]
    if not layout.is_ragged:
        numbers = tf.io.decode_raw(data, layout.dtype)
        return {**stored, "": tf.reshape(numbers, [tf.shape(data)[0], *layout.inner])}
    entries = tf.reshape(tf.io.decode_raw(tf.strings.reduce_join(data), layout.dtype), [-1, *layout.inner])
    lengths = tf.cast(tf.strings.length(data), tf.int64) // layout.unit
    return padded(description, tf.RaggedTensor.from_row_lengths(entries, lengths))


KINDS: Mapping[str, Kind] = {
    "image": Kind(image.prepare, image.features),
    "image_sequence": Kind(each(image.prepare), image.sequence_features),
    "mask": Kind(prepare_mask, image.features),
    "masks": Kind(each(prepare_mask), image.sequence_features),
    "boxes": Kind(partial(places.prepare, places.moved_boxes), places.features),
    "keypoints": Kind(partial(places.prepare, places.moved_keypoints), places.features),
    "text": Kind(text.prepare, text.features),
    "texts": Kind(text.prepare_texts, text.texts_features),
    "pair": Kind(text.prepare_pairs, text.features),
    "chat": Kind(text.prepare_chats, text.features),
    "token_labels": Kind(text.prepare_labels, text.features),
    "category": Kind(values.prepare_names),
    "categories": Kind(each(values.prepare_names), values.list_features),
    "number": Kind(values.prepare_numbers),
    "numbers": Kind(each(values.prepare_numbers), lambda description, stored: padded(description, stored[""])),
    "array": Kind(prepare_array, array_features),
    "raw": Kind(values.prepare_raw, lambda each, stored: stored if each.length is None else padded(each, stored[""])),
    "own": Kind(values.prepare_raw, values.own_features),  # the user's function makes what is stored
}
"""The graphs of kinds by name."""
