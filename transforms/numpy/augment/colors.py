"""Greyscale; brightness, contrast, saturation and hue as one map of a pixel's colours, of whole numbers.

With luma Y = w · (R, G, B) and the image's mean grey m, a pixel x becomes

    brightness b:  b x              contrast c:    c x + (1 - c) m
    saturation s:  s x + (1 - s) Y  hue, a turn t: I and Q of YIQ turned by t (Haeberli 1993)

Saturation and hue change neither Y nor greys, so the four commute, m of the result being b m. Together they are

    x' = b c M x + b (1 - c) m,     M = 1 w^T + s cos(t) (1 - 1 w^T) + s sin(t) Q

The map's numbers are rounded to 1/1024. Then every product and sum is exact in float32, in any order, and OpenCV and
NumPy give the same level: x' rounded half up, at least 0, at most 255. Rows of the map have one sum: grey stays grey.

>>> color_numbers(np.ones(1), np.ones(1), np.ones(1), np.zeros(1))
array([[1., 0., 1., 0., 0., 0., 1., 0., 0., 0., 1.]])
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recordmill.transforms.contract.luma import luma
from recordmill.transforms.numpy import opencv
from recordmill.transforms.numpy.augment.base import Augmentation, Floats, Pixels, Values, check_shares, memory

UNIT = 1024.0
LUMA = np.array([0.299, 0.587, 0.114])
# U is 0.492111 (B - Y), V is 0.877283 (R - Y); I and Q are the same plane, turned by 33 degrees.
CHROMA = 0.492111 / 0.877283
LUMA_16_BITS = np.array([luma(*row) for row in 65_536 * np.eye(3, dtype=np.int64)], np.float32)
SAME_COLORS = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
"""The numbers of the map that changes nothing."""


def _quarter_turn() -> Floats:
    """The map that turns the plane of chroma by 90 degrees, and takes luma to 0."""
    red = CHROMA * (np.array([0.0, 0.0, 1.0]) - LUMA)
    blue = (LUMA - np.array([1.0, 0.0, 0.0])) / CHROMA
    return np.stack([red, -(LUMA[0] * red + LUMA[2] * blue) / LUMA[1], blue])


QUARTER_TURN = _quarter_turn()
GREY = np.tile(LUMA, (3, 1))


@dataclass(frozen=True)
class ColorJitter(Augmentation):
    """Changes brightness, contrast, saturation and hue, all in one step; their order makes no difference.

    `brightness`, `contrast` and `saturation`, 0 to 1, draw a factor from 1 - x to 1 + x; `hue`, 0 to 0.5, draws a turn
    of the colours from -x to x. 0 leaves it alone. Grey images have neither saturation nor hue.
    """

    lanes: ClassVar[int] = 4
    numbers: ClassVar[int] = 11
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        check_shares(self, brightness=self.brightness, contrast=self.contrast, saturation=self.saturation)
        if not 0 <= self.hue <= 0.5:
            raise ValueError(f"{self}: hue is {self.hue}; give the largest turn, 0 to 0.5")

    def draw(self, uniforms: Floats) -> Floats:
        """Makes color maps of the three factors and the turn."""
        change = (2 * uniforms - 1) * [self.brightness, self.contrast, self.saturation, self.hue]
        return color_numbers(1 + change[:, 0], 1 + change[:, 1], 1 + change[:, 2], change[:, 3])

    def acts(self, values: Values) -> bool:
        """Whether the map changes any color."""
        return tuple(values) != SAME_COLORS

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Maps the colours."""
        return recolor(pixels, values, out)


@dataclass(frozen=True)
class Grayscale(Augmentation):
    """Returns every channel the luma of ITU-R BT.601, the levels of Pillow's `ImageOps.grayscale`."""

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Takes colours away; a grey image stays as it is."""
        if pixels.shape[2] == 1:
            return pixels
        out = memory(out, pixels.shape)
        colors = pixels.astype(np.float32)  # the sums of `luma` are below 2**24, so exact in float32
        sums = colors @ LUMA_16_BITS if opencv.cv2 is None else opencv.cv2.transform(colors, LUMA_16_BITS[np.newaxis])
        sums += 32_768
        sums *= 2.0**-16
        for channel in range(3):
            out[..., channel] = sums
        return out


def color_numbers(brightness: Floats, contrast: Floats, saturation: Floats, hue: Floats) -> Floats:
    """Makes the color maps of images.

    Args:
        brightness: factors of 0 to 2, float64 [rows]; `contrast` and `saturation` too.
        contrast: around the mean grey.
        saturation: 0 is grey.
        hue: turns, -0.5 to 0.5, float64 [rows].

    Returns:
        float64 [rows, 11], multiples of 1/1024: the factor of a grey pixel, the factor of the mean grey, and the map of
        red, green and blue, row by row.
    """
    factor, pivot = _rounded(brightness * contrast), _rounded(brightness * (1 - contrast))
    cosine, sine = (np.reshape(saturation * f(2 * np.pi * hue), (-1, 1, 1)) for f in (np.cos, np.sin))
    maps = GREY + cosine * (np.eye(3) - GREY) + sine * QUARTER_TURN
    maps = _rounded(np.reshape(brightness * contrast, (-1, 1, 1)) * maps)
    maps += np.eye(3) * (factor[:, np.newaxis] - maps.sum(2))[:, :, np.newaxis]
    return np.column_stack([factor, pivot, maps.reshape(-1, 9)])


def recolor(pixels: Pixels, numbers: Values, out: Pixels | None = None) -> Pixels:
    """Maps the colours of an image by its `color_numbers`."""
    out = memory(out, pixels.shape)
    offset = numbers[1] and numbers[1] * mean_grey(pixels)
    if pixels.shape[2] == 1:
        rows = [[numbers[0]]]
    else:
        rows = [[*numbers[start : start + 3]] for start in (2, 5, 8)]
    if opencv.cv2 is not None:
        weights = np.array([[*row, offset + opencv.TIE] for row in rows], np.float32)
        opencv.cv2.transform(pixels, weights, dst=out)
    else:
        mapped = pixels.astype(np.float32) @ np.array(rows, np.float32).T + np.float32(offset + 0.5)
        out[...] = np.clip(mapped, 0, 255)
    return out


def mean_grey(pixels: Pixels) -> int:
    """Returns an image's mean grey in whole numbers: the luma of the channels' sums, by the pixels, rounded half up."""
    height, width, channels = pixels.shape
    if opencv.cv2 is not None:  # its sums, in float64, are exact for any image that fits into memory
        sums = [int(each) for each in opencv.cv2.sumElems(pixels)[:channels]]
    else:
        sums = [int(each) for each in pixels.sum((0, 1), dtype=np.int64)]
    total = sums[0] if channels == 1 else luma(*sums)
    return int((2 * total + height * width) // (2 * height * width))


def _rounded(numbers: Floats) -> Floats:
    return np.rint(numbers * UNIT) / UNIT
