"""`tf.data` that reads, shuffles and batches encoded records, and hands each batch to simplejpeg and OpenCV."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from settings import SIDE, Batch, Settings

from images.numpy_crop import normalized, random_crop
from images.tf_data import FEATURES, SHUFFLE

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""

    def crops(step: np.int64, jpegs: Any) -> Any:
        random = np.random.default_rng([settings.seed, step])
        pixels = np.empty((len(jpegs), SIDE, SIDE, 3), np.uint8)
        for row, jpeg in zip(pixels, jpegs, strict=True):
            row[:] = random_crop(jpeg, random)
        return pixels if settings.dtype == "uint8" else normalized(pixels)

    def decode(step: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = tf.io.parse_example(records, FEATURES)
        pixels = tf.numpy_function(crops, [step, rows["image"]], tf.as_dtype(settings.dtype))
        return tf.ensure_shape(pixels, (settings.batch_size, SIDE, SIDE, 3)), rows["label"]

    shards = tf.data.Dataset.list_files(str(data / "tfrecord" / "*.tfrecord"), shuffle=True, seed=settings.seed)
    records = shards.repeat().interleave(tf.data.TFRecordDataset, cycle_length=4)
    records = records.shuffle(SHUFFLE, seed=settings.seed).batch(settings.batch_size, drop_remainder=True).enumerate()
    decoded = records.map(decode, settings.workers or tf.data.AUTOTUNE, deterministic=False)
    yield from decoded.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
