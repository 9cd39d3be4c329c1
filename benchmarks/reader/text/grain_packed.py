"""Grain that packs several documents into a row while it reads, by its first-fit packing."""

from collections.abc import Iterator
from pathlib import Path

import grain
from settings import ROW_TOKENS, Batch, Settings

from text.grain import BUFFER, documents

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    rows = documents(data, settings).map(lambda row: {"text": row["text"]})
    options = grain.ReadOptions(num_threads=settings.workers, prefetch_buffer_size=BUFFER * settings.batch_size)
    packed = grain.experimental.FirstFitPackIterDataset(
        rows.to_iter_dataset(options), length_struct={"text": ROW_TOKENS}, num_packing_bins=settings.batch_size
    )
    for row in packed.batch(settings.batch_size, drop_remainder=True):
        yield row["text"], row["text_segment_ids"], None
