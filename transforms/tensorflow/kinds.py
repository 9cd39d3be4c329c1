"""The graphs of the kinds of features: a line each, and the functions of the kinds that need no module of their own."""

from collections.abc import Mapping

import tensorflow as tf

from recordmill.transforms.contract.kinds.array import ArrayDescription, ArrayOptions
from recordmill.transforms.tensorflow import boxes, category, image, lists, number, raw, text, texts
from recordmill.transforms.tensorflow.kind import Context, Kind, Parts, Prepared


def prepare_array(options: ArrayOptions, column: tf.Tensor, context: Context) -> Prepared:
    """Stores the arrays' bytes: the first `max_length` entries of a varying first side; zeros for a missing array."""
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
    """Returns arrays of the dtype, shape [rows, *shape]; of a varying first side padded with 0 (`lists.padded`)."""
    layout, data = description.layout, stored[""]
    if not layout.is_ragged:
        numbers = tf.io.decode_raw(data, layout.dtype)
        return {**stored, "": tf.reshape(numbers, [tf.shape(data)[0], *layout.inner])}
    entries = tf.reshape(tf.io.decode_raw(tf.strings.reduce_join(data), layout.dtype), [-1, *layout.inner])
    lengths = tf.cast(tf.strings.length(data), tf.int64) // layout.unit
    return lists.padded(description, tf.RaggedTensor.from_row_lengths(entries, lengths))


KINDS: Mapping[str, Kind] = {
    "image": Kind(image.prepare, image.features),
    "image_sequence": Kind(lists.each(image.prepare), image.sequence_features),
    "boxes": Kind(boxes.prepare, boxes.features),
    "text": Kind(text.prepare, text.features),
    "texts": Kind(texts.prepare, texts.features),
    "category": Kind(category.prepare),
    "categories": Kind(lists.each(category.prepare), category.list_features),
    "number": Kind(number.prepare),
    "numbers": Kind(lists.each(number.prepare), lists.features),
    "array": Kind(prepare_array, array_features),
    "raw": Kind(raw.prepare, raw.features),
    "own": Kind(raw.prepare_own, raw.own_features),
}
