"""TensorFlow Datasets, shuffled and padded as its documentation shows."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
import tensorflow_datasets as tfds
from settings import Batch, Settings

WORKERS = 0
SHUFFLE = 10_000


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end; what is no token is 0. It chooses its own threads."""
    tf.random.set_seed(settings.seed)
    rows = tfds.load("text", data_dir=str(data / "tfds"), split="train", shuffle_files=True)
    rows = rows.repeat().shuffle(SHUFFLE).padded_batch(settings.batch_size, drop_remainder=True)
    for row in tfds.as_numpy(rows.prefetch(tf.data.AUTOTUNE)):
        yield row["text"], row["text"], row["label"]
