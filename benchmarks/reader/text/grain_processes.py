"""Grain with worker processes, which hand batches over in shared memory; otherwise as `grain`."""

from collections.abc import Iterator
from pathlib import Path

import grain
from absl import flags
from settings import Batch, Settings

from text.grain import BUFFER, document_batches

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    flags.FLAGS.mark_as_parsed()  # what `app.run` does in Grain's own examples
    rows = document_batches(data, settings).to_iter_dataset(
        grain.ReadOptions(num_threads=1, prefetch_buffer_size=BUFFER)
    )
    options = grain.MultiprocessingOptions(num_workers=settings.workers, per_worker_buffer_size=BUFFER)
    yield from rows.mp_prefetch(options)
