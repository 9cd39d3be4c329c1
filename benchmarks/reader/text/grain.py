"""Grain with threads: ArrayRecord, a global shuffle, batches padded by NumPy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from settings import Batch, Settings

from text.padding import padded_rows

WORKERS = 2
BUFFER = 64
"""Batches that wait."""


def parse(record: bytes) -> dict[str, Any]:
    """Takes a record apart: a label, then the ids."""
    numbers = np.frombuffer(record, np.int64)
    return {"text": numbers[1:], "label": numbers[0]}


def documents(data: Path, settings: Settings) -> Any:
    """Gives Grain's dataset of rows, shuffled and without end."""
    source = grain.sources.ArrayRecordDataSource(sorted(map(str, (data / "array_record").glob("*.array_record"))))
    return grain.MapDataset.source(source).seed(settings.seed).shuffle().repeat().map(parse)


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    rows = documents(data, settings).batch(settings.batch_size, drop_remainder=True, batch_fn=padded_rows)
    options = grain.ReadOptions(num_threads=settings.workers, prefetch_buffer_size=BUFFER)
    yield from rows.to_iter_dataset(options)
