"""Categories: a name's id by its place in the vocabulary."""

import tensorflow as tf

from transforms.kind import Found, Options, Prepared


def prepare(options: Options, column: tf.Tensor, train: tf.Tensor) -> Prepared:
    """Stores int64 ids: a label's places as they are, any other feature's moved by one, so that 0 is unknown."""
    first = 0 if options["is_label"] else 1
    if options["classes"] is not None:
        tokens = column[:0]  # the names are given: there is nothing to count
    else:
        tokens = column if options["is_label"] else tf.boolean_mask(column, train)

    def store(found: Found) -> tf.Tensor:
        assert found.lookup is not None  # noqa: S101 - the analysis always gives what was asked for
        return found.lookup(column, -1) + first

    return Prepared(store, tokens=tokens)


def stored_spec(description: Options) -> tf.io.FixedLenFeature:
    """One int64 a row."""
    return tf.io.FixedLenFeature([], tf.int64)


def finish(description: Options, stored: tf.Tensor) -> tf.Tensor:
    """The ids as they are: int64, shape [rows]."""
    return stored
