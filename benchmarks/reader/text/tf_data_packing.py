"""`tf.data` that packs while it reads: a batch's documents are joined and cut into rows, as for language models."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import ROW_TOKENS, Batch, Settings

from text.tf_data_padded import FEATURES, shuffled

WORKERS = 2


def parse(records: tf.Tensor) -> Batch:
    """Parses and packs the records of a batch."""
    texts = tf.io.parse_example(records, {"text": FEATURES["text"]})["text"]
    size = tf.size(texts.flat_values)
    missing = -size % ROW_TOKENS

    def cut(values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.pad(values, [[0, missing]]), [-1, ROW_TOKENS])

    numbers = tf.cast(texts.value_rowids(), tf.int32)
    positions = tf.range(size) - tf.gather(tf.cast(texts.row_starts(), tf.int32), numbers)
    segments = cut(numbers + 1)
    segments = tf.maximum(segments - segments[:, :1] + 1, 0)
    return cut(texts.flat_values), segments, cut(positions)


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    rows = shuffled(data, settings).batch(settings.batch_size, drop_remainder=True)
    rows = rows.map(parse, settings.workers, deterministic=False)
    yield from rows.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
