"""Windows and points of an image, in exactly rounded operations: the same pixels on every machine.

>>> overlap(-2, 5, 10)
(0, 3, 2)
"""

import math
from typing import NamedTuple

LEAST_SIDE = 2.0**-20
"""The least side of a box, as a share of the image: a box that only touches a window may be a billionth wide."""


class Window(NamedTuple):
    """A rectangle of pixels; it may reach beyond the image, and has zeros there."""

    y: int
    x: int
    height: int
    width: int


class Move(NamedTuple):
    """A map of points: y and x, each 0 to 1, are swapped where `swap`; then each is `scale * point + shift`."""

    swap: bool = False
    scale_y: float = 1.0
    scale_x: float = 1.0
    shift_y: float = 0.0
    shift_x: float = 0.0


def overlap(start: int, length: int, side: int) -> tuple[int, int, int]:
    """Gives where a window meets one side of an image: the first pixel, the end, and how many zeros come before."""
    first, end = (min(max(edge, 0), side) for edge in (start, start + length))
    return first, end, min(max(-start, 0), length)


def around(center: float, length: int, side: int) -> tuple[int, int]:
    """Gives the first pixel, and how many, of a length around a point, 0 to 1, cut off at an image's ends."""
    first, end, _ = overlap(math.floor(center * side - length * 0.5 + 0.5), length, side)
    return first, end - first
