"""Measures each augmentation of one image, 224×224×3, in one thread, with OpenCV and without.

    python benchmarks/augment.py

Prints microseconds of CPU an image as a Markdown table, medians of 5 runs, each of 40 draws. Changes with a probability
have 1. The last column is the time of the draws, for a batch of 64.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from recordmill import augment
from recordmill.transforms.numpy import opencv
from recordmill.transforms.numpy.augment import chain
from recordmill.transforms.numpy.augment.base import Pixels

CHANGES: list[augment.Augmentation] = [
    augment.RandomResizedCrop(224),
    augment.RandomFlip(1),
    augment.ColorJitter(0.4, 0.4, 0.4, 0.1),
    augment.Grayscale(),
    augment.GaussianBlur(23),
    augment.RandomSharpness(),
    augment.RandomRotation(30),
    augment.RandomRotation(30, "crop"),
    augment.RandomAffine(30, 0.1, (0.8, 1.2), 10),
    augment.RandomErasing(1),
    augment.RandomErasing(1, fill="random"),
    augment.AutoContrast(),
    augment.Equalize(),
    augment.Posterize(4),
    augment.Solarize(),
    augment.Invert(),
    augment.RandAugment(),
    augment.TrivialAugmentWide(),
]
DRAWS, RUNS, BATCH = 40, 5, 64


def main() -> None:
    """Prints the table."""
    rng = np.random.default_rng(0)
    pixels = np.kron(rng.integers(0, 256, (28, 28, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
    library = opencv.cv2
    print("| change | with OpenCV | NumPy alone | its draws |\n|---|---|---|---|")
    for change in CHANGES:
        uniforms = rng.random((BATCH, change.lanes))
        rows, out = change.draw(uniforms)[:DRAWS].tolist(), np.empty_like(pixels)
        draw = partial(change.draw, uniforms)
        apply = partial(apply_all, change, rows, pixels, out)
        with_library = median(apply) / DRAWS
        opencv.cv2 = None
        alone = median(apply) / DRAWS
        opencv.cv2 = library
        print(f"| `{change}` | {with_library:,.0f} | {alone:,.0f} | {median(draw) / BATCH:.1f} |")


def apply_all(change: augment.Augmentation, rows: list[list[float]], pixels: Pixels, out: Pixels) -> None:
    """Changes an image by each row of parameters."""
    for row in rows:
        chain.apply(pixels, None, [change], row, out)


def median(work: Callable[[], object]) -> float:
    """Gives the microseconds of one call, the median of some."""
    work()
    runs = []
    for _ in range(RUNS):
        start = time.thread_time()
        work()
        runs.append(1e6 * (time.thread_time() - start))
    return statistics.median(runs)


if __name__ == "__main__":
    main()
