"""Hugging Face datasets: Arrow files, a buffer's shuffle of an iterable dataset, padded by PyTorch."""

from collections.abc import Iterator
from pathlib import Path

import datasets
from settings import Batch, Settings
from torch.utils.data import DataLoader

from text.streaming import padded

WORKERS = 2
SHUFFLE = 10_000
SHARDS = 8


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    rows = datasets.load_from_disk(str(data / "hugging_face")).with_format("torch")
    rows = rows.to_iterable_dataset(num_shards=SHARDS).shuffle(seed=settings.seed, buffer_size=SHUFFLE)
    loader = DataLoader(
        rows,
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        collate_fn=padded,
        drop_last=True,
    )
    while True:
        yield from loader
