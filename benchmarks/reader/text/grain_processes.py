"""Grain with worker processes; otherwise as `grain`."""

from collections.abc import Iterator
from pathlib import Path

import grain
from absl import flags
from settings import Batch, Settings

from text.grain import BUFFER, documents
from text.padding import padded_rows

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    flags.FLAGS.mark_as_parsed()  # what `app.run` does in Grain's own examples
    rows = documents(data, settings).batch(settings.batch_size, drop_remainder=True, batch_fn=padded_rows)
    options = grain.MultiprocessingOptions(num_workers=settings.workers, per_worker_buffer_size=BUFFER)
    read = grain.ReadOptions(num_threads=1, prefetch_buffer_size=BUFFER)
    yield from rows.to_iter_dataset(read).mp_prefetch(options)
