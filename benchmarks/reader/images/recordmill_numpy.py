"""Recordmill: NumPy batches, without TensorFlow."""

from collections.abc import Iterator
from pathlib import Path

from recordmill_input import pictures, training_input
from settings import SIDE, Batch, Settings

from recordmill.augment import RandomFlip, RandomResizedCrop

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    augment = [RandomResizedCrop(SIDE), RandomFlip()]
    train = training_input(data / "recordmill", settings, augment=augment, dtype=settings.dtype)
    yield from pictures(train.as_numpy())
