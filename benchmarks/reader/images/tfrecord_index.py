"""The package `tfrecord` over the files of TensorFlow Datasets, as its page shows: index, OpenCV, PyTorch loader."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from settings import Batch, Settings
from tfrecord.torch.dataset import MultiTFRecordDataset
from torch.utils.data import DataLoader

from images.numpy_crop import normalized, random_part

WORKERS = 2
SHUFFLE = 4096


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    random.seed(settings.seed)
    generator = np.random.default_rng(settings.seed)

    def crop(row: dict[str, Any]) -> tuple[Any, Any]:
        decoded = cv2.cvtColor(cv2.imdecode(np.frombuffer(row["image"], np.uint8), -1), cv2.COLOR_BGR2RGB)
        pixels = random_part(decoded, generator)
        return pixels if settings.dtype == "uint8" else normalized(pixels), row["label"][0]

    folder = data / "tfds" / "image" / "1.0.0"
    shards = sorted(file.name for file in folder.glob("*.tfrecord*"))
    rows = MultiTFRecordDataset(
        str(folder / "{}"),
        str(data / "tfrecord_index" / "{}"),
        dict.fromkeys(shards, 1 / len(shards)),
        {"image": "byte", "label": "int"},
        shuffle_queue_size=SHUFFLE,
        transform=crop,
        infinite=True,
    )
    yield from DataLoader(rows, batch_size=settings.batch_size, num_workers=settings.processes or 0, drop_last=True)
