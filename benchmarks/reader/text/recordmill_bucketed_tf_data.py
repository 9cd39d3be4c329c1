"""Recordmill: batches of documents of like length, the NumPy engine feeding `tf.data`."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf  # noqa: F401
from recordmill_input import training_input
from settings import Batch, Settings

WORKERS = 1


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end; what is no token is 0."""
    train = training_input(data / "recordmill", settings, text="bucketed")
    for features, labels in train.as_tf_data().as_numpy_iterator():
        yield features["text"], features["text"], labels
