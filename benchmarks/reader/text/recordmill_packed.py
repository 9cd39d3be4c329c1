"""Recordmill: several documents a row, packed when the dataset was built; segments and positions are given too."""

from collections.abc import Iterator
from pathlib import Path

from recordmill_input import training_input
from settings import Batch, Settings

WORKERS = 1


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    for features in training_input(data / "recordmill_packed", settings).as_numpy():
        yield features["text"], features["text_segments"], None
