"""LitData: its optimized chunks, its `Image` type (torchvision's decoder), torchvision's crop, its own loader."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
import torch
from settings import Batch, Settings

from images.torch_crop import random_crop

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    crop = random_crop(settings.dtype)

    def decode(row: dict[str, Any]) -> tuple[Any, int]:
        return crop(row["image"]), row["label"]

    torch.manual_seed(settings.seed)
    rows = litdata.StreamingDataset(
        str(data / "litdata"), shuffle=True, drop_last=True, seed=settings.seed, transform=decode
    )
    loader = litdata.StreamingDataLoader(
        rows,
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        drop_last=True,
    )
    while True:
        yield from loader
