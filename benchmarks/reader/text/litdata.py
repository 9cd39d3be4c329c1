"""LitData: its optimized chunks, its own loader, padded by PyTorch."""

from collections.abc import Iterator
from pathlib import Path

import litdata
from settings import Batch, Settings

from text.streaming import padded

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    rows = litdata.StreamingDataset(str(data / "litdata"), shuffle=True, drop_last=True, seed=settings.seed)
    loader = litdata.StreamingDataLoader(
        rows,
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        collate_fn=padded,
        drop_last=True,
    )
    while True:
        yield from loader
