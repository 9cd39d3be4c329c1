"""Grain that packs several documents into a row while it reads, by its first-fit packing, as its documents show."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from images.grain import array_records
from settings import ROW_TOKENS, Batch, Settings

WORKERS = 2
BUFFER = 2048
"""Documents that wait."""


def parse(record: bytes) -> dict[str, Any]:
    """Takes the ids out of a record; the label stands before them."""
    return {"text": np.frombuffer(record, np.int64)[1:]}


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    rows = grain.MapDataset.source(array_records(data)).seed(settings.seed).shuffle().repeat().map(parse)
    options = grain.ReadOptions(num_threads=settings.workers, prefetch_buffer_size=BUFFER)
    packed = grain.experimental.FirstFitPackIterDataset(
        rows.to_iter_dataset(options), length_struct={"text": ROW_TOKENS}, num_packing_bins=settings.batch_size
    )
    for row in packed.batch(settings.batch_size, drop_remainder=True):
        yield row["text"], row["text_segment_ids"], None
