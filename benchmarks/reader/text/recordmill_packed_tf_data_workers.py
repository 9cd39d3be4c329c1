"""Recordmill: as `recordmill_packed_tf_data`, made by a worker process: TensorFlow has Python's lock for itself."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from settings import Batch, Settings

from text import recordmill_packed_tf_data

WORKERS = 1


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    yield from recordmill_packed_tf_data.batches(data, replace(settings, processes=1))
