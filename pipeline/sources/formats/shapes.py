"""Shapes of objects, checked as the column `shapes` holds them: polygons, and run lengths as COCO writes them."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from recordmill.transforms.contract.run_lengths import decode

ELLIPSE_CORNERS = 64  # at most 0.12 % of the radius inside the circle
LEAST_NUMBERS = 6  # of a polygon: x and y of three corners
Polygon = Sequence[float]
"""x and y of each corner, in turn."""


def finite(values: Any) -> list[float]:
    """Converts a list of finite numbers to floats. Raises: ValueError: another value."""
    try:
        if isinstance(values, list) and all(map(math.isfinite, values)):
            return list(map(float, values))
    except (TypeError, OverflowError):
        pass
    raise ValueError("wanted a list of finite numbers")


def polygons_of(value: Any) -> list[list[float]]:
    """Checks a list of polygons. Raises: ValueError: a polygon's fault."""
    polygons = list(map(finite, value))
    for polygon in polygons:
        if len(polygon) % 2 or len(polygon) < LEAST_NUMBERS:
            raise ValueError(f"wanted x and y of three corners or more in a polygon, found {len(polygon)} numbers")
    return polygons


def checked_runs(value: dict[str, Any]) -> tuple[int, int]:
    """Returns height and width of COCO's run lengths. Raises: ValueError: they do not add up to it."""
    size, counts = value.get("size"), value.get("counts")
    if not isinstance(size, list) or [type(side) for side in size] != [int, int] or min(size) < 1:
        raise ValueError("wanted height and width in the `size` of run lengths")
    if not isinstance(counts, str) and not (isinstance(counts, list) and {*map(type, counts)} <= {int}):
        raise ValueError("wanted a text or whole numbers in `counts`")
    found = decode(counts).tolist() if isinstance(counts, str) else counts
    if min(found, default=0) < 0 or sum(found) != size[0] * size[1]:
        raise ValueError(f"`counts` add up to {sum(found)} pixels, and `size` is {size[0]} x {size[1]}")
    return size[0], size[1]


def corners(polygons: Iterable[Polygon]) -> list[float]:
    """Returns x_min, y_min, x_max, y_max of one polygon or more."""
    sides = list(chain.from_iterable(polygons))
    return [min(sides[::2]), min(sides[1::2]), max(sides[::2]), max(sides[1::2])]


def rectangle(left: float, top: float, right: float, bottom: float) -> list[float]:
    """Returns a box as a polygon."""
    return [left, top, right, top, right, bottom, left, bottom]


def ellipse(x: float, y: float, across: float, down: float, turn: float = 0) -> list[float]:
    """Returns an ellipse, by center, radii and radians, as a polygon of `ELLIPSE_CORNERS`, with its four ends."""
    angles = (2 * math.pi * corner / ELLIPSE_CORNERS for corner in range(ELLIPSE_CORNERS))
    ends = ((across * math.cos(angle), down * math.sin(angle)) for angle in angles)
    cos, sin = math.cos(turn), math.sin(turn)
    return [each for u, v in ends for each in (x + u * cos - v * sin, y + u * sin + v * cos)]
