"""Several texts a row, such as an image's captions: each prepared as a text, stored one after another with its length.

A text is stored as `text` stores it. Reading gives all texts of a row, or its first one.
"""

from dataclasses import replace

import tensorflow as tf

from recordmill.transforms.contract.kinds.text import TextsDescription, TextsOptions
from recordmill.transforms.tensorflow import text
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics
from recordmill.transforms.tensorflow.lists import cut


def prepare(options: TextsOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Prepares the first `max_texts` texts of each row, ragged [rows, None]; a missing list is an empty one.

    Stores the ids of a row's texts, one after another, and as the part `lengths` how many each text has.
    """
    kept = cut(options.max_texts, column)
    prepared = text.prepare(options, kept.flat_values, context)

    def store(statistics: Statistics) -> Parts:
        ids = prepared.store(statistics)[""]
        splits = tf.gather(ids.row_splits, kept.row_splits)
        of_rows = tf.RaggedTensor.from_row_splits(ids.flat_values, splits, validate=False)
        return {"": of_rows, "lengths": kept.with_flat_values(ids.row_lengths())}

    return replace(prepared, store=store)


def cut_each(stored: Parts, length: int) -> Parts:
    """Keeps the first `length` ids of each text."""
    lengths = stored["lengths"]
    kept = tf.RaggedTensor.from_row_lengths(stored[""].flat_values, lengths.flat_values)[:, :length]
    splits = tf.gather(kept.row_splits, lengths.row_splits)
    of_rows = tf.RaggedTensor.from_row_splits(kept.flat_values, splits, validate=False)
    return {"": of_rows, "lengths": lengths.with_flat_values(kept.row_lengths())}


def features(description: TextsDescription, stored: Parts) -> Parts:
    """Pads all texts of each row, none of which is longer than `max_length`.

    Returns:
        int64 ids of shape [rows, texts, max_length], both sides as long as the longest where there is no limit; the
        part `lengths`, int64 [rows, texts]: the ids of each text, 0 after a row's last; and where the number of texts
        varies the part `length`, int64 [rows]: the texts of each row.
    """
    lengths = stored["lengths"]
    most = description.max_texts if description.texts_per_row == "varying" else description.texts_per_row
    nested = lengths.with_flat_values(tf.RaggedTensor.from_row_lengths(stored[""].flat_values, lengths.flat_values))
    padded = {
        "": nested.to_tensor(default_value=description.padding_id, shape=[None, most, description.max_length]),
        "lengths": lengths.to_tensor(shape=[None, most]),
    }
    return padded | ({"length": lengths.row_lengths()} if description.texts_per_row == "varying" else {})


def first(description: TextsDescription, stored: Parts) -> Parts:
    """Returns the first text of each row as `text` stores one; the empty text, with its begin and end, of no texts."""
    ids, lengths = stored[""], stored["lengths"]
    ends = ids.row_starts() + tf.reduce_sum(lengths[:, :1], axis=1)
    texts = tf.gather(ids.flat_values, tf.ragged.range(ids.row_starts(), ends))
    added = tf.constant(description.empty_text, tf.int64)
    without = tf.where(lengths.row_lengths() == 0, tf.size(added, tf.int64), 0)
    return {"": tf.concat([texts, tf.gather(added, tf.ragged.range(without))], axis=1)}
