"""Categories: ids of names by vocabulary index or by hash; one name a row, or several.

A label's ids are the indices, from 0. Otherwise 0 is a missing or unknown name, then come the `oov_buckets` shared by
unknown names, then the vocabulary. `hash_buckets` replaces the vocabulary by ids 1 to n. In lists unknown names have
the id 1, because 0 pads.
"""

from typing import TYPE_CHECKING

import tensorflow as tf

from recordmill.transforms.contract.kinds.values import CategoriesDescription
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics, padded

if TYPE_CHECKING:
    from recordmill.pipeline.spec.features.category import Category, NamedClasses


def prepare(options: "Category", column: tf.Tensor | None, context: Context) -> Prepared:
    """Stores int64 ids; a `cross`, without a column, joins the names of other features."""
    names = crossed([context.columns[name] for name in options.cross or ()]) if column is None else column

    def store(statistics: Statistics) -> Parts:
        return {"": ids(options, names, statistics, is_label=context.learned.is_label)}

    def known() -> tf.Tensor:
        return tf.boolean_mask(names, names != "") if options.optional else names

    return Prepared(store, tokens=known if options.learns else None)


def ids(options: "NamedClasses", names: tf.Tensor, statistics: Statistics, *, is_label: bool = False) -> tf.Tensor:
    """Returns the int64 ids of names of any shape."""
    if options.hash_buckets is not None:
        return _hashed(names, options.hash_buckets)
    assert statistics.lookup is not None  # noqa: S101 - the analysis gives every vocabulary
    indices = statistics.lookup(names, -1)
    if is_label:
        return indices
    if not options.oov_buckets:
        return indices + 1
    return tf.where(indices < 0, _hashed(names, options.oov_buckets), indices + 1 + options.oov_buckets)


def _hashed(names: tf.Tensor, buckets: int) -> tf.Tensor:
    """Returns ids 1 to n by FarmHash's stable Fingerprint64; 0 for a missing name."""
    return tf.where(names == "", tf.constant(0, tf.int64), tf.strings.to_hash_bucket_fast(names, buckets) + 1)


def crossed(columns: list[tf.Tensor]) -> tf.Tensor:
    """Joins the names of several columns, each of shape [rows]; empty if one is missing."""
    missing = tf.reduce_any([column == "" for column in columns], axis=0)
    return tf.where(missing, "", tf.strings.join(columns, separator="\n"))  # names contain no line breaks


def list_features(description: CategoriesDescription, stored: Parts) -> Parts:
    """Returns padded ids and the part `length` (`kind.padded`), or float32 1s and 0s for `multi_hot`."""
    if description.read == "multi_hot":
        return {"": multi_hot(stored[""], description.vocabulary_size)}
    return padded(description, stored[""], tf.constant(description.padding_id, tf.int64))


def multi_hot(rows: tf.RaggedTensor, size: int) -> tf.Tensor:
    """Returns 1 at each id of a row, else 0: float32 [rows, size]. Skips negative ids."""
    values = tf.cast(rows.flat_values, tf.int64)
    positions = tf.boolean_mask(tf.stack([rows.value_rowids(), values], axis=1), values >= 0)
    times = tf.scatter_nd(positions, tf.ones_like(positions[:, 0], tf.float32), [rows.nrows(), size])
    return tf.ensure_shape(tf.minimum(times, 1.0), [None, size])
