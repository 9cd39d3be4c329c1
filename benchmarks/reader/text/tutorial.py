"""`tf.data` as TensorFlow's tutorials write it: one record after another is parsed, then padded in a batch."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import Batch, Settings

WORKERS = 2
SHUFFLE = 10_000
FEATURES = {"text": tf.io.VarLenFeature(tf.int64), "label": tf.io.FixedLenFeature([], tf.int64)}


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses one record."""
    row = tf.io.parse_single_example(record, FEATURES)
    return tf.sparse.to_dense(row["text"]), row["label"]


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end; what is no token is 0."""
    shards = sorted(map(str, (data / "tfrecord").glob("*.tfrecord")))
    rows = tf.data.TFRecordDataset(shards).repeat().shuffle(SHUFFLE, seed=settings.seed)
    rows = rows.map(parse, settings.workers or tf.data.AUTOTUNE)
    rows = rows.padded_batch(settings.batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    for ids, labels in rows.as_numpy_iterator():
        yield ids, ids, labels
