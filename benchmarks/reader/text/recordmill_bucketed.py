"""Recordmill: batches of documents of like length."""

from collections.abc import Iterator
from pathlib import Path

from recordmill_input import training_input
from settings import Batch, Settings

WORKERS = 1


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end; what is no token is 0."""
    train = training_input(data / "recordmill", settings, text="bucketed")
    for features, labels in train.as_numpy():
        yield features["text"], features["text"], labels
