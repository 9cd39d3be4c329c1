"""MosaicML Streaming: MDS shards, its `jpeg` column (Pillow), torchvision's crop, PyTorch's loader."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streaming
from settings import Batch, Settings
from torch.utils.data import DataLoader

from images.torch_crop import random_crop

WORKERS = 2


class Photos(streaming.StreamingDataset):  # type: ignore[misc]
    """Photos and labels, cropped, as the quick start derives a dataset."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        place = {"local": str(folder)}
        if settings.remote:
            place = {"remote": f"{settings.remote}/{folder.name}", "local": f"{settings.cache}/{folder.name}"}
        super().__init__(**place, shuffle=True, shuffle_seed=settings.seed, batch_size=settings.batch_size)
        for stream in self.streams:  # workers that were forked would read answers from one connection
            stream._downloader.clean_up()
        self.crop = random_crop(settings.dtype)

    def __getitem__(self, index: int) -> Any:
        """Gives one photo and its label."""
        row = super().__getitem__(index)
        return self.crop(row["image"]), row["label"]


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    streaming.base.util.clean_stale_shared_memory()
    loader = DataLoader(
        Photos(data / "mds", settings),
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        drop_last=True,
    )
    while True:
        yield from loader
