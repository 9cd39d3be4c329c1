"""Crops, flips and quarter turns: movements of whole pixels, except for scaling crops."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, ClassVar

import numpy as np

from recordmill.transforms.images import opencv
from recordmill.transforms.images.augment import base
from recordmill.transforms.images.augment.base import Floats, ImagePart, Movement, Pixels, Shape, Values, Window
from recordmill.transforms.images.pixels import scale


def resize(pixels: Pixels, size: tuple[int, int], out: Pixels | None = None) -> Pixels:
    """Scales to a height and width: bilinear, half-pixel centres, no antialiasing, rounded."""
    return scale(pixels, size, "bilinear", False, base.memory(out, (*size, pixels.shape[2]), pixels.dtype))


def nearest(pixels: Pixels, size: tuple[int, int], out: Pixels | None = None) -> Pixels:
    """Scales to a height and width by the pixels at the centres."""
    out = base.memory(out, (*size, pixels.shape[2]), pixels.dtype)
    sides = zip(pixels.shape[:2], size, strict=True)
    rows, columns = ((2 * np.arange(after) + 1) * before // (2 * after) for before, after in sides)  # integers
    out[...] = pixels[rows[:, np.newaxis], columns]
    return out


@dataclass(frozen=True)
class Crop(Movement):
    """Cuts a window and, if it `scales`, resizes it: `size` in pixels, height and width, or one number for both.

    Scaling is bilinear with half-pixel centres and without antialiasing; masks take the nearest pixel.
    """

    resizes: ClassVar[bool] = True
    scales: ClassVar[bool] = False
    size: base.Size

    @property
    def sides(self) -> tuple[int, int]:
        return base.as_pair(self.size)

    def output_shape(self, shape: Shape) -> Shape:
        return (*self.sides, shape[2])

    @abstractmethod
    def window(self, values: Values, height: int, width: int) -> Window:
        """Returns the window for an image of this size, by its parameters."""

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None, *, mask: bool = False) -> Pixels:
        """Crops; returns a view of an unscaled window inside the image."""
        height, width = pixels.shape[:2]
        whole = ImagePart(pixels, 0, 0, height, width, self.window(values, height, width))
        return self.apply_to_part(whole, out, mask=mask)

    def apply_to_part(self, part: ImagePart, out: Pixels | None = None, *, mask: bool = False) -> Pixels:
        """Crops a part that has all of the window's pixels inside the image; scales a mask by the nearest pixel."""
        y, x, high, wide = part.window
        top, bottom, above = base.overlap(y, high, part.height)
        left, right, before = base.overlap(x, wide, part.width)
        inside = part.pixels[top - part.y : bottom - part.y, left - part.x : right - part.x]
        if self.scales:
            return (nearest if mask else resize)(inside, self.sides, out)
        if inside.shape[:2] == (high, wide):
            return inside
        out = base.copied(np.zeros((high, wide, inside.shape[2]), inside.dtype), out)
        out[above : above + bottom - top, before : before + right - left] = inside
        return out

    def move_points(self, points: Floats, values: Values, height: int, width: int) -> Floats:
        y, x, high, wide = self.window(values, height, width)
        # Reciprocals instead of division keep the boxes' established bits.
        down, across = 1.0 / high, 1.0 / wide
        return points * (height * down, width * across) + (-y * down, -x * across)


@dataclass(frozen=True)
class RandomResizedCrop(Crop):
    """Cuts a random part of the image and resizes it to `size` (Szegedy et al. 2014, as torchvision).

    `area` is the part's share of the pixels, uniform; `aspect` its width by its height, log-uniform. Sides longer than
    the image's are shortened to it, without another draw.
    """

    lanes: ClassVar[int] = 4
    numbers: ClassVar[int] = 4
    scales: ClassVar[bool] = True
    area: base.Area = (0.08, 1.0)
    aspect: base.Aspect = (3 / 4, 4 / 3)

    def draw(self, uniforms: Floats) -> Floats:
        return base.draw_part(self.area, self.aspect, uniforms)

    def window(self, values: Values, height: int, width: int) -> Window:
        return base.part_window(values, height, width)


@dataclass(frozen=True)
class RandomCrop(Crop):
    """Cuts a part of `size` at a random place, after adding `pad` zeros on every side; centres a smaller image."""

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    pad: Annotated[int, base.number(Real, 0, math.inf, "pixels, 0 for none")] = 0

    def window(self, values: Values, height: int, width: int) -> Window:
        def start(value: float, side: int, size: int) -> int:
            canvas = max(side + 2 * self.pad, size)
            return math.floor(value * (canvas - size + 1)) - math.floor((canvas - side) * 0.5)

        high, wide = self.sides
        return Window(start(values[0], height, high), start(values[1], width, wide), high, wide)


@dataclass(frozen=True)
class CenterCrop(Crop):
    """Cuts the middle, of `size`; centres a smaller image in zeros."""

    def window(self, values: Values, height: int, width: int) -> Window:
        """Leaves the larger half of an odd margin below and to the right."""
        high, wide = self.sides
        return Window(math.floor((height - high) * 0.5), math.floor((width - wide) * 0.5), high, wide)


@dataclass(frozen=True)
class Resize(Crop):
    """Stretches the whole image to `size`."""

    scales: ClassVar[bool] = True

    def window(self, values: Values, height: int, width: int) -> Window:
        return Window(0, 0, height, width)


@dataclass(frozen=True)
class RandomFlip(Movement):
    """Mirrors the image: left and right with probability `horizontal`, top and bottom with `vertical`."""

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    horizontal: base.Share = 0.5
    vertical: base.Share = 0.0

    def draw(self, uniforms: Floats) -> Floats:
        """Returns 1 to mirror, else 0: horizontally, vertically."""
        return (uniforms < [self.horizontal, self.vertical]).astype(np.float64)

    def acts(self, values: Values) -> bool:
        return any(values)

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None, *, mask: bool = False) -> Pixels:
        horizontal, vertical = values[0] > 0, values[1] > 0
        out = base.memory(out, pixels.shape, pixels.dtype)
        if opencv.takes(pixels):
            opencv.cv2.flip(pixels, -1 if horizontal and vertical else int(horizontal), dst=out)
        else:
            out[...] = pixels[:: -1 if vertical else 1, :: -1 if horizontal else 1]
        return out

    def move_points(self, points: Floats, values: Values, height: int, width: int) -> Floats:
        """Maps a mirrored point p to 1 - p."""
        horizontal, vertical = values[0], values[1]
        return points * (1.0 - 2.0 * vertical, 1.0 - 2.0 * horizontal) + (vertical, horizontal)

    def mirrors(self, values: Values) -> bool:
        return values[0] != values[1]  # both are half a turn


@dataclass(frozen=True)
class RandomRotation90(Movement):
    """Turns the image, with probability `p`, by 90, 180 or 270 degrees with equal chances.

    Other than square images turn by 180 degrees, to keep their size.
    """

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 1
    p: base.Share = 0.75

    def draw(self, uniforms: Floats) -> Floats:
        """Returns quarter turns, 0 to 3, of a square image."""
        return (uniforms[:, :1] < self.p) * (1.0 + np.floor(uniforms[:, 1:] * 3.0))

    def acts(self, values: Values) -> bool:
        return values[0] > 0

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None, *, mask: bool = False) -> Pixels:
        quarters = self._quarters(values, *pixels.shape[:2])
        pixels = pixels.copy() if pixels is out else pixels
        out = base.memory(out, pixels.shape, pixels.dtype)
        if opencv.takes(pixels):  # 0 is a quarter clockwise, 1 a half, 2 a quarter counterclockwise
            opencv.cv2.rotate(pixels, 3 - quarters, dst=out)
        else:
            out[...] = np.rot90(pixels, quarters)
        return out

    def move_points(self, points: Floats, values: Values, height: int, width: int) -> Floats:
        """Transposes at odd turns, then mirrors: top and bottom at 1 and 2, left and right at 2 and 3."""
        quarters = self._quarters(values, height, width)
        down, across = float(quarters in (1, 2)), float(quarters in (2, 3))
        points = points[:, ::-1] if quarters % 2 else points
        return points * (1.0 - 2.0 * down, 1.0 - 2.0 * across) + (down, across)

    @staticmethod
    def _quarters(values: Values, height: int, width: int) -> int:
        """Returns counterclockwise quarter turns for this size: 1 to 3; 2 if not square."""
        return int(values[0]) if height == width else 2
