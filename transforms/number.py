"""Numbers: z-scores, computed in float64 and stored as float32, so that they are the same bits in any batch."""

import tensorflow as tf

from transforms.kind import Found, Options, Prepared


def prepare(options: Options, column: tf.Tensor, train: tf.Tensor) -> Prepared:
    """Stores float32: (x - mean) / standard deviation, or the number itself."""
    if options["normalize"] == "none":
        return Prepared(lambda _: tf.identity(column))

    def store(found: Found) -> tf.Tensor:
        return tf.cast((tf.cast(column, tf.float64) - found.mean) * found.scale, tf.float32)

    return Prepared(store, values=tf.boolean_mask(column, train))


def stored_spec(description: Options) -> tf.io.FixedLenFeature:
    """One float32 a row."""
    return tf.io.FixedLenFeature([], tf.float32)


def finish(description: Options, stored: tf.Tensor) -> tf.Tensor:
    """The values as they are: float32, shape [rows]."""
    return stored
