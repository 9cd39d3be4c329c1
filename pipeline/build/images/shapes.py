"""Shapes of objects drawn into a mask by `pycocotools`: polygons, and run lengths, compressed or not.

A row's shapes are a list of objects: `name`; `polygons`, lists of x and y in pixels, or with `unit: relative` as shares
of the sides; or `rle`, COCO's run lengths; `crowd`, 1 for a group. An object without a shape keeps its number.
"""

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.image_header import ImageError
from recordmill.transforms.contract.kinds.mask import LEVELS, MaskOptions

Values: TypeAlias = npt.NDArray[np.uint8]
MARGIN = 2  # sides around the image: for polygons further outside, pycocotools takes memory without a limit
LEAST = 6  # numbers of a polygon; of four, pycocotools makes a box
DIGITS = 6  # of 5 bits: 30 bits hold every count of pixels


def drawn(shapes: bytes, options: MaskOptions, height: int, width: int) -> Values:
    """Draws a row's shapes, JSON, in order: uint8 [height, width], 0 where none is.

    Raises: ImageError: `malformed_row`: not shapes, or not of this size; `unknown_class`: a name without a value, or a
    crowd without the value `ignore`; `too_large`: too many objects for numbers.
    """
    canvas = np.zeros((height, width), np.uint8, order="F")  # as pycocotools' masks
    known = {name: value for value, name in options.classes or ()}
    for number, shape in enumerate(json.loads(shapes), 1):
        try:
            runs = _runs(shape, height, width)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ImageError("malformed_row", f"object {number} is no shape: {cut(str(error))}") from None
        if runs is not None:
            x, y, wide, high = map(int, _coco().toBbox(runs))
            window = slice(y, y + high), slice(x, x + wide)
            canvas[window][_coco().decode(runs)[window].view(bool)] = _value(shape, number, known, options)
    return canvas


def _value(shape: Mapping[str, Any], number: int, known: Mapping[str, int], options: MaskOptions) -> int:
    name = str(shape.get("name"))
    if shape.get("crowd") and options.crowd == "ignore":
        if options.ignore is None:
            what = f"object {number} is a crowd of {cut(repr(name))}"
            raise ImageError("unknown_class", f"{what}: give the value `ignore`, or `crowd: draw`")
        return options.ignore
    if options.draw == "instances":
        if number >= LEVELS or number == options.ignore:
            most = options.ignore or LEVELS
            raise ImageError("too_large", f"object {number} is one too many: numbers are below {most}")
        return number
    if name not in known:
        raise ImageError("unknown_class", f"object {number} is of {cut(repr(name))}, which is not among `classes`")
    if not known[name]:
        what = f"object {number} is of {cut(repr(name))}, whose value 0 is where no object is"
        raise ImageError("unknown_class", f"{what}: begin `classes` with `background`")
    return known[name]


def _runs(shape: Mapping[str, Any], height: int, width: int) -> Any:
    """Returns an object's run lengths, as pycocotools has them; None without a shape. Raises: ValueError and others."""
    if (rle := shape.get("rle")) is not None:
        counts = rle["counts"]
        lengths = _lengths(counts) if isinstance(counts, str) else np.array(counts, np.int64)
        if list(rle["size"]) != [height, width] or lengths.sum() != height * width or (lengths < 0).any():
            raise ValueError(f"{lengths.sum()} pixels of {rle['size']}, in an image of {[height, width]}")
        return rle if isinstance(counts, str) else _coco().frPyObjects(rle, height, width)
    polygons = [_scaled(polygon, shape.get("unit"), height, width) for polygon in shape.get("polygons", ())]
    return _coco().merge(_coco().frPyObjects(polygons, height, width)) if polygons else None


def _scaled(polygon: Sequence[float], unit: str | None, height: int, width: int) -> list[float]:
    if len(polygon) < LEAST or len(polygon) % 2:
        raise ValueError(f"a polygon has {len(polygon)} numbers: x and y of three points or more are needed")
    sides = [width, height] * (len(polygon) // 2)
    points = [x * side for x, side in zip(polygon, sides, strict=True)] if unit == "relative" else list(polygon)
    for place, side in zip(points, sides, strict=True):
        if not -MARGIN * side <= place <= (1 + MARGIN) * side:
            raise ValueError(f"the point {place} is far outside the image of {width} x {height}")
    return points


def _lengths(counts: str) -> npt.NDArray[np.int64]:
    """Reads COCO's compressed run lengths, which pycocotools reads past their end: digits of 5 bits, low ones first."""
    codes = np.frombuffer(counts.encode("ascii"), np.uint8).astype(np.int64) - 48
    last = np.flatnonzero(codes & 32 == 0)
    first = np.concatenate([[0], last[:-1] + 1])
    size = last - first + 1
    if not len(codes) or last[-1:] != len(codes) - 1 or size.max() > DIGITS or codes.min() < 0 or codes.max() > 63:
        raise ValueError("its compressed `counts` are damaged")
    places = 5 * (np.arange(len(codes)) - np.repeat(first, size))
    found = np.add.reduceat((codes & 31) << places, first)
    found -= (codes[last] & 16 > 0).astype(np.int64) << 5 * size  # negative ones
    for start in (1, 2):  # from the fourth on, each is the difference to the one before the last
        found[start::2] = found[start::2].cumsum()
    return found


def _coco() -> ModuleType:
    try:
        from pycocotools import mask
    except ImportError:
        raise UserError('the package pycocotools is missing: pip install "recordmill[masks]"') from None
    return mask
