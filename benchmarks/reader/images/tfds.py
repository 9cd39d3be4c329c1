"""TensorFlow Datasets, with its decoding skipped and fused with the crop, as its documentation advises for speed."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
import tensorflow_datasets as tfds
from settings import Batch, Settings

from images.tf_crop import random_crop

WORKERS = 2
SHUFFLE = 4096


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""

    def decode(row: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        return random_crop(row["image"], settings.dtype), row["label"]

    tf.random.set_seed(settings.seed)
    rows = tfds.load(
        "image",
        data_dir=str(data / "tfds"),
        split="train",
        shuffle_files=True,
        decoders={"image": tfds.decode.SkipDecoding()},
    )
    rows = rows.repeat().shuffle(SHUFFLE).map(decode, settings.workers or tf.data.AUTOTUNE)
    yield from tfds.as_numpy(rows.batch(settings.batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE))
