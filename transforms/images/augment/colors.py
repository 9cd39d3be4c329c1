"""Changes of levels: integer colour maps, tables of new levels, blur and sharpness.

Brightness, contrast, saturation and hue are one map. With luma Y = w · (R, G, B) and the image's mean grey m, a pixel x
becomes

    brightness b:  b x              contrast c:    c x + (1 - c) m
    saturation s:  s x + (1 - s) Y  hue, a turn t: I and Q of YIQ turned by t (Haeberli 1993)

Saturation and hue change neither Y nor greys, so the four commute, and the result's m is b m. Together they are

    x' = b c M x + b (1 - c) m,     M = 1 w^T + s cos(t) (1 - 1 w^T) + s sin(t) Q

The map's numbers are rounded to 1/1024. Then all products and sums are exact in float32, in any order, and OpenCV and
NumPy give the same level: x' rounded half up, clipped to 0..255. The map's rows have equal sums: grey stays grey.

Tables posterize, solarize, invert, stretch the contrast and equalize, with the levels of Pillow's `ImageOps`, the
operations of AutoAugment (Cubuk et al. 2018, arXiv:1805.09501). Blur and sharpness are integer sums over a pixel's
neighbours, for the same levels in every library.

>>> color_numbers(np.ones(1), np.ones(1), np.ones(1), np.zeros(1))
array([[1., 0., 1., 0., 0., 0., 1., 0., 0., 0., 1.]])
"""

from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from recordmill.transforms.images import opencv
from recordmill.transforms.images.augment import base
from recordmill.transforms.images.augment.base import Augmentation, Floats, Pixels, Values, copied, memory, rounded
from recordmill.transforms.images.image_rules import luma

LUMA = np.array([0.299, 0.587, 0.114])
# U is 0.492111 (B - Y), V is 0.877283 (R - Y); I and Q are the same plane, turned by 33 degrees.
CHROMA = 0.492111 / 0.877283
LUMA_16_BITS = np.array([luma(*row) for row in 65_536 * np.eye(3, dtype=np.int64)], np.float32)
SAME_COLORS = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)  # the identity map
_RED, _BLUE = CHROMA * (np.array([0.0, 0.0, 1.0]) - LUMA), (LUMA - np.array([1.0, 0.0, 0.0])) / CHROMA
QUARTER_TURN = np.stack([_RED, -(LUMA[0] * _RED + LUMA[2] * _BLUE) / LUMA[1], _BLUE])
"""The map that turns the chroma plane by 90 degrees, and luma to 0."""
GREY = np.tile(LUMA, (3, 1))


@dataclass(frozen=True)
class ColorJitter(Augmentation):
    """Changes brightness, contrast, saturation and hue in one step; their order makes no difference.

    `brightness`, `contrast` and `saturation`, 0 to 1, draw a factor from 1 - x to 1 + x; `hue`, 0 to 0.5, draws a turn
    of the colours from -x to x. 0 changes nothing. Grey images have neither saturation nor hue.
    """

    lanes: ClassVar[int] = 4
    numbers: ClassVar[int] = 11
    brightness: base.Share = 0.0
    contrast: base.Share = 0.0
    saturation: base.Share = 0.0
    hue: Annotated[float, base.number(Real, 0, 0.5, "the largest turn, 0 to 0.5")] = 0.0

    def draw(self, uniforms: Floats) -> Floats:
        change = (2 * uniforms - 1) * [self.brightness, self.contrast, self.saturation, self.hue]
        return color_numbers(1 + change[:, 0], 1 + change[:, 1], 1 + change[:, 2], change[:, 3])

    def acts(self, values: Values) -> bool:
        return tuple(values) != SAME_COLORS

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        out = memory(out, pixels.shape)
        (height, width, channels), offset = pixels.shape, 0.0
        if values[1]:  # a share of the mean grey: the luma of the channels' sums by the pixels, rounded half up
            if opencv.cv2 is not None:  # its float64 sums are exact for any image in memory
                sums = [int(each) for each in opencv.cv2.sumElems(pixels)[:channels]]
            else:
                sums = [int(each) for each in pixels.sum((0, 1), dtype=np.int64)]
            total = sums[0] if channels == 1 else luma(*sums)
            offset = values[1] * int((2 * total + height * width) // (2 * height * width))
        starts = (2, 5, 8) if channels == 3 else ()
        rows = [[*values[start : start + 3]] for start in starts] or [[values[0]]]
        if opencv.cv2 is not None:
            weights = np.array([[*row, offset + opencv.TIE] for row in rows], np.float32)
            opencv.cv2.transform(pixels, weights, dst=out)
        else:
            mapped = pixels.astype(np.float32) @ np.array(rows, np.float32).T + np.float32(offset + 0.5)
            out[...] = np.clip(mapped, 0, 255)
        return out


@dataclass(frozen=True)
class Grayscale(Augmentation):
    """Replaces each channel by the luma of ITU-R BT.601, with the levels of Pillow's `ImageOps.grayscale`."""

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
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
    bits: Annotated[int, base.number(int, 1, 8, "the bits to keep, 1 to 8")]

    def draw(self, uniforms: Floats) -> Floats:
        return np.full((len(uniforms), 1), float(self.bits))

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        return LEVELS & np.uint8(256 - (1 << 8 - int(values[0])))


@dataclass(frozen=True)
class Solarize(LevelMap):
    """Inverts levels from `threshold` on, 0 to 256: 0 inverts all, 256 none."""

    numbers: ClassVar[int] = 1
    threshold: Annotated[float, base.number(Real, 0, 256, "the lowest level to invert, 0 to 256")] = 128

    def draw(self, uniforms: Floats) -> Floats:
        return np.full((len(uniforms), 1), float(self.threshold))

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        return np.where(LEVELS < values[0], LEVELS, 255 - LEVELS)


@dataclass(frozen=True)
class Invert(LevelMap):
    """Subtracts each level from 255."""

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        return 255 - LEVELS


class CountedLevels(LevelMap):
    """A change of each channel's levels by their frequencies."""

    @abstractmethod
    def table(self, counts: Counts) -> Pixels:
        """Returns a channel's new levels, uint8 [256], by the pixels of each level, int64 [256]."""

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        return np.stack([self.table(counts) for counts in histograms(pixels)], 1)


@dataclass(frozen=True)
class AutoContrast(CountedLevels):
    """Stretches each channel from its darkest level to 0 and its brightest to 255; single-level channels stay."""

    def table(self, counts: Counts) -> Pixels:
        present = np.flatnonzero(counts)
        darkest, brightest = int(present[0]), int(present[-1])
        if brightest <= darkest:
            return LEVELS
        scale = 255.0 / (brightest - darkest)
        return np.clip(LEVELS * scale + -darkest * scale, 0, 255).astype(np.uint8)  # rounds down, as Pillow does


@dataclass(frozen=True)
class Equalize(CountedLevels):
    """Spreads each channel's levels to equal frequencies; a channel of few pixels may stay."""

    def table(self, counts: Counts) -> Pixels:
        """Divides the pixels below a level by a 255th of all but the brightest ones, in integers."""
        step = (int(counts.sum()) - int(counts[np.flatnonzero(counts)[-1]])) // 255
        if not step:
            return LEVELS
        before = np.cumsum(counts) - counts
        return np.minimum((step // 2 + before) // step, 255).astype(np.uint8)


def histograms(pixels: Pixels) -> list[Counts]:
    """Counts the pixels of each level, int64 [256], by channel."""
    channels = range(pixels.shape[2])
    if opencv.cv2 is not None and pixels.shape[0] * pixels.shape[1] < 1 << 24:  # OpenCV counts in float32
        calc: Any = opencv.cv2.calcHist
        return [calc([pixels], [each], None, [256], [0, 256]).ravel().astype(np.int64) for each in channels]
    return [np.bincount(pixels[..., each].ravel(), minlength=256) for each in channels]


TAP = 4096.0  # taps are integers of 1/4096: with rows rounded to 1/16 level, both sums are exact in float32
LARGEST_KERNEL = 99  # the middle tap takes all rounding: from 101 taps on it can become negative
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32)  # Pillow's `ImageFilter.SMOOTH`, times 13

Levels = npt.NDArray[np.uint8 | np.int16]
SIGMA = base.span(base.ABOVE_0, base.LARGEST, "in pixels, such as (0.1, 2.0), or one, such as 1.0", base.as_pair)


def _check_kernel(kernel: Any) -> str | None:
    is_right = isinstance(kernel, int) and 0 < kernel <= LARGEST_KERNEL and kernel % 2
    return None if is_right else f"an odd number of pixels, 1 to {LARGEST_KERNEL}, such as 23"


@dataclass(frozen=True)
class GaussianBlur(Augmentation):
    """Blurs by a Gaussian of a random deviation, as SimCLR does (Chen et al. 2020, arXiv:2002.05709).

    `kernel` is the weighted pixels a side, odd, 1 to 99; `sigma` the uniform range of the deviation in pixels, or one
    number. Images are mirrored beyond their edge.
    """

    lanes: ClassVar[int] = 1
    kernel: Annotated[int, _check_kernel]
    sigma: Annotated[float | tuple[float, float], SIGMA] = (0.1, 2.0)

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
        out = memory(out, pixels.shape)
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
    factor: Annotated[tuple[float, float], base.span(0, 2, "of 0 to 2, such as (0.5, 1.5)")] = (0.5, 1.5)

    def draw(self, uniforms: Floats) -> Floats:
        return rounded(base.drawn(self.factor, uniforms))

    def acts(self, values: Values) -> bool:
        return values[0] != 1

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        factor, smooth = values[0], smoothed(pixels)
        out = memory(out, pixels.shape)
        if opencv.cv2 is not None:
            opencv.cv2.addWeighted(pixels, factor, smooth, 1 - factor, opencv.TIE, dst=out)
        else:
            mixed = pixels.astype(np.float32) * np.float32(factor) + smooth.astype(np.float32) * np.float32(1 - factor)
            out[...] = np.clip(mixed + np.float32(0.5), 0, 255)
        return out


def smoothed(pixels: Pixels) -> Pixels:
    """Returns the rounded mean of each pixel, five times, and its eight neighbours; the edge is unchanged."""
    height, width = pixels.shape[:2]
    smooth = copied(pixels)
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
