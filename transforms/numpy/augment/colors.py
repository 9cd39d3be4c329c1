"""Changes of single pixels: integer colour maps, and tables of new levels.

Brightness, contrast, saturation and hue are one map. With luma Y = w · (R, G, B) and the image's mean grey m, a pixel x
becomes

    brightness b:  b x              contrast c:    c x + (1 - c) m
    saturation s:  s x + (1 - s) Y  hue, a turn t: I and Q of YIQ turned by t (Haeberli 1993)

Saturation and hue change neither Y nor greys, so the four commute, and the result's m is b m. Together they are

    x' = b c M x + b (1 - c) m,     M = 1 w^T + s cos(t) (1 - 1 w^T) + s sin(t) Q

The map's numbers are rounded to 1/1024. Then all products and sums are exact in float32, in any order, and OpenCV and
NumPy give the same level: x' rounded half up, clipped to 0..255. The map's rows have equal sums: grey stays grey.

Tables posterize, solarize, invert, stretch the contrast and equalize, with the levels of Pillow's `ImageOps`, the
operations of AutoAugment (Cubuk et al. 2018, arXiv:1805.09501).

>>> color_numbers(np.ones(1), np.ones(1), np.ones(1), np.zeros(1))
array([[1., 0., 1., 0., 0., 0., 1., 0., 0., 0., 1.]])
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recordmill.transforms.contract.image_rules import luma
from recordmill.transforms.numpy import opencv
from recordmill.transforms.numpy.augment.base import Augmentation, Floats, Pixels, Values, check_shares, memory, rounded

LUMA = np.array([0.299, 0.587, 0.114])
# U is 0.492111 (B - Y), V is 0.877283 (R - Y); I and Q are the same plane, turned by 33 degrees.
CHROMA = 0.492111 / 0.877283
LUMA_16_BITS = np.array([luma(*row) for row in 65_536 * np.eye(3, dtype=np.int64)], np.float32)
SAME_COLORS = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)  # the identity map


def _quarter_turn() -> Floats:
    """The map that turns the chroma plane by 90 degrees, and luma to 0."""
    red = CHROMA * (np.array([0.0, 0.0, 1.0]) - LUMA)
    blue = (LUMA - np.array([1.0, 0.0, 0.0])) / CHROMA
    return np.stack([red, -(LUMA[0] * red + LUMA[2] * blue) / LUMA[1], blue])


QUARTER_TURN = _quarter_turn()
GREY = np.tile(LUMA, (3, 1))


@dataclass(frozen=True)
class ColorJitter(Augmentation):
    """Changes brightness, contrast, saturation and hue in one step; their order makes no difference.

    `brightness`, `contrast` and `saturation`, 0 to 1, draw a factor from 1 - x to 1 + x; `hue`, 0 to 0.5, draws a turn
    of the colours from -x to x. 0 changes nothing. Grey images have neither saturation nor hue.
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
        """Makes colour maps from the three factors and the turn."""
        change = (2 * uniforms - 1) * [self.brightness, self.contrast, self.saturation, self.hue]
        return color_numbers(1 + change[:, 0], 1 + change[:, 1], 1 + change[:, 2], change[:, 3])

    def acts(self, values: Values) -> bool:
        return tuple(values) != SAME_COLORS

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        return recolor(pixels, values, out)


@dataclass(frozen=True)
class Grayscale(Augmentation):
    """Replaces each channel by the luma of ITU-R BT.601, with the levels of Pillow's `ImageOps.grayscale`."""

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Removes colours; a grey image is unchanged."""
        if pixels.shape[2] == 1:
            return pixels
        out = memory(out, pixels.shape)
        colors = pixels.astype(np.float32)  # `luma`'s sums are below 2**24, exact in float32
        sums = colors @ LUMA_16_BITS if opencv.cv2 is None else opencv.cv2.transform(colors, LUMA_16_BITS[np.newaxis])
        sums += 32_768
        sums *= 2.0**-16
        for channel in range(3):
            out[..., channel] = sums
        return out


def color_numbers(brightness: Floats, contrast: Floats, saturation: Floats, hue: Floats) -> Floats:
    """Makes images' colour maps from factors of 0 to 2 and hue, turns of -0.5 to 0.5, each float64 [rows].

    Contrast is around the mean grey; saturation 0 is grey. Returns float64 [rows, 11], multiples of 1/1024: the factor
    of a grey pixel, the factor of the mean grey, and the map of red, green and blue, row by row.
    """
    factor, pivot = rounded(brightness * contrast), rounded(brightness * (1 - contrast))
    cosine, sine = (np.reshape(saturation * f(2 * np.pi * hue), (-1, 1, 1)) for f in (np.cos, np.sin))
    maps = GREY + cosine * (np.eye(3) - GREY) + sine * QUARTER_TURN
    maps = rounded(np.reshape(brightness * contrast, (-1, 1, 1)) * maps)
    maps += np.eye(3) * (factor[:, np.newaxis] - maps.sum(2))[:, :, np.newaxis]
    return np.column_stack([factor, pivot, maps.reshape(-1, 9)])


def recolor(pixels: Pixels, numbers: Values, out: Pixels | None = None) -> Pixels:
    """Maps an image's colours by its `color_numbers`."""
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
    """Returns an image's integer mean grey: the luma of the channels' sums by the pixels, rounded half up."""
    height, width, channels = pixels.shape
    if opencv.cv2 is not None:  # its float64 sums are exact for any image in memory
        sums = [int(each) for each in opencv.cv2.sumElems(pixels)[:channels]]
    else:
        sums = [int(each) for each in pixels.sum((0, 1), dtype=np.int64)]
    total = sums[0] if channels == 1 else luma(*sums)
    return int((2 * total + height * width) // (2 * height * width))


LEVELS = np.arange(256, dtype=np.uint8)
Counts = npt.NDArray[np.int64]


class LevelMap(Augmentation):
    """A change of each level by a table."""

    @abstractmethod
    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        """Returns the new levels, uint8 [256], or [256, channels] for a table a channel."""

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        tables, out = self.tables(pixels, values), memory(out, pixels.shape)
        if opencv.cv2 is not None:
            opencv.cv2.LUT(pixels, tables[np.newaxis], dst=out)
        elif tables.ndim == 1:
            out[...] = tables[pixels]
        else:
            for channel, table in enumerate(tables.T):
                out[..., channel] = table[pixels[..., channel]]
        return out


@dataclass(frozen=True)
class Posterize(LevelMap):
    """Keeps the upper `bits`, 1 to 8, of each level."""

    numbers: ClassVar[int] = 1
    bits: int

    def __post_init__(self) -> None:
        if not (isinstance(self.bits, int) and 1 <= self.bits <= 8):
            raise ValueError(f"{self}: bits is {self.bits}; give the bits to keep, 1 to 8")

    def draw(self, uniforms: Floats) -> Floats:
        return np.full((len(uniforms), 1), float(self.bits))

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        return LEVELS & np.uint8(256 - (1 << 8 - int(values[0])))


@dataclass(frozen=True)
class Solarize(LevelMap):
    """Inverts levels from `threshold` on, 0 to 256: 0 inverts all, 256 none."""

    numbers: ClassVar[int] = 1
    threshold: float = 128

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 256:
            raise ValueError(f"{self}: threshold is {self.threshold}; give the lowest level to invert, 0 to 256")

    def draw(self, uniforms: Floats) -> Floats:
        return np.full((len(uniforms), 1), float(self.threshold))

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        return np.where(LEVELS < values[0], LEVELS, 255 - LEVELS)


@dataclass(frozen=True)
class Invert(LevelMap):
    """Subtracts each level from 255."""

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        return 255 - LEVELS


@dataclass(frozen=True)
class AutoContrast(LevelMap):
    """Stretches each channel from its darkest level to 0 and its brightest to 255; single-level channels stay."""

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        return np.stack([_stretched(counts) for counts in histograms(pixels)], 1)


@dataclass(frozen=True)
class Equalize(LevelMap):
    """Spreads each channel's levels to equal frequencies; a channel of few pixels may stay."""

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        """Divides the pixels below a level by a 255th of all but the brightest ones, in integers."""
        return np.stack([_equalized(counts) for counts in histograms(pixels)], 1)


def histograms(pixels: Pixels) -> list[Counts]:
    """Counts the pixels of each level, int64 [256], by channel."""
    channels = range(pixels.shape[2])
    if opencv.cv2 is not None and pixels.shape[0] * pixels.shape[1] < 1 << 24:  # OpenCV counts in float32
        calc: Any = opencv.cv2.calcHist
        return [calc([pixels], [each], None, [256], [0, 256]).ravel().astype(np.int64) for each in channels]
    return [np.bincount(pixels[..., each].ravel(), minlength=256) for each in channels]


def _stretched(counts: Counts) -> Pixels:
    present = np.flatnonzero(counts)
    darkest, brightest = int(present[0]), int(present[-1])
    if brightest <= darkest:
        return LEVELS
    scale = 255.0 / (brightest - darkest)
    return np.clip(LEVELS * scale + -darkest * scale, 0, 255).astype(np.uint8)  # rounds down, as Pillow does


def _equalized(counts: Counts) -> Pixels:
    step = (int(counts.sum()) - int(counts[np.flatnonzero(counts)[-1]])) // 255
    if not step:
        return LEVELS
    before = np.cumsum(counts) - counts
    return np.minimum((step // 2 + before) // step, 255).astype(np.uint8)
