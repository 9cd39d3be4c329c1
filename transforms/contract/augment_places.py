"""Where windows and points of a picture are: one formula for both engines' numbers.

An engine gives its own exactly rounded functions: those of Python's numbers, or of TensorFlow's float64. The same
operations in the same order come to the same pixels.

>>> overlap(-2, 5, 10, PYTHON)
(0, 3, 2)
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Number: TypeAlias = Any
"""A number of Python's, or a float64 tensor: a scalar, or one a row."""


LEAST_SIDE = 2.0**-20
"""Of the picture: a box that is thinner has no area. What only touches a window's edge may be a billionth wide."""


class Arithmetic(NamedTuple):
    """The exactly rounded functions of an engine's numbers."""

    floor: Callable[[Number], Number]
    sqrt: Callable[[Number], Number]
    least: Callable[[Number, Number], Number]
    most: Callable[[Number, Number], Number]
    choose: Callable[[Any, Number, Number], Number]
    """Of a condition and two numbers, the first where it holds."""


PYTHON = Arithmetic(math.floor, math.sqrt, min, max, lambda condition, yes, no: yes if condition else no)


class Window(NamedTuple):
    """A rectangle of pixels, whole numbers; it may reach beyond the picture, and has zeros there."""

    y: Number
    x: Number
    height: Number
    width: Number


class Move(NamedTuple):
    """Where points go: y and x, each 0 to 1, are swapped where `swap` is 1; then each is `scale * point + shift`."""

    swap: Number = 0.0
    scale_y: Number = 1.0
    scale_x: Number = 1.0
    shift_y: Number = 0.0
    shift_x: Number = 0.0


def overlap(start: Number, length: Number, side: Number, of: Arithmetic) -> tuple[Number, Number, Number]:
    """Gives where a window meets one side of a picture: the first pixel, the end, and how many zeros come before."""
    first, end = (of.least(of.most(place, 0), side) for place in (start, start + length))
    return first, end, of.least(of.most(-start, 0), length)


def around(center: Number, length: Number, side: Number, of: Arithmetic) -> tuple[Number, Number]:
    """Gives the first pixel, and how many, of a length around a point, 0 to 1, cut off at a picture's ends."""
    first, end, _ = overlap(of.floor(center * side - length * 0.5 + 0.5), length, side, of)
    return first, end - first
