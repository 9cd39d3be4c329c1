"""The base classes of augmentations, with shared windows, boxes and memory.

An augmentation is one class: its options, its draws and its work on pixels. Values that depend on an image's size, such
as a crop's start, follow from its draws by exactly rounded operations (+, -, *, /, root, floor in float64): every
machine takes the same pixels. Boxes and key points on an image move with it.

>>> overlap(-2, 5, 10)
(0, 3, 2)
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.images.image_rules import luma

Floats: TypeAlias = npt.NDArray[np.float64]
Pixels: TypeAlias = npt.NDArray[np.uint8]
Values: TypeAlias = Sequence[float]  # one image's parameters, `numbers` of them
Shape: TypeAlias = tuple[int | None, int | None, int]  # height, width and channels; None: depends on the image
Acting: TypeAlias = "tuple[Augmentation, Values]"  # a change and its parameters
UNIT = 1024.0  # factors and shares are integers of 1/1024: their sums with pixels are exact in float32
ABOVE_0, LARGEST = math.ulp(0.0), sys.float_info.max
Check: TypeAlias = Callable[[Any], str | None]  # of an option's value: what to give instead of a wrong one


def number(kind: Any, least: float, most: float, wanted: str) -> Check:
    """Makes the check of a number of a kind, `least` to `most`; `wanted` describes it."""
    return lambda value: None if isinstance(value, kind) and least <= value <= most else wanted


def span(least: float, most: float, words: str, pair: Callable[[Any], Any] = lambda value: value) -> Check:
    """Makes the check of two rising numbers, `least` to `most`, as `words` describe; `pair` makes two of one."""

    def check(value: Any) -> str | None:
        both = pair(value)
        is_pair = isinstance(both, tuple | list) and len(both) == 2 and all(isinstance(each, Real) for each in both)
        return None if is_pair and least <= both[0] <= both[1] <= most else f"two numbers, (least, most) {words}"

    return check


def _check_sides(size: Any) -> str | None:
    sides = size if isinstance(size, tuple) else (size, size)
    is_size = len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides)
    return None if is_size else "the size in pixels, such as 224, or (192, 256)"


def check_fill(fill: Any) -> str | None:
    """Checks a level or a colour."""
    levels = fill if isinstance(fill, tuple) else (fill, fill, fill)
    is_fill = len(levels) == 3 and all(isinstance(level, int) and 0 <= level <= 255 for level in levels)
    return None if is_fill else "a level, 0 to 255, or three: red, green, blue"


check_share = number(Real, 0, 1, "a number of 0 to 1")
Share: TypeAlias = Annotated[float, check_share]
Size: TypeAlias = Annotated[int | tuple[int, int], _check_sides]  # in pixels: height and width, or one for both
Fill: TypeAlias = Annotated[int | tuple[int, int, int], check_fill]  # for all channels, or red, green, blue
Area: TypeAlias = Annotated[tuple[float, float], span(ABOVE_0, 1, "of 0 to 1, such as (0.08, 1)")]
Aspect: TypeAlias = Annotated[tuple[float, float], span(ABOVE_0, LARGEST, "above 0, such as (0.75, 1.33)")]


@dataclass(frozen=True)
class Checked:
    """Options; the type of each may be annotated with its `Check`. Raises: ValueError: an option is out of range."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            for check in getattr(each.type, "__metadata__", ()):
                if wanted := check(value):
                    raise ValueError(f"{self}: {each.name} is {value!r}; give {wanted}")


@dataclass(frozen=True)
class Augmentation(Checked, ABC):
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
        it, or another array of the result's shape, such as a view of `pixels`.
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


NEAR = 2.0**-20  # a share of the image: rounding moves what touches an edge by about a billionth


class MovedBoxes:
    """Boxes, y_min, x_min, y_max, x_max, 0 to 1; those without area become zeros."""

    def __init__(self, boxes: npt.NDArray[np.floating[Any]]) -> None:
        """Takes floats [n, 4], to be overwritten."""
        self._boxes, self._moved = boxes, np.clip(boxes.astype(np.float64), 0, 1)

    def move(self, change: Movement, values: Values, height: int, width: int) -> None:
        """Moves them with an image of this size by a change with these parameters: around moved corners, clipped."""
        self._moved[(self._moved[:, 2:] - self._moved[:, :2] < NEAR).any(1)] = 0  # a turn would widen a line
        corners = self._moved[:, [0, 1, 0, 3, 2, 1, 2, 3]].reshape(-1, 2)
        moved = np.clip(change.move_points(corners, values, height, width), 0, 1).reshape(-1, 4, 2)
        self._moved = np.concatenate([moved.min(1), moved.max(1)], 1)

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


Lying: TypeAlias = MovedBoxes | MovedKeypoints  # places on an image, on their way through its changes


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
    return (value, value) if isinstance(value, Real) else value  # type: ignore[return-value] # a `Check` looks


def drawn(limits: tuple[float, float], uniforms: Floats) -> Floats:
    """Draws from (least, most)."""
    least, most = limits
    return least + (most - least) * uniforms


def rounded(numbers: Floats, unit: float = UNIT) -> Floats:
    """Rounds to integers of 1/unit."""
    return np.rint(numbers * unit) / unit


def fill_levels(fill: Fill, channels: int) -> list[int]:
    """Returns each channel's level; a grey image gets a colour's luma."""
    if isinstance(fill, int):
        return [fill] * channels
    return list(fill) if channels == 3 else [luma(*fill)]


def draw_part(area: tuple[float, float], aspect: tuple[float, float], uniforms: Floats) -> Floats:
    """Draws a part's sides, by the root of the image's area, and offsets, as shares of the room: float64 [rows, 4]."""
    share = drawn(area, uniforms[:, 0])
    ratio = np.exp(drawn((math.log(aspect[0]), math.log(aspect[1])), uniforms[:, 1]))
    return np.column_stack([np.sqrt(share / ratio), np.sqrt(share * ratio), uniforms[:, 2:]])


def part_window(values: Values, height: int, width: int) -> Window:
    """Returns a part's window inside the image; sides are rounded half up, to at least 1."""
    root = math.sqrt(height * width)
    high = min(max(math.floor(values[0] * root + 0.5), 1), height)
    wide = min(max(math.floor(values[1] * root + 0.5), 1), width)
    return Window(math.floor(values[2] * (height - high + 1)), math.floor(values[3] * (width - wide + 1)), high, wide)
