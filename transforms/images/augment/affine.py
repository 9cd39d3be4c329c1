"""Rotation by any angle, and affine maps: each result pixel is interpolated between four of the image.

Positions are integers of 1/1024 pixel, then of 1/32: OpenCV and NumPy give the same level.

>>> affine_numbers(np.cos(np.zeros(1)), 0, 0, 1)  # a, b, c, d; shifts; centre
array([[1. , 0. , 0. , 1. , 0. , 0. , 0. , 0. , 0.5]])
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.images import opencv
from recordmill.transforms.images.augment import base
from recordmill.transforms.images.augment.base import Fill, Floats, Movement, Pixels, Values

UNIT = 2.0**20  # a map's numbers are integers of 1/UNIT: the last bit of a cosine varies by machine
OPENCV_SIDE = 32_766  # the longest side, in pixels, that OpenCV maps
Whole = npt.NDArray[np.int32 | np.int64]


def affine_numbers(
    a: Any, b: Any, c: Any, d: Any, *, shares: Any = (0.0, 0.0), pixels: Any = (0.0, 0.0), center: float = 0.5
) -> Floats:
    """Makes maps from the result to the image, float64 [rows, 9]: x becomes a x + b y, y becomes c x + d y.

    At least one of a, b, c, d is float64 [rows]. `shares` move right and down by shares of width and height, `pixels`
    add pixels; `center` is the origin of x and y, as a share of both sides.
    """
    turned = (base.rounded(np.asarray(each), UNIT) for each in (a, b, c, d))
    return np.column_stack(np.broadcast_arrays(*turned, *shares, *pixels, center))


class Affine(Movement):
    """A movement by `affine_numbers`; it keeps the image's size, and fills uncovered areas with `fill`."""

    numbers: ClassVar[int] = 9
    fill: Fill

    @abstractmethod
    def draw(self, uniforms: Floats) -> Floats:
        """Makes `affine_numbers` from random numbers."""

    def acts(self, values: Values) -> bool:
        return tuple(values[:8]) != (1, 0, 0, 1, 0, 0, 0, 0)

    def linear(self, values: Values, height: int, width: int) -> tuple[float, float, float, float]:
        a, b, c, d = values[:4]
        return a, b, c, d

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None, *, mask: bool = False) -> Pixels:
        """Interpolates each pixel between four, by their distances; in a mask takes the nearest, 0 outside."""
        pixels = pixels.copy() if pixels is out else pixels
        out = base.memory(out, pixels.shape, pixels.dtype)
        height, width, channels = pixels.shape
        x, y = self._positions(values, height, width)
        if mask:
            out[...] = _at(_framed(pixels, 0), (x + 16) >> 5, (y + 16) >> 5)
            return out
        fill = base.fill_levels(self.fill, channels)
        if opencv.takes(pixels) and max(height, width) <= OPENCV_SIDE:
            first = np.empty((*x.shape, 2), np.int16)
            for position, side, axis in ((x, width, 0), (y, height, 1)):
                np.clip(position >> 5, -2, side, out=first[..., axis], casting="unsafe")
            rest = y & 31
            rest <<= 5
            rest |= x & 31
            way, border = opencv.cv2.INTER_LINEAR, opencv.cv2.BORDER_CONSTANT
            opencv.cv2.remap(pixels, first, rest.astype(np.uint16), way, dst=out, borderMode=border, borderValue=fill)
            return out
        # Sums of four pixels by their shares, integers of 1/1024; whole pixels are rounded half up.
        framed = _framed(pixels, fill)
        is_whole = pixels.dtype != np.float32
        sums: Any = np.full(out.shape, 512, np.int32) if is_whole else np.zeros(out.shape)
        for down, rows in ((0, 32 - (y & 31)), (1, y & 31)):
            for right, columns in ((0, 32 - (x & 31)), (1, x & 31)):
                sums += _at(framed, (x >> 5) + right, (y >> 5) + down) * (rows * columns)[..., np.newaxis]
        out[...] = sums >> 10 if is_whole else sums / 1024
        return out

    def _positions(self, values: Values, height: int, width: int) -> tuple[Whole, Whole]:
        """Returns x and y of each result pixel, a x + b y + left, c x + d y + top, in 1/32 pixel, [height, width]."""
        a, b, c, d = self.linear(values, height, width)
        x, y, right, down = _center(values, height, width)
        from_x, from_y = 0.5 - x - right, 0.5 - y - down
        left, top = a * from_x + b * from_y + x - 0.5, c * from_x + d * from_y + y - 0.5
        dtype = np.int32 if max(height, width) <= 1 << 14 else np.int64
        columns, rows = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)

        def along(of_x: float, of_y: float, start: float) -> Whole:
            of_row, of_column = (np.rint(each * 1024.0).astype(dtype) for each in (of_y * rows + start, of_x * columns))
            position: Whole = np.add.outer(of_row + 16, of_column)
            return np.right_shift(position, 5, out=position)

        return along(a, b, left), along(c, d, top)

    def move_points(self, points: Floats, values: Values, height: int, width: int) -> Floats:
        a, b, c, d = self.linear(values, height, width)
        center_x, center_y, right, down = _center(values, height, width)
        x, y = points[:, 1] * width - center_x, points[:, 0] * height - center_y
        area = 1.0 / (a * d - b * c)
        across = ((d * x - b * y) * area + (center_x + right)) / width
        along = ((a * y - c * x) * area + (center_y + down)) / height
        return np.column_stack([along, across])


def _center(values: Values, height: int, width: int) -> tuple[float, float, int, int]:
    """Returns the centre's x and y, and the shift right and down, truncated to pixels."""
    right, down = values[4] * width + values[6], values[5] * height + values[7]
    return values[8] * width, values[8] * height, math.trunc(right), math.trunc(down)


def _framed(pixels: Pixels, fill: int | list[int]) -> Pixels:
    """Puts one filled pixel around an image."""
    height, width, channels = pixels.shape
    framed = np.empty((height + 2, width + 2, channels), pixels.dtype)
    framed[...] = fill
    framed[1:-1, 1:-1] = pixels
    return framed


def _at(framed: Pixels, x: Whole, y: Whole) -> Pixels:
    """Returns the pixels at x and y; the frame's outside the image."""
    height, width, channels = framed.shape
    flat = np.clip(y + 1, 0, height - 1).astype(np.int64) * width + np.clip(x + 1, 0, width - 1)
    return framed.reshape(-1, channels).take(flat, 0)


def limits(span: Any) -> tuple[Any, Any]:
    """Returns -x and x for a number, and anything else unchanged."""
    return (-span, span) if isinstance(span, Real) else span  # type: ignore[return-value] # a `Check` looks


def _angles(most: float) -> base.Check:
    return base.span(-most, most, f"of {-most:g} to {most:g}, such as (-10, 10), or an angle, 0 to {most:g}", limits)


def _check_translate(value: Any) -> str | None:
    shares = base.as_pair(value)
    is_right = isinstance(shares, tuple | list) and len(shares) == 2 and not any(map(base.check_share, shares))
    return None if is_right else "two numbers of 0 to 1, such as (0.1, 0.2), or one, such as 0.1"


Turn: TypeAlias = Annotated[float | tuple[float, float], _angles(180.0)]
Corners: TypeAlias = Annotated[
    Literal["fill", "crop"], lambda value: None if value in ("fill", "crop") else "'fill' or 'crop'"
]


@dataclass(frozen=True)
class RandomRotation(Affine):
    """Turns the image by an angle of `degrees`: a number for -x to x, or (least, most), counterclockwise.

    The size stays. `corners="fill"` turns the whole image, cutting off and filling its corners; `corners="crop"` also
    enlarges it about its centre until no filled pixel shows.
    """

    lanes: ClassVar[int] = 1
    degrees: Turn
    corners: Corners = "fill"
    fill: Fill = 0

    def draw(self, uniforms: Floats) -> Floats:
        return turn_numbers(base.drawn(limits(self.degrees), uniforms[:, 0]))

    def linear(self, values: Values, height: int, width: int) -> tuple[float, float, float, float]:
        """Divides by the growth that puts a rectangle of the image's shape inside it."""
        a, b, c, d = values[:4]
        if self.corners == "fill":
            return a, b, c, d
        growth = abs(a) + abs(c) * max(height / width, width / height)
        return a / growth, b / growth, c / growth, d / growth


@dataclass(frozen=True)
class RandomAffine(Affine):
    """Turns, shifts, scales and shears the image about its centre, in one step, keeping its size.

    `degrees` and `shear` draw angles: a number for -x to x, or (least, most). `translate` is the greatest shift, 0 to
    1, as a share of height and width, or (height, width); `scale` a range of factors.
    """

    lanes: ClassVar[int] = 5
    degrees: Turn = 0.0
    translate: Annotated[float | tuple[float, float], _check_translate] = 0.0
    scale: Annotated[tuple[float, float], base.span(0.1, 10.0, "of 0.1 to 10, such as (0.9, 1.1)")] = (1.0, 1.0)
    shear: Annotated[float | tuple[float, float], _angles(45.0)] = 0.0
    fill: Fill = 0

    def draw(self, uniforms: Floats) -> Floats:
        angle, down, right, scale, shear = uniforms.T
        turn = np.deg2rad(base.drawn(limits(self.degrees), angle))
        slant, growth = np.tan(np.deg2rad(base.drawn(limits(self.shear), shear))), base.drawn(self.scale, scale)
        cosine, sine = np.cos(turn), np.sin(turn)
        linear = (cosine - slant * sine) / growth, -(sine + slant * cosine) / growth, sine / growth, cosine / growth
        most_down, most_right = base.as_pair(self.translate)
        return affine_numbers(*linear, shares=((2 * right - 1) * most_right, (2 * down - 1) * most_down))


def turn_numbers(degrees: Floats) -> Floats:
    """Makes the parameters of counterclockwise turns about the centre."""
    turn = np.deg2rad(degrees)
    return affine_numbers(np.cos(turn), -np.sin(turn), np.sin(turn), np.cos(turn))
