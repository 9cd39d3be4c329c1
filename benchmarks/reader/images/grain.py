"""Grain with threads: ArrayRecord, a global shuffle, whole batches made in read threads by simplejpeg and OpenCV."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from settings import Batch, Settings

from images.numpy_crop import normalized, random_crop

WORKERS = 2
BUFFER = 8
"""Batches that wait: Grain's own default of 500 would be 2.4 GB."""
LABEL_BYTES = 8


def dataset(data: Path, settings: Settings) -> Any:
    """Gives Grain's dataset of batches, which any thread may index."""

    def decode(record: bytes, random: np.random.Generator) -> tuple[Any, Any]:
        pixels = random_crop(record[LABEL_BYTES:], random)
        label = np.frombuffer(record, np.int64, 1)[0]
        return (pixels if settings.dtype == "uint8" else normalized(pixels)), label

    source = grain.sources.ArrayRecordDataSource(sorted(map(str, (data / "array_record").glob("*.array_record"))))
    rows = grain.MapDataset.source(source).seed(settings.seed).shuffle().repeat().random_map(decode)
    return rows.batch(settings.batch_size, drop_remainder=True)


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    options = grain.ReadOptions(num_threads=settings.workers, prefetch_buffer_size=BUFFER)
    yield from dataset(data, settings).to_iter_dataset(options)
