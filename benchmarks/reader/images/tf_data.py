"""The best pipeline of `tf.data` and TensorFlow's operations alone: encoded records are shuffled, one fused map."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import Batch, Settings

from images.tf_crop import random_crop

WORKERS = 2
SHUFFLE = 4096
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""

    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        row = tf.io.parse_single_example(record, FEATURES)
        return random_crop(row["image"], settings.dtype), row["label"]

    tf.random.set_seed(settings.seed)
    shards = tf.data.Dataset.list_files(str(data / "tfrecord" / "*.tfrecord"), shuffle=True)
    records = shards.repeat().interleave(tf.data.TFRecordDataset, cycle_length=4)
    rows = records.shuffle(SHUFFLE).map(decode, settings.workers or tf.data.AUTOTUNE, deterministic=False)
    yield from rows.batch(settings.batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
