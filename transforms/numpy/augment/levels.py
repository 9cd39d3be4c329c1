"""Maps of levels by a table: posterize, solarize, invert, contrast and histogram by the image's own extremes.

The levels are those of Pillow's `ImageOps`, the operations of AutoAugment (Cubuk et al. 2018, arXiv:1805.09501).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recordmill.transforms.numpy import opencv
from recordmill.transforms.numpy.augment.base import Augmentation, Floats, Pixels, Values, memory

LEVELS = np.arange(256, dtype=np.uint8)
Counts = npt.NDArray[np.int64]


class LevelMap(Augmentation):
    """A change of each level by a table, whatever its neighbours are."""

    @abstractmethod
    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        """Returns the new levels, uint8 [256], or [256, channels] where each channel has its own."""

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Looks up each level."""
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
            raise ValueError(f"{self}: bits is {self.bits}; give the bits that are kept, 1 to 8")

    def draw(self, uniforms: Floats) -> Floats:
        """Returns the bits."""
        return np.full((len(uniforms), 1), float(self.bits))

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        """Makes the lower bits zeros."""
        return LEVELS & np.uint8(256 - (1 << 8 - int(values[0])))


@dataclass(frozen=True)
class Solarize(LevelMap):
    """Inverts the levels from `threshold` on, 0 to 256: 0 inverts all, 256 none."""

    numbers: ClassVar[int] = 1
    threshold: float = 128

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 256:
            raise ValueError(f"{self}: threshold is {self.threshold}; give the least level that is inverted, 0 to 256")

    def draw(self, uniforms: Floats) -> Floats:
        """Returns the threshold."""
        return np.full((len(uniforms), 1), float(self.threshold))

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        """Takes levels from the threshold on from 255."""
        return np.where(LEVELS < values[0], LEVELS, 255 - LEVELS)


@dataclass(frozen=True)
class Invert(LevelMap):
    """Takes each level from 255."""

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        """Returns 255 to 0."""
        return 255 - LEVELS


@dataclass(frozen=True)
class AutoContrast(LevelMap):
    """Stretches each channel, so that its darkest level becomes 0 and its brightest 255; one of one level stays."""

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        """Rounds down, as Pillow does."""
        return np.stack([_stretched(counts) for counts in histograms(pixels)], 1)


@dataclass(frozen=True)
class Equalize(LevelMap):
    """Spreads each channel's levels, so that each of them is as frequent; a channel of few pixels may stay."""

    def tables(self, pixels: Pixels, values: Values) -> Pixels:
        """Divides the pixels before a level by a 255th of all but the brightest ones, in whole numbers."""
        return np.stack([_equalized(counts) for counts in histograms(pixels)], 1)


def histograms(pixels: Pixels) -> list[Counts]:
    """Counts the pixels of each level, int64 [256], by channel."""
    channels = range(pixels.shape[2])
    if opencv.cv2 is not None and pixels.shape[0] * pixels.shape[1] < 1 << 24:  # it counts in float32
        calc: Any = opencv.cv2.calcHist
        return [calc([pixels], [each], None, [256], [0, 256]).ravel().astype(np.int64) for each in channels]
    return [np.bincount(pixels[..., each].ravel(), minlength=256) for each in channels]


def _stretched(counts: Counts) -> Pixels:
    present = np.flatnonzero(counts)
    darkest, brightest = int(present[0]), int(present[-1])
    if brightest <= darkest:
        return LEVELS
    scale = 255.0 / (brightest - darkest)
    return np.clip(LEVELS * scale + -darkest * scale, 0, 255).astype(np.uint8)


def _equalized(counts: Counts) -> Pixels:
    step = (int(counts.sum()) - int(counts[np.flatnonzero(counts)[-1]])) // 255
    if not step:
        return LEVELS
    before = np.cumsum(counts) - counts
    return np.minimum((step // 2 + before) // step, 255).astype(np.uint8)
