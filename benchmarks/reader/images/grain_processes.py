"""Grain with worker processes, in its fastest form: one call reads and makes a whole batch from ArrayRecord files.

Grain's own `batch` reads one record after another, at some 90 µs each; numbers are shuffled instead, and read together.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from absl import flags
from settings import SIDE, Batch, Settings

from images.numpy_crop import normalized, random_crop

WORKERS = 2
BUFFER = 8
"""Batches that wait: Grain's own default of 500 would be 2.4 GB."""
LABEL_BYTES = 8


def array_records(data: Path) -> Any:
    """Opens the task's ArrayRecord files."""
    return grain.sources.ArrayRecordDataSource(sorted(map(str, (data / "array_record").glob("*.array_record"))))


def number_batches(count: int, settings: Settings) -> Any:
    """Returns Grain's dataset of batches of shuffled record numbers, without end."""
    numbers = grain.MapDataset.range(count).seed(settings.seed).shuffle().repeat()
    return numbers.batch(settings.batch_size, drop_remainder=True)


def picture_batches(data: Path, settings: Settings) -> Any:
    """Returns Grain's dataset of batches, which any thread may index."""
    source = array_records(data)

    def decode(numbers: Any, random: np.random.Generator) -> tuple[Any, Any]:
        records = source.__getitems__(numbers.tolist())
        pixels = np.empty((len(records), SIDE, SIDE, 3), np.uint8)
        for row, record in zip(pixels, records, strict=True):
            row[:] = random_crop(record[LABEL_BYTES:], random)
        labels = np.array([np.frombuffer(record, np.int64, 1)[0] for record in records])
        return (pixels if settings.dtype == "uint8" else normalized(pixels)), labels

    return number_batches(len(source), settings).random_map(decode)


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end; workers hand them over in shared memory."""
    flags.FLAGS.mark_as_parsed()  # what `app.run` does in Grain's own examples
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=BUFFER)
    options = grain.MultiprocessingOptions(num_workers=settings.workers, per_worker_buffer_size=BUFFER)
    yield from picture_batches(data, settings).to_iter_dataset(reading).mp_prefetch(options)
