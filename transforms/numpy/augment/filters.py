"""Blur and sharpness: integer sums over a pixel's neighbours, for the same levels in every library."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recordmill.transforms.numpy import opencv
from recordmill.transforms.numpy.augment import base
from recordmill.transforms.numpy.augment.base import Augmentation, Floats, Pixels, Values

TAP = 4096.0  # taps are integers of 1/4096: with rows rounded to 1/16 level, both sums are exact in float32
LARGEST = 99  # the middle tap takes all rounding: from 101 taps on it can become negative
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32)  # Pillow's `ImageFilter.SMOOTH`, times 13

Levels = npt.NDArray[np.uint8 | np.int16]


@dataclass(frozen=True)
class GaussianBlur(Augmentation):
    """Blurs by a Gaussian of a random deviation, as SimCLR does (Chen et al. 2020, arXiv:2002.05709).

    `kernel` is the weighted pixels a side, odd, 1 to 99; `sigma` the uniform range of the deviation in pixels, or one
    number. Images are mirrored beyond their edge.
    """

    lanes: ClassVar[int] = 1
    kernel: int
    sigma: float | tuple[float, float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        if not (isinstance(self.kernel, int) and 0 < self.kernel <= LARGEST and self.kernel % 2):
            message = f"kernel is {self.kernel}; give an odd number of pixels, 1 to {LARGEST}, such as 23"
            raise ValueError(f"{self}: {message}")
        allowed = base.ABOVE_0, base.LARGEST
        words = "in pixels, such as (0.1, 2.0), or one, such as 1.0"
        base.check_range(self, "sigma", base.as_pair(self.sigma), *allowed, words)

    @property
    def numbers(self) -> int:
        """The middle tap, and those on one side."""
        return self.kernel // 2 + 1

    def draw(self, uniforms: Floats) -> Floats:
        """Makes taps for the deviation, integers of 1/4096; they add up to 1."""
        taps = np.exp(-0.5 * (np.arange(self.numbers) / base.drawn(base.as_pair(self.sigma), uniforms)) ** 2)
        taps = np.rint(taps / (2 * taps.sum(1, keepdims=True) - 1) * TAP)
        taps[:, 0] = TAP - 2 * taps[:, 1:].sum(1)
        return taps / TAP

    def acts(self, values: Values) -> bool:
        return values[0] < 1

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Weighs rows, rounds to 1/16 level, weighs columns, and rounds to levels, both half to even."""
        weighed = [value for value in values if value]  # a small deviation has zeros as outer taps
        taps = np.array([*weighed[:0:-1], *weighed], np.float32)
        out = base.memory(out, pixels.shape)
        _weighted(_weighted(pixels, 16 * taps, 1, np.empty(pixels.shape, np.int16)), taps / 16, 0, out)
        return out


def _weighted(pixels: Levels, taps: npt.NDArray[Any], axis: int, out: Levels) -> Levels:
    """Writes weighted sums along an axis, rounded half to even, mirroring the image beyond its edge."""
    if opencv.cv2 is not None:
        one, depth = np.ones(1, np.float32), opencv.cv2.CV_8U if out.dtype == np.uint8 else opencv.cv2.CV_16S
        along = (taps, one) if axis else (one, taps)
        opencv.cv2.sepFilter2D(pixels, depth, *along, dst=out, borderType=opencv.cv2.BORDER_REFLECT_101)
        return out
    reach, side = len(taps) // 2, pixels.shape[axis]
    around = np.pad(pixels, [(reach, reach) if each == axis else (0, 0) for each in range(3)], "reflect")
    sums = np.zeros(pixels.shape, np.float32)
    for start, tap in enumerate(taps):
        sums += tap * around.take(range(start, start + side), axis)
    limits = np.iinfo(out.dtype)
    np.copyto(out, np.clip(np.rint(sums, out=sums), limits.min, limits.max, out=sums), casting="unsafe")
    return out


@dataclass(frozen=True)
class RandomSharpness(Augmentation):
    """Draws a factor of `factor`, 0 to 2: 0 smooths the image, 1 keeps it, 2 sharpens it.

    The levels are those of Pillow's `ImageEnhance.Sharpness`, rounded half up instead of truncated.
    """

    lanes: ClassVar[int] = 1
    numbers: ClassVar[int] = 1
    factor: tuple[float, float] = (0.5, 1.5)

    def __post_init__(self) -> None:
        base.check_range(self, "factor", self.factor, 0, 2, "of 0 to 2, such as (0.5, 1.5)")

    def draw(self, uniforms: Floats) -> Floats:
        """Draws the factor, in integers of 1/1024."""
        return base.rounded(base.drawn(self.factor, uniforms))

    def acts(self, values: Values) -> bool:
        return values[0] != 1

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        factor, smooth = values[0], smoothed(pixels)
        out = base.memory(out, pixels.shape)
        if opencv.cv2 is not None:
            opencv.cv2.addWeighted(pixels, factor, smooth, 1 - factor, opencv.TIE, dst=out)
        else:
            mixed = pixels.astype(np.float32) * np.float32(factor) + smooth.astype(np.float32) * np.float32(1 - factor)
            out[...] = np.clip(mixed + np.float32(0.5), 0, 255)
        return out


def smoothed(pixels: Pixels) -> Pixels:
    """Returns the rounded mean of each pixel, five times, and its eight neighbours; the edge is unchanged."""
    height, width = pixels.shape[:2]
    smooth = base.copied(pixels)
    if min(height, width) < 3:
        return smooth
    inside = smooth[1:-1, 1:-1]
    # Sums are 3,315 at most, and 13ths of integers are never ties.
    if opencv.cv2 is not None:
        sums = opencv.cv2.filter2D(pixels, opencv.cv2.CV_16S, SMOOTH).reshape(pixels.shape)
        means = opencv.cv2.convertScaleAbs(sums, alpha=1 / 13).reshape(pixels.shape)
        inside[...] = means[1:-1, 1:-1]
        return smooth
    total = 4 * pixels[1:-1, 1:-1].astype(np.float32)
    for y in range(3):
        for x in range(3):
            total += pixels[y : height - 2 + y, x : width - 2 + x]
    inside[...] = np.rint(total * np.float32(1 / 13))
    return smooth
