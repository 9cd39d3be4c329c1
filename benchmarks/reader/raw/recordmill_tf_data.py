"""Recordmill: the NumPy engine feeding `tf.data`."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf  # noqa: F401
from recordmill_input import pictures, training_input
from settings import Batch, Settings

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    train = training_input(data / "recordmill", settings, dtype=settings.dtype)
    yield from pictures(train.as_tf_data().as_numpy_iterator())
