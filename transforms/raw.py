"""Raw values: stored and read as they are."""

import tensorflow as tf

from transforms.kind import Options, Prepared

TYPES = {"bytes": tf.string, "int64": tf.int64, "float32": tf.float32}


def prepare(options: Options, column: tf.Tensor, train: tf.Tensor) -> Prepared:
    """Stores the column."""
    return Prepared(lambda _: tf.identity(column))


def stored_spec(description: Options) -> tf.io.FixedLenFeature:
    """One value a row, of the stored type."""
    return tf.io.FixedLenFeature([], TYPES[description["stored"]])


def finish(description: Options, stored: tf.Tensor) -> tf.Tensor:
    """The values as they are, shape [rows]."""
    return stored
