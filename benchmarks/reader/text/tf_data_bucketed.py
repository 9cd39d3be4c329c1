"""`tf.data` for batches of similar lengths: windows of records are sorted by size, then parsed by the batch."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import Batch, Settings

from text.tf_data_padded import parsed, shuffled

WORKERS = 2
WINDOW = 64  # batches


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    size = settings.batch_size

    def by_size(records: tf.Tensor) -> tf.data.Dataset:
        ordered = tf.gather(records, tf.argsort(tf.strings.length(records)))
        windows = tf.data.Dataset.from_tensor_slices(tf.reshape(ordered, [WINDOW, size]))
        return windows.shuffle(WINDOW)

    rows = shuffled(data, settings).batch(WINDOW * size, drop_remainder=True).flat_map(by_size)
    yield from parsed(rows, settings)
