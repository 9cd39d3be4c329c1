"""Categories: a name's id by its index in the vocabulary, or by its hash.

A label's ids are the indices themselves, from 0. In any other feature 0 is a missing or unknown name; then come the
`oov_buckets` that unknown names share, then the vocabulary. With `hash_buckets` there is no vocabulary: ids are 1 to n.
"""

import tensorflow as tf

from recordmill.transforms.contract.kinds.category import CategoryDescription, CategoryOptions, NameOptions
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics


def prepare(options: CategoryOptions, column: tf.Tensor | None, context: Context) -> Prepared:
    """Stores int64 ids; a `cross`, which has no column, joins the names of other features."""
    names = crossed([context.columns[name] for name in options.cross]) if options.cross else column
    learned = names if options.is_label else tf.boolean_mask(names, _learned(options, names, context.train))

    def store(statistics: Statistics) -> Parts:
        return {"": ids(options, names, statistics)}

    return Prepared(store, tokens=tokens(options, learned))


def _learned(options: CategoryOptions, names: tf.Tensor, train: tf.Tensor) -> tf.Tensor:
    return train & (names != "") if options.optional else train


def tokens(options: NameOptions, names: tf.Tensor) -> tf.Tensor | None:
    """Gives the names to count for the vocabulary; None where there is no vocabulary."""
    if options.hash_buckets is not None:
        return None
    return names if options.classes is None else names[:0]  # given names are not counted


def ids(options: NameOptions, names: tf.Tensor, statistics: Statistics) -> tf.Tensor:
    """Gives the int64 ids of names of any shape."""
    if options.hash_buckets is not None:
        return _hashed(names, options.hash_buckets)
    assert statistics.lookup is not None  # noqa: S101 - the analysis gives every vocabulary
    indices = statistics.lookup(names, -1)
    if options.is_label:
        return indices
    if not options.oov_buckets:
        return indices + 1
    return tf.where(indices < 0, _hashed(names, options.oov_buckets), indices + 1 + options.oov_buckets)


def _hashed(names: tf.Tensor, buckets: int) -> tf.Tensor:
    """Gives ids 1 to n by FarmHash's Fingerprint64, which never changes; 0 for a missing name."""
    return tf.where(names == "", tf.constant(0, tf.int64), tf.strings.to_hash_bucket_fast(names, buckets) + 1)


def crossed(columns: list[tf.Tensor]) -> tf.Tensor:
    """Joins the names of several columns, each of shape [rows]; empty where one of them is missing."""
    missing = tf.reduce_any([column == "" for column in columns], axis=0)
    return tf.where(missing, "", tf.strings.join(columns, separator="\n"))  # no name holds a line break


def features(description: CategoryDescription, stored: Parts) -> Parts:
    """Gives the ids as they are: int64, shape [rows]."""
    return stored
