"""SPDL: its pipeline of threads over files, its decoder (the system's FFmpeg), OpenCV for crop and scale."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import spdl.io
from peer_rows import Photo, read_photos
from settings import Batch, Settings
from spdl.pipeline import PipelineBuilder

from images.numpy_crop import normalized, random_part

WORKERS = 2
BUFFER = 3
"""Batches that wait, as in SPDL's own examples."""


class Photos:
    """The files with their labels, without end, each epoch in another order."""

    def __init__(self, data: Path, seed: int) -> None:
        self._photos = read_photos(data)
        self._random = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[Photo]:
        """Yields a file's path and label."""
        while True:
            yield from (self._photos[number] for number in self._random.permutation(len(self._photos)))


def run(builder: PipelineBuilder, workers: int) -> Iterator[Batch]:
    """Yields what a pipeline makes in so many threads."""
    pipeline = builder.add_sink(BUFFER).build(num_threads=workers)
    with pipeline.auto_stop():
        yield from pipeline


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    random = np.random.default_rng(settings.seed)

    def decode(photo: Photo) -> tuple[Any, int]:
        path, label = photo
        packets = spdl.io.demux_image(path.read_bytes())
        frames = spdl.io.decode_packets(packets, filter_desc="format=pix_fmts=rgb24")
        return random_part(spdl.io.to_numpy(spdl.io.convert_frames(frames)), random), label

    def joined(rows: list[tuple[Any, int]]) -> Batch:
        pixels, labels = np.stack([row for row, _ in rows]), np.array([label for _, label in rows])
        return pixels if settings.dtype == "uint8" else normalized(pixels), labels

    rows = PipelineBuilder().add_source(Photos(data, settings.seed)).pipe(decode, concurrency=settings.workers)
    yield from run(rows.aggregate(settings.batch_size, drop_last=True).pipe(joined), settings.workers)
