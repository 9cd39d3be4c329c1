"""LitData: its optimized chunks, its `Image` type (torchvision's decoder), torchvision's crop, its own loader."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
import torch
from litdata.streaming import downloader, item_loader
from settings import Batch, Settings

from images.torch_crop import random_crop

WORKERS = 2


class PyTreeLoader(item_loader.PyTreeLoader):  # type: ignore[misc]  # the chunks name their loader
    """Maps every chunk: this version reads the whole of one that two workers share, for each of its rows."""

    def set_mmap_allowed_chunks(self, chunk_indexes: set[int]) -> None:
        """Allows all chunks; none is removed from a cache that has room."""
        super().set_mmap_allowed_chunks(set(range(len(self._chunks))))


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    crop = random_crop(settings.dtype)

    def decode(row: dict[str, Any]) -> tuple[Any, int]:
        return crop(row["image"]), row["label"]

    torch.manual_seed(settings.seed)
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # for a server of this machine
    rows = litdata.StreamingDataset(
        f"{settings.remote or data}/litdata",
        cache_dir=settings.cache or None,
        item_loader=PyTreeLoader(),
        shuffle=True,
        drop_last=True,
        seed=settings.seed,
        transform=decode,
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
