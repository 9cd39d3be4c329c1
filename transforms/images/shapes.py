"""Shapes of objects, checked: polygons, and run lengths of masks as COCO has them.

>>> run_lengths("52203").tolist()
[5, 2, 2, 2, 5]
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.base.bounds import POINTS

Ints: TypeAlias = npt.NDArray[np.int64]
LEAST = 6  # numbers of a polygon: x and y of three corners; of four, pycocotools makes a box
REMEDY = "write them by pycocotools' `mask.encode`, or polygons"
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
DIGITS = 6  # of 5 bits: 30 bits hold every count of pixels


class ShapeError(ValueError):
    """A shape's fault, in values and not in Python's words."""


def finite(values: Any) -> list[float]:
    """Converts a list of finite numbers to floats. Raises: ShapeError: another value."""
    try:
        if isinstance(values, list) and all(map(math.isfinite, values)):
            return list(map(float, values))
    except (TypeError, OverflowError):
        pass
    raise ShapeError("wanted a list of finite numbers")


def polygons_of(values: Any) -> list[list[float]]:
    """Checks a list of polygons, each x and y of its corners in turn. Raises: ShapeError: a polygon's fault."""
    if isinstance(values, list) and values and isinstance(values[0], (int, float)):
        raise ShapeError(f"wanted a list of polygons, found the number {values[0]}: write [[x, y, …]]")
    polygons = [finite(each) for each in values] if isinstance(values, list) else [finite(values)]
    for polygon in polygons:
        if len(polygon) < LEAST or len(polygon) % 2:
            raise ShapeError(f"wanted x and y of three corners or more in a polygon, found {len(polygon)} numbers")
    return polygons


def box_around(polygons: Iterable[Sequence[float]]) -> list[float]:
    """Returns x_min, y_min, x_max, y_max. Raises: ShapeError: no corner."""
    sides = list(chain.from_iterable(polygons))
    return [min(sides[::2]), min(sides[1::2]), max(sides[::2]), max(sides[1::2])]


def read_runs(rle: Mapping[str, Any]) -> tuple[tuple[int, int], Ints]:
    """Returns COCO's height and width, and counts, int64 [counts]. Raises: ShapeError; ImageError: `too_large`."""
    size, counts = rle.get("size"), rle.get("counts")
    if not isinstance(size, list) or [*map(type, size)] != [int, int] or min(size) < 1:
        raise ShapeError("wanted height and width in the `size` of run lengths")
    if not isinstance(counts, str) and not (isinstance(counts, list) and {*map(type, counts)} <= {int}):
        raise ShapeError("wanted a text or whole numbers in `counts`")
    POINTS.check(len(counts))
    found = run_lengths(counts).tolist() if isinstance(counts, str) else counts
    if min(found, default=0) < 0 or sum(found) != size[0] * size[1]:
        what = f"the `counts` add up to {sum(found)} pixels, and `size` is {size[0]} x {size[1]}"
        raise ShapeError(f"{what}: is `size` height, then width? {REMEDY}")
    return (size[0], size[1]), np.array(found, np.int64)


def counts_of_runs(runs: str, pixels: int) -> Ints:
    """Converts runs, each its first pixel from 1 and its length, to COCO's counts of an image of so many pixels.

    >>> counts_of_runs("2 3 7 1", 8).tolist()
    [1, 3, 2, 1, 1]

    Raises: ShapeError: no whole numbers, outside the image, or not one after another.
    ImageError: `too_large`: too long.
    """
    POINTS.check(runs.count(" "))
    if wrong := [word for word in runs.split() if not WHOLE.fullmatch(word)]:
        raise ShapeError(f"wanted whole numbers in `runs`, found '{wrong[0]}'")
    numbers = np.array(runs.split(), np.int64)
    if len(numbers) % 2:
        raise ShapeError(f"wanted pairs of a start and a length, found {len(numbers)} numbers")
    starts, lengths = numbers[::2], numbers[1::2]
    ends = starts + lengths - 1
    counts = np.diff(np.stack([starts - 1, ends], 1).ravel(), prepend=0, append=pixels)
    if (counts < 0).any():
        run = min(int(np.argmax(counts < 0)) // 2, len(ends) - 1)
        least = ends[run - 1] + 1 if run else 1
        raise ShapeError(f"the run {starts[run]} {lengths[run]} is not in the pixels {least} to {pixels}")
    return counts


def run_lengths(counts: str) -> Ints:
    """Decodes compressed counts, int64 [counts], of pixels outside and inside in turn, down a mask's columns.

    Each has digits of 5 bits, low ones first; from the fourth on it is the difference to the one before the last.
    Raises: ShapeError: damaged.
    """
    codes = np.frombuffer(counts.encode("utf-8", "replace"), np.uint8).astype(np.int64) - 48
    last = np.flatnonzero(codes & 32 == 0)
    size = np.diff(last, prepend=-1)
    if size.sum() < len(codes) or size.max(initial=0) > DIGITS or not ((codes >= 0) & (codes < 64)).all():
        raise ShapeError(f"the compressed `counts` are damaged: {REMEDY}")
    first = last + 1 - size
    places = 5 * (np.arange(len(codes)) - np.repeat(first, size))
    found = np.add.reduceat((codes & 31) << places, first) if len(codes) else codes
    found -= (codes[last] & 16 > 0).astype(np.int64) << 5 * size  # negative ones
    for start in (1, 2):
        found[start::2] = found[start::2].cumsum()
    return found
