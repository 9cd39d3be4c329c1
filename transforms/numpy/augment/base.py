"""The base classes of augmentations, with shared windows, boxes and memory.

An augmentation is one class: its options, its draws and its work on pixels. Values that depend on an image's size, such
as a crop's start, follow from its draws by exactly rounded operations (+, -, *, /, root, floor in float64): every
machine takes the same pixels.

>>> overlap(-2, 5, 10)
(0, 3, 2)

Boxes and key points on an image move with it:

>>> eyes = np.array([[[0.5, 0.25, 2], [0.5, 0.5, 1]]], np.float32)  # one object: left, right
>>> moved = MovedKeypoints(eyes, [1, 0])
>>> moved.move(RandomFlip(), (1.0, 0.0), 10, 10)  # doctest: +SKIP
>>> moved.put()  # doctest: +SKIP
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.contract.image_rules import luma

Floats: TypeAlias = npt.NDArray[np.float64]
Pixels: TypeAlias = npt.NDArray[np.uint8]
Values: TypeAlias = Sequence[float]  # one image's parameters, `numbers` of them
Fill: TypeAlias = int | tuple[int, int, int]  # one level for all channels, or red, green, blue
Shape: TypeAlias = tuple[int | None, int | None, int]  # height, width and channels; None: depends on the image
Acting: TypeAlias = "tuple[Augmentation, Values]"  # a change and its parameters
UNIT = 1024.0  # factors and shares are integers of 1/1024: their sums with pixels are exact in float32
ABOVE_0, LARGEST = math.ulp(0.0), sys.float_info.max


@dataclass(frozen=True)
class Augmentation(ABC):
    """A change of one image that moves no pixel. Raises: ValueError: an option is out of range."""

    resizes: ClassVar[bool] = False  # the result has a fixed size

    @property
    def lanes(self) -> int:
        """The random numbers of an image; classes with a fixed number declare it as a `ClassVar`."""
        return 0

    @property
    def numbers(self) -> int:
        """The parameters that `draw` makes."""
        return 0

    def draw(self, uniforms: Floats) -> Floats:
        """Makes parameters, float64 [rows, numbers], from random numbers, float64 [rows, lanes] in [0, 1)."""
        return uniforms

    def acts(self, values: Values) -> bool:
        """Whether these parameters change an image."""
        return True

    def inside(self, values: Values) -> Iterable[Acting]:
        """Returns the acting changes with these parameters: itself, or those of a group."""
        return [(self, values)] if self.acts(values) else []

    @abstractmethod
    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Changes pixels, uint8 [height, width, c], c of 1 or 3, with any strides, by the image's values.

        `out` is memory for the result, checked by `memory`, possibly `pixels`, which is else never written to. Returns
        `out`, or another array of the result's shape, such as a view of `pixels`.
        """

    def output_shape(self, shape: Shape) -> Shape:
        """Returns the result's shape."""
        return shape


@dataclass(frozen=True)
class Movement(Augmentation):
    """A change that moves pixels, with masks, boxes and key points."""

    @abstractmethod
    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None, *, mask: bool = False) -> Pixels:
        """Moves pixels; those of a `mask`, class ids or other values that are not colours, keep their values."""

    @abstractmethod
    def move_points(self, points: Floats, values: Values, height: int, width: int) -> Floats:
        """Moves points of an image of this size, float64 [n, 2], y, x, 0 to 1; results may lie outside."""

    def mirrors(self, values: Values) -> bool:
        """Whether the result is a mirror image, where left and right change their meaning."""
        return False

    def move_boxes(self, boxes: Floats, values: Values, height: int, width: int) -> Floats:
        """Returns the upright boxes around moved corners, clipped: float64 [n, 4], y_min, x_min, y_max, x_max."""
        corners = boxes[:, [0, 1, 0, 3, 2, 1, 2, 3]].reshape(-1, 2)
        moved = np.clip(self.move_points(corners, values, height, width), 0, 1).reshape(-1, 4, 2)
        return np.concatenate([moved.min(1), moved.max(1)], 1)


NEAR = 2.0**-20  # a share of the image: rounding moves what touches an edge by about a billionth


class MovedBoxes:
    """Boxes, y_min, x_min, y_max, x_max, 0 to 1; those without area become zeros."""

    def __init__(self, boxes: npt.NDArray[np.floating[Any]]) -> None:
        """Takes floats [n, 4], to be overwritten."""
        self._boxes, self._moved = boxes, np.clip(boxes.astype(np.float64), 0, 1)

    def move(self, change: Movement, values: Values, height: int, width: int) -> None:
        """Moves them with an image of this size by a change with these parameters."""
        self._moved = change.move_boxes(self._moved, values, height, width)

    def put(self) -> None:
        """Writes them back."""
        kept = self._moved.astype(np.float32)
        kept[(kept[:, 2:] - kept[:, :2] < NEAR).any(1)] = 0
        self._boxes[...] = kept


class MovedKeypoints:
    """Key points, y, x, visibility; those that leave the image, and invisible ones, become zeros."""

    def __init__(self, points: npt.NDArray[np.float32], partners: Sequence[int]) -> None:
        """Takes float32 [n, points, 3], to be overwritten, and the index of each one's partner in a mirror."""
        self._points, self._moved, self._partners = points, points.astype(np.float64), partners

    def move(self, change: Movement, values: Values, height: int, width: int) -> None:
        """Moves them as `MovedBoxes` does."""
        places = change.move_points(self._moved[..., :2].reshape(-1, 2), values, height, width)
        places = places.reshape(*self._moved.shape[:2], 2)
        inside = ((places >= -NEAR) & (places <= 1 + NEAR)).all(-1, keepdims=True)
        self._moved[..., :2] = np.clip(places, 0, 1)
        self._moved *= inside
        if change.mirrors(values):
            self._moved = self._moved[:, self._partners]

    def put(self) -> None:
        """Writes them back."""
        self._points[...] = self._moved * (self._moved[..., 2:] > 0)


Lying: TypeAlias = MovedBoxes | MovedKeypoints
"""Places on an image, on their way through its changes."""


class Window(NamedTuple):
    """A rectangle of pixels; outside the image it has zeros."""

    y: int
    x: int
    height: int
    width: int


class ImagePart(NamedTuple):
    """Some pixels of an image, uint8 [h, w, c], covering a crop's window."""

    pixels: Pixels
    y: int  # their first row in the image
    x: int  # their first column
    height: int  # image's height in pixels
    width: int
    window: Window  # crop's window in the image


def overlap(start: int, length: int, side: int) -> tuple[int, int, int]:
    """Returns a window's overlap with one side of an image: first pixel, end, and the number of zeros before."""
    if 0 <= start <= side - length:  # the usual case
        return start, start + length, 0
    return min(max(start, 0), side), min(max(start + length, 0), side), min(max(-start, 0), length)


def window_around(center: Values, sides: tuple[int, int], height: int, width: int) -> Window:
    """Returns a rectangle around a point, y and x of 0 to 1, cut off at the image's edge."""
    y, bottom, _ = overlap(math.floor(center[0] * height - sides[0] * 0.5 + 0.5), sides[0], height)
    x, right, _ = overlap(math.floor(center[1] * width - sides[1] * 0.5 + 0.5), sides[1], width)
    return Window(y, x, bottom - y, right - x)


def memory(out: Pixels | None, shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> Pixels:
    """Returns the result's memory; with a wrong shape, OpenCV would silently leave it unchanged."""
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape:
        raise ValueError(f"the image's result has the shape {shape}, the memory for it {out.shape}")
    return out


def copied(pixels: Pixels, out: Pixels | None = None) -> Pixels:
    """Copies an image, unless it already is the result's memory."""
    out = memory(out, pixels.shape, pixels.dtype)
    if out is not pixels:
        np.copyto(out, pixels)
    return out


def as_pair(value: Any) -> tuple[Any, Any]:
    """Returns a number twice, and anything else unchanged."""
    return (value, value) if isinstance(value, Real) else value  # type: ignore[return-value] # `check_pair` looks


def check_shares(augmentation: Augmentation, **options: float) -> None:
    """Refuses numbers outside of 0 to 1. Raises: ValueError."""
    for name, value in options.items():
        if not isinstance(value, Real) or not 0 <= value <= 1:
            raise ValueError(f"{augmentation}: {name} is {value!r}; give a number of 0 to 1")


def check_pair(augmentation: Augmentation, name: str, value: Any, example: str) -> None:
    """Refuses anything but two real numbers, in a tuple or a list. Raises: ValueError."""
    if not _is_pair(value):
        raise ValueError(f"{augmentation}: {name} is {value!r}; give two numbers, such as {example}")


def check_range(augmentation: Augmentation, name: str, value: Any, least: float, most: float, words: str) -> None:
    """Refuses anything but two numbers, `least <= first <= last <= most`, as `words` describe. Raises: ValueError."""
    if not (_is_pair(value) and least <= value[0] <= value[1] <= most):
        given = f"{augmentation}: {name} is {getattr(augmentation, name)!r}"
        raise ValueError(f"{given}; give two numbers, (least, most) {words}")


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(number, Real) for number in value)


def drawn(span: tuple[float, float], uniforms: Floats) -> Floats:
    """Draws from (least, most)."""
    least, most = span
    return least + (most - least) * uniforms


def rounded(numbers: Floats, unit: float = UNIT) -> Floats:
    """Rounds to integers of 1/unit."""
    return np.rint(numbers * unit) / unit


def check_size(augmentation: Augmentation, size: Any) -> None:
    """Refuses an invalid size in pixels. Raises: ValueError."""
    sides = size if isinstance(size, tuple) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ValueError(f"{augmentation}: the size must be in pixels, such as 224, or (192, 256)")


def check_fill(augmentation: Augmentation, fill: Any) -> None:
    """Refuses anything but a level or a colour. Raises: ValueError."""
    levels = fill if isinstance(fill, tuple) else (fill, fill, fill)
    if len(levels) != 3 or not all(isinstance(level, int) and 0 <= level <= 255 for level in levels):
        raise ValueError(f"{augmentation}: fill is {fill}; give a level, 0 to 255, or three: red, green, blue")


def fill_levels(fill: Fill, channels: int) -> list[int]:
    """Returns each channel's level; a grey image gets a colour's luma."""
    if isinstance(fill, int):
        return [fill] * channels
    return list(fill) if channels == 3 else [luma(*fill)]


def check_part(augmentation: Augmentation, area: tuple[float, float], aspect: tuple[float, float]) -> None:
    """Refuses invalid ranges of shares or ratios. Raises: ValueError."""
    check_range(augmentation, "area", area, ABOVE_0, 1, "of 0 to 1, such as (0.08, 1)")
    check_range(augmentation, "aspect", aspect, ABOVE_0, LARGEST, "above 0, such as (0.75, 1.33)")


def draw_part(area: tuple[float, float], aspect: tuple[float, float], uniforms: Floats) -> Floats:
    """Draws parts, float64 [rows, 4], from random numbers, float64 [rows, 4].

    A row has a part's height and width relative to the root of the image's area, and its offsets as shares of the room.
    """
    share = drawn(area, uniforms[:, 0])
    ratio = np.exp(drawn((math.log(aspect[0]), math.log(aspect[1])), uniforms[:, 1]))
    return np.column_stack([np.sqrt(share / ratio), np.sqrt(share * ratio), uniforms[:, 2:]])


def part_window(values: Values, height: int, width: int) -> Window:
    """Returns a part's window inside the image; sides are rounded half up, to at least 1."""
    root = math.sqrt(height * width)
    high = min(max(math.floor(values[0] * root + 0.5), 1), height)
    wide = min(max(math.floor(values[1] * root + 0.5), 1), width)
    y = math.floor(values[2] * (height - high + 1))
    return Window(y, math.floor(values[3] * (width - wide + 1)), high, wide)
