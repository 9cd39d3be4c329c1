"""Grain as its tutorials write it: one record after another, Pillow, its own `batch`. `grain` is its fastest form."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from PIL import Image
from settings import SIDE, Batch, Settings

from images.grain import BUFFER, LABEL_BYTES, array_records
from images.numpy_crop import normalized

WORKERS = 2


def random_crop(jpeg: bytes, random: np.random.Generator) -> Any:
    """Decodes a JPEG with Pillow; gives a random part of it, scaled to [224, 224, 3] and flipped or not."""
    image: Image.Image = Image.open(io.BytesIO(jpeg))
    area = image.width * image.height * random.uniform(0.08, 1)
    ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
    wide, high = min(int((area * ratio) ** 0.5), image.width), min(int((area / ratio) ** 0.5), image.height)
    x, y = int(random.integers(image.width - wide + 1)), int(random.integers(image.height - high + 1))
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, (x, y, x + wide, y + high))
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""

    def decode(record: bytes, random: np.random.Generator) -> tuple[Any, Any]:
        pixels = random_crop(record[LABEL_BYTES:], random)
        label = np.frombuffer(record, np.int64, 1)[0]
        return (pixels if settings.dtype == "uint8" else normalized(pixels)), label

    rows = grain.MapDataset.source(array_records(data)).seed(settings.seed).shuffle().repeat().random_map(decode)
    options = grain.ReadOptions(num_threads=settings.workers, prefetch_buffer_size=BUFFER)
    yield from rows.batch(settings.batch_size, drop_remainder=True).to_iter_dataset(options)
