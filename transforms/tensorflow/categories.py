"""Several names a row: a list of ids, or a 1 for each name that is there.

Ids are those of `tensorflow.category`, except that unknown names have an id of their own, 1, because 0 pads.
"""

import tensorflow as tf

from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoriesOptions
from recordmill.transforms.tensorflow.category import ids, tokens
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics
from recordmill.transforms.tensorflow.lists import cut, of_train, padded


def prepare(options: CategoriesOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores lists of int64 ids in the row's order, with repeated names as often as they come."""
    names = cut(options.max_length, column)
    learned = names.flat_values if options.is_label else of_train(names, context.train)

    def store(statistics: Statistics) -> Parts:
        return {"": names.with_flat_values(ids(options, names.flat_values, statistics))}

    return Prepared(store, tokens=tokens(options, learned))


def features(description: CategoriesDescription, stored: Parts) -> Parts:
    """Gives padded ids and the part `length` (`lists.padded`), or the float32 1s and 0s of `multi_hot`."""
    if description.read == "multi_hot":
        return {"": multi_hot(stored[""], description.vocabulary_size)}
    return padded(description, stored[""], tf.constant(description.padding_id, tf.int64))


def multi_hot(rows: tf.RaggedTensor, size: int) -> tf.Tensor:
    """Gives 1 at each id that a row holds, else 0: float32, shape [rows, size]. Leaves out ids below 0."""
    values = tf.cast(rows.flat_values, tf.int64)
    positions = tf.boolean_mask(tf.stack([rows.value_rowids(), values], axis=1), values >= 0)
    times = tf.scatter_nd(positions, tf.ones_like(positions[:, 0], tf.float32), [rows.nrows(), size])
    return tf.ensure_shape(tf.minimum(times, 1.0), [None, size])
