"""Recordmill: as `recordmill_numpy`, made by two worker processes, which share no lock."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from settings import Batch, Settings

from images import recordmill_numpy

WORKERS = 1


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    yield from recordmill_numpy.batches(data, replace(settings, processes=2))
