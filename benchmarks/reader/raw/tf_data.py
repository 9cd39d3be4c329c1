"""`tf.data`: records are shuffled and batched, then parsed and decoded together."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import SIDE, Batch, Settings

WORKERS = 2
SHUFFLE = 1024
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def parse(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses and decodes the records of a batch."""
    rows = tf.io.parse_example(records, FEATURES)
    return tf.reshape(tf.io.decode_raw(rows["image"], tf.uint8), (-1, SIDE, SIDE, 3)), rows["label"]


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    shards = tf.data.Dataset.list_files(str(data / "tfrecord" / "*.tfrecord"), shuffle=True, seed=settings.seed)
    records = shards.repeat().interleave(tf.data.TFRecordDataset, cycle_length=4)
    rows = records.shuffle(SHUFFLE, seed=settings.seed).batch(settings.batch_size, drop_remainder=True)
    rows = rows.map(parse, settings.workers or tf.data.AUTOTUNE, deterministic=False)
    yield from rows.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
