"""SPDL's pipeline of threads; each call reads the files of a batch and decodes them with simplejpeg and OpenCV."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from peer_rows import Photo
from settings import SIDE, Batch, Settings
from spdl.pipeline import PipelineBuilder

from images.numpy_crop import normalized, random_crop
from images.spdl import Photos, run

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    random = np.random.default_rng(settings.seed)

    def decode(photos: list[Photo]) -> Batch:
        pixels = np.empty((len(photos), SIDE, SIDE, 3), np.uint8)
        for row, (path, _) in zip(pixels, photos, strict=True):
            row[:] = random_crop(path.read_bytes(), random)
        labels = np.array([label for _, label in photos])
        return pixels if settings.dtype == "uint8" else normalized(pixels), labels

    some = PipelineBuilder().add_source(Photos(data, settings.seed)).aggregate(settings.batch_size, drop_last=True)
    yield from run(some.pipe(decode, concurrency=settings.workers), settings.workers)
