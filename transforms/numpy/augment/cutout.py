"""Filled rectangles."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from recordmill.transforms.numpy.augment.base import (
    Augmentation,
    Fill,
    Floats,
    Pixels,
    Values,
    Window,
    both_sides,
    check_fill,
    check_part,
    check_shares,
    check_size,
    copied,
    draw_part,
    fill_levels,
    part_window,
    window_around,
)


@dataclass(frozen=True)
class RandomCutout(Augmentation):
    """Fills a rectangle of `size`, in pixels, around a random point; cut off at the image's edge (DeVries 2017)."""

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    size: int | tuple[int, int]
    fill: Fill = 0

    def __post_init__(self) -> None:
        check_size(self, self.size)
        check_fill(self, self.fill)

    def window(self, values: Values, height: int, width: int) -> Window:
        """Returns the filled rectangle, which lies inside of the image."""
        return window_around(values, both_sides(self.size), height, width)

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Fills the rectangle."""
        y, x, high, wide = self.window(values, *pixels.shape[:2])
        out = copied(pixels, out)
        out[y : y + high, x : x + wide] = fill_levels(self.fill, pixels.shape[2])
        return out


@dataclass(frozen=True)
class RandomErasing(Augmentation):
    """Fills, with probability `p`, a random part of the image (Zhong et al. 2017, arXiv:1708.04896).

    `area` is the part's share of the image's pixels, uniform; `aspect` its width by its height, uniform in its
    logarithm; the part always lies inside of the image. `fill` is a level, a colour, or `random`: a level of
    its own for each value.
    """

    lanes: ClassVar[int] = 7
    numbers: ClassVar[int] = 7
    p: float = 0.5
    area: tuple[float, float] = (0.02, 0.33)
    aspect: tuple[float, float] = (0.3, 3.3)
    fill: Fill | Literal["random"] = 0

    def __post_init__(self) -> None:
        check_shares(self, p=self.p)
        check_part(self, self.area, self.aspect)
        if self.fill != "random":
            check_fill(self, self.fill)

    def draw(self, uniforms: Floats) -> Floats:
        """Returns 1 where a part is erased, the part, and two whole numbers below 2**53, the seed of random levels."""
        part = draw_part(self.area, self.aspect, uniforms[:, 1:5])
        return np.column_stack([uniforms[:, 0] < self.p, part, np.floor(uniforms[:, 5:] * 2.0**53)])

    def acts(self, values: Values) -> bool:
        """Whether a part is erased."""
        return values[0] > 0

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Fills the part."""
        channels = pixels.shape[2]
        y, x, high, wide = part_window(values[1:5], *pixels.shape[:2])
        out = copied(pixels, out)
        part = out[y : y + high, x : x + wide]
        if self.fill == "random":
            rng = np.random.Generator(np.random.PCG64([int(value) for value in values[5:7]]))
            part[...] = rng.integers(0, 256, (high, wide, channels), np.uint8)
        else:
            part[...] = fill_levels(self.fill, channels)
        return out
