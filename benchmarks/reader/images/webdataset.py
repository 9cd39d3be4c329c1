"""WebDataset: tar files, shuffled in a buffer, decoded by Pillow, torchvision's crop, batched in its workers."""

from collections.abc import Iterator
from pathlib import Path

import torch
import webdataset as wds
from settings import Batch, Settings

from images.torch_crop import random_crop

WORKERS = 2
SHUFFLE = 1000


def identity(label: int) -> int:
    """Leaves a label as it is."""
    return label


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    torch.manual_seed(settings.seed)
    shards = sorted(map(str, (data / "webdataset").glob("*.tar")))
    rows = wds.WebDataset(shards, resampled=True, shardshuffle=False, seed=settings.seed).shuffle(SHUFFLE)
    rows = rows.decode("pil").to_tuple("jpg", "cls").map_tuple(random_crop(settings.dtype), identity)
    loader = wds.WebLoader(
        rows.batched(settings.batch_size, partial=False), batch_size=None, num_workers=settings.workers
    )
    yield from loader
