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
from recordmill.transforms.contract.kinds.mask import MaskOptions, levels_of
from recordmill.transforms.contract.shapes import polygons_of, runs_size

Values: TypeAlias = npt.NDArray[np.uint8 | np.uint16]
MARGIN = 2  # sides around the image: for polygons further outside, pycocotools takes memory without a limit


def drawn(shapes: bytes, options: MaskOptions, height: int, width: int, first: int = 1) -> Values:
    """Draws a row's shapes, JSON, in order: [height, width], 0 where none is. `first` numbers the first.

    Raises: ImageError: `malformed_row`: not shapes, or not of this size; `unknown_class`: a name without a value, or a
    crowd without the value `ignore`; `too_large`: too many objects for numbers.
    """
    canvas = np.zeros((height, width), options.pixel, order="F")  # as pycocotools' masks
    known = {name: value for value, name in options.classes or ()}
    for number, shape in enumerate(json.loads(shapes), first):
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
    if options.draw == "objects":
        return 1
    name = str(shape.get("name"))
    if shape.get("crowd") and options.crowd == "ignore":
        if options.ignore is None:
            what = f"object {number} is a crowd of {cut(repr(name))}"
            raise ImageError("unknown_class", f"{what}: give the value `ignore`, or `crowd: draw`")
        return options.ignore
    if options.draw == "instances":
        levels = levels_of(options.pixel)
        if number >= levels or number == options.ignore:
            most, more = options.ignore or levels, " of `dtype: uint8`" if options.pixel == "uint8" else ""
            raise ImageError("too_large", f"object {number} is one too many: numbers{more} are below {most}")
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
        if runs_size(rle) != (height, width):
            raise ValueError(f"its size is {rle['size']}, of an image of {[height, width]}")
        return rle if isinstance(rle["counts"], str) else _coco().frPyObjects(rle, height, width)
    sides = (width, height)
    polygons = [_inside(polygon, shape.get("unit"), sides) for polygon in polygons_of(shape.get("polygons", []))]
    return _coco().merge(_coco().frPyObjects(polygons, height, width)) if polygons else None


def _inside(polygon: Sequence[float], unit: str | None, sides: tuple[int, int]) -> list[float]:
    """Returns a polygon's x and y in pixels. Raises: ValueError: far outside the image."""
    scales = sides if unit == "relative" else (1, 1)
    points = [place * scales[axis % 2] for axis, place in enumerate(polygon)]
    for axis, place in enumerate(points):
        if not -MARGIN * sides[axis % 2] <= place <= (1 + MARGIN) * sides[axis % 2]:
            raise ValueError(f"the point {place} is far outside the image of {sides[0]} x {sides[1]}")
    return points


def _coco() -> ModuleType:
    try:
        from pycocotools import mask
    except ImportError:
        raise UserError('the package pycocotools is missing: pip install "recordmill[masks]"') from None
    return mask
