"""Grain with threads: ArrayRecord, a global shuffle."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from settings import SIDE, Batch, Settings

WORKERS = 2
BUFFER = 8
LABEL_BYTES = 8


def parse(record: bytes) -> tuple[Any, Any]:
    """Takes a record apart: a label, then the pixels."""
    pixels = np.frombuffer(record, np.uint8, offset=LABEL_BYTES).reshape(SIDE, SIDE, 3)
    return pixels, np.frombuffer(record, np.int64, 1)[0]


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    source = grain.sources.ArrayRecordDataSource(sorted(map(str, (data / "array_record").glob("*.array_record"))))
    rows = grain.MapDataset.source(source).seed(settings.seed).shuffle().repeat().map(parse)
    options = grain.ReadOptions(num_threads=settings.workers, prefetch_buffer_size=BUFFER)
    yield from rows.batch(settings.batch_size, drop_remainder=True).to_iter_dataset(options)
