"""Grain with threads in its fastest form: whole batches are read from ArrayRecord files, and padded by NumPy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from images.grain import array_records, number_batches
from numpy.typing import NDArray
from settings import Batch, Settings

WORKERS = 2
BUFFER = 64
"""Batches that wait."""


def padded(rows: list[NDArray[np.int64]]) -> Batch:
    """Makes a batch of rows: a label, then the ids."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows)) - 1
    ids = np.zeros((len(rows), lengths.max()), np.int64)
    for padded_row, row in zip(ids, rows, strict=True):
        padded_row[: len(row) - 1] = row[1:]
    return ids, lengths, np.array([row[0] for row in rows])


def document_batches(data: Path, settings: Settings) -> Any:
    """Gives Grain's dataset of batches, which any thread may index."""
    source = array_records(data)

    def read(numbers: Any) -> Batch:
        return padded([np.frombuffer(record, np.int64) for record in source.__getitems__(numbers.tolist())])

    return number_batches(len(source), settings).map(read)


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    options = grain.ReadOptions(num_threads=settings.workers, prefetch_buffer_size=BUFFER)
    yield from document_batches(data, settings).to_iter_dataset(options)
