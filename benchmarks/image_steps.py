"""Measures what the reader does with one image of a batch, step by step, in one thread; prints Markdown.

    python benchmarks/image_steps.py

Photos are stored square as a build stores them, and read with `RandomResizedCrop(224), RandomFlip()`. A figure is the
least CPU of many passes over 40 images: a busy machine makes others larger.
"""

import io
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np
import simplejpeg
from measure import table
from photos import photo
from PIL import Image

from recordmill import augment
from recordmill.pipeline.build.images.transcode import interval
from recordmill.transforms.contract.kinds.image import ImageDescription
from recordmill.transforms.numpy.augment import chain
from recordmill.transforms.numpy.buffers import BatchMemory, pixels_read_soon
from recordmill.transforms.numpy.image_decode import jpeg
from recordmill.transforms.numpy.images import ImageReader
from recordmill.transforms.numpy.jpeg_parts import JpegPart, read_layout
from recordmill.transforms.numpy.pixels import normalizer

IMAGES = 40
PASSES = 40
TARGET = 224
SIDES = (256, 480)
LARGE_PHOTO = (640, 480)
QUALITY = 80


def stored(number: int, side: int) -> bytes:
    """Gives a photo as a build stores it: square, 4:2:0, with restart markers."""
    pixels = Image.open(io.BytesIO(photo(number, *LARGE_PHOTO)))
    left = (pixels.width - pixels.height) // 2
    square = pixels.crop((left, 0, left + pixels.height, pixels.height)).resize((side, side), Image.Resampling.BOX)
    file = io.BytesIO()
    blocks = interval(side, 16)
    square.save(file, "JPEG", quality=QUALITY, subsampling="4:2:0", restart_marker_blocks=blocks)
    return file.getvalue()


def microseconds(step: Callable[[], object]) -> str:
    """Measures a step over all images: microseconds of CPU an image."""
    least = float("inf")
    for _ in range(PASSES):
        started = time.process_time()
        step()
        least = min(least, time.process_time() - started)
    return f"{least / IMAGES * 1e6:,.0f}"


def without_pixels(step: Callable[[], object], pixels: Any) -> Callable[[], object]:
    """Makes a step of which only our own work is left."""

    def alone() -> None:
        with ExitStack() as stack:
            stack.enter_context(patch.object(simplejpeg, "decode_jpeg", lambda *_, **__: pixels))
            for name in ("resize", "flip"):
                stack.enter_context(patch.object(cv2, name, lambda *_, **__: None))
            step()

    return alone


def measured(side: int) -> list[str]:
    """Measures the steps of images of a size."""
    files = [stored(number, side) for number in range(IMAGES)]
    changes = chain.check([augment.RandomResizedCrop(TARGET), augment.RandomFlip()])
    draws = chain.parameters(changes, np.random.default_rng(0).random((IMAGES, chain.lanes(changes))))
    acting = [chain.acting(changes, row) for row in draws.tolist()]
    layout = read_layout(files[0])
    assert layout is not None  # noqa: S101 - the file has markers

    def parts() -> list[JpegPart | None]:
        windows = [chain.first_window(each, side, side) for each in acting]
        return [layout.part(file, window) for file, window in zip(files, windows, strict=True) if window]

    cut = [file if part is None else part.data for part, file in zip(parts(), files, strict=True)]
    memory, scratch = BatchMemory(), pixels_read_soon((side, side, 3))
    pixels = np.empty((TARGET, TARGET, 3), np.uint8)
    floats, to_float = np.empty(pixels.shape, np.float32), normalizer([120.0] * 3, [0.01] * 3, np.dtype(np.float32))
    whole = [jpeg(file, 3) for file in files]

    def reader(dtype: str) -> Callable[[], object]:
        shape, numbers = (side, side, 3), (0.01,) * 3
        description = ImageDescription(
            stored="bytes", encoding="jpeg", shape=shape, dtype="uint8", offset=numbers, scale=numbers
        )
        augmented = chain.Augment(changes, draws)
        return lambda: ImageReader("image", description, dtype, augmented, empty=memory.empty).images(files)

    pairs = [(image, each[:1]) for image, each in zip(whole, acting, strict=True)]
    return [
        f"{np.mean([len(file) for file in files]) / 1e3:.1f} KB",
        microseconds(lambda: [jpeg(file, 3, scratch) for file in files]),
        microseconds(parts),
        microseconds(lambda: [jpeg(file, 3, scratch) for file in cut]),
        microseconds(lambda: [chain.apply_acting(image, None, each, pixels, mask=False) for image, each in pairs]),
        microseconds(lambda: [to_float(pixels, floats) for _ in files]),
        microseconds(reader("uint8")),
        microseconds(reader("float32")),
        microseconds(without_pixels(reader("uint8"), whole[0])),
    ]


def main() -> None:
    """Prints the table."""
    names = [
        "bytes of the JPEG",
        "decoding the whole",
        "cutting out the part of a crop",
        "decoding the part",
        f"scaling the crop to {TARGET}×{TARGET}",
        "to float32, normalized",
        "all of it, uint8",
        "all of it, float32",
        "uint8, where decoding, scaling and flipping do nothing",
    ]
    columns = [measured(side) for side in SIDES]
    rows = [list(row) for row in zip(names, *columns, strict=True)]
    table("µs of CPU an image", ["", *(f"{side}×{side}" for side in SIDES)], rows)


if __name__ == "__main__":
    main()
