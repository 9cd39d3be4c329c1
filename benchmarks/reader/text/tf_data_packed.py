"""`tf.data` over packed rows stored as records: parsed together; segments and positions are made in the graph."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import ROW_TOKENS, Batch, Settings

from text.tf_data_padded import shuffled

WORKERS = 2
FEATURES = {
    "text": tf.io.FixedLenFeature([], tf.string),
    "text_lengths": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
}


def parse(records: tf.Tensor) -> Batch:
    """Parses the records of a batch."""
    rows = tf.io.parse_example(records, FEATURES)
    ids = tf.io.decode_raw(rows["text"], tf.int32, fixed_length=4 * ROW_TOKENS)
    return tf.cast(ids, tf.int64), *of_texts(rows["text_lengths"])


def of_texts(lengths: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Numbers the texts of each row, and the ids of each text."""
    sizes, of_row = lengths.flat_values, tf.reduce_sum(lengths, axis=1)
    numbers = 1 + tf.ragged.range(lengths.row_lengths()).flat_values
    starts = tf.repeat(tf.cumsum(sizes, exclusive=True), sizes)
    segments, positions = (
        tf.RaggedTensor.from_row_lengths(tf.cast(values, tf.int32), of_row, validate=False)
        for values in (tf.repeat(numbers, sizes), tf.range(tf.size(starts, tf.int64)) - starts)
    )
    return segments.to_tensor(shape=[None, ROW_TOKENS]), positions.to_tensor(shape=[None, ROW_TOKENS])


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    rows = shuffled(data, settings, "packed/*.tfrecord")
    rows = rows.batch(settings.batch_size, drop_remainder=True)
    rows = rows.map(parse, settings.workers, deterministic=False)
    yield from rows.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
