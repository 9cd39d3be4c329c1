"""Recordmill: as `recordmill_bucketed`, made by two worker processes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from settings import Batch, Settings

from text import recordmill_bucketed

WORKERS = 1


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    yield from recordmill_bucketed.batches(data, replace(settings, processes=2))
