"""Paints what lies on images, for people: masks, key points and padding.

Padding by `fit: pad` is found at the margins, and hatched: it has the background's colour, is as wide on two opposite
sides, and on one axis only.
"""

import colorsys
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor, ImageDraw

from recordmill.pipeline.inspection import COLORS, StoredImage, as_image
from recordmill.transforms.images.image_rules import luma
from recordmill.transforms.images.image_stored import MaskDescription, Masked
from recordmill.transforms.images.pixels import for_people
from recordmill.transforms.images.places_stored import VISIBLE, Box, KeypointsDescription

TOLERANCE, SPREAD = 10, 8  # levels, pixels: differences at an edge by JPEG's blocks
HATCHED, CLEAR = "#b0b8c2", "#ffffff"  # a legend's colours of hatched pixels, and of those that show the image
MOST_VALUES = 8  # without names
STRIPES = np.array([[176, 184, 194], [226, 230, 235]], np.uint8)
Color = tuple[int, int, int]
Levels = npt.NDArray[np.uint8]
Pose = tuple[KeypointsDescription, npt.NDArray[np.float32]]
"""The key points of one feature on an image, [objects, points, 3]."""


class Picture(NamedTuple):
    """An image of a record as people see it, with what lies on it."""

    feature: str
    image: StoredImage
    pixels: npt.NDArray[Any]
    mask: Masked | None  # its description, if it is one
    under: Levels | None  # of a mask, the pixels of its image, if any
    plain: Image.Image  # without padding
    shown: Image.Image  # with hatched padding
    boxes: Sequence[tuple[Box, str, str]]  # with names and colours
    poses: Sequence[Pose]
    words: str  # the range of a deep image's numbers; else empty


def with_poses(image: Image.Image, poses: Iterable[Pose]) -> Image.Image:
    """Draws key points joined by their skeletons, one colour an object; hidden points are hollow."""
    drawn, radius = image.convert("RGB"), max(1.5, max(image.size) / 90)
    pen = ImageDraw.Draw(drawn)
    for description, objects in poses:
        for points, color in zip(objects, cycle(COLORS), strict=False):
            places, shown = points[:, 1::-1] * image.size - 0.5, points[:, 2]
            for one, other in description.skeleton:
                if shown[one] and shown[other]:
                    pen.line([*places[one], *places[other]], color, max(1, round(radius / 2)))
            for place, visibility in zip(places[shown > 0], shown[shown > 0], strict=True):
                fill = color if visibility == VISIBLE else None
                pen.ellipse([*(place - radius), *(place + radius)], fill, color)
    return drawn


def painted(mask: Levels, image: Levels | None, ignored: int | None) -> Image.Image:
    """Paints a mask, uint8 [height, width, 1], half over its image, but not zeros; hatches what it ignores."""
    values, under = mask[..., 0], np.zeros(mask.shape, np.uint8) if image is None else for_people(image)
    table = np.array([ImageColor.getrgb(mask_color(value)) for value in range(1, 256)], np.uint8)
    pixels = np.where(mask > 0, under // 2 + table[(values.astype(int) - 1) % 255] // 2, under)
    return Image.fromarray(pixels if ignored is None else _striped(pixels, values == ignored))


class MaskClass(NamedTuple):
    """A value of masks: its name, its colour, and its share of the pixels."""

    name: str
    color: str
    share: float


def mask_classes(mask: MaskDescription, arrays: Iterable[Levels]) -> list[MaskClass]:
    """Lists a mask's classes, without names its most frequent values, and what it ignores."""
    counts = sum((np.bincount(array.ravel(), minlength=1 << 16) for array in arrays), np.zeros(1 << 16, np.int64))
    frequent = [value for value in np.argsort(-counts, kind="stable")[:MOST_VALUES].tolist() if counts[value]]
    named = mask.classes or {str(value): f"value {value}" for value in frequent if value != mask.ignore}
    ignored = {} if mask.ignore is None else {str(mask.ignore): f"ignored ({mask.ignore})"}
    colors, shares = {"0": CLEAR, **dict.fromkeys(ignored, HATCHED)}, counts / max(1, counts.sum())
    return [
        MaskClass(name, colors.get(value) or mask_color(int(value)), float(shares[int(value)]))
        for value, name in {**named, **ignored}.items()
    ]


def seen(pixels: npt.NDArray[Any], under: Levels | None, mask: Masked | None) -> Image.Image:
    """Makes an image of pixels; of a mask, painted over its image."""
    return painted(pixels, under, mask.ignore) if mask else as_image(pixels)


@cache
def mask_color(value: int) -> str:
    """Returns the colour of a value above 0: the eight of boxes, then hues by the golden angle; 255 in all."""
    value = (value - 1) % 255 + 1
    if value <= len(COLORS):
        return COLORS[value - 1]
    red, green, blue = colorsys.hsv_to_rgb(value * 0.618034 % 1, 0.55 + 0.4 * (value % 2), 0.95 - 0.25 * (value % 3))
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def content_of(image: Image.Image, background: Color | None) -> tuple[int, int, int, int]:
    """Returns the left, upper, right and lower edge of an image inside its padding, if any."""
    whole = 0, 0, image.width, image.height
    if background is None:
        return whole
    pixels, color = np.asarray(image), luma(*background) if image.mode == "L" else background
    near = np.abs(pixels.astype(int) - color) <= TOLERANCE
    is_background = np.all(near.reshape(*pixels.shape[:2], -1), axis=2)
    above, beside = _margins(is_background), _margins(is_background.T)
    if above is None or beside is None or any(above) == any(beside):
        return whole
    return beside[0], above[0], image.width - beside[1], image.height - above[1]


def hatched(image: Image.Image, content: tuple[int, int, int, int]) -> Image.Image:
    """Hatches an image outside its content."""
    if content == (0, 0, *image.size):
        return image
    left, upper, right, lower = content
    is_padding = np.ones(image.size[::-1], np.bool_)
    is_padding[upper:lower, left:right] = False
    return Image.fromarray(_striped(np.asarray(image.convert("RGB")), is_padding))


def _striped(pixels: Levels, where: npt.NDArray[np.bool_]) -> Levels:
    rows, columns = np.indices(where.shape)
    return np.where(where[..., None], STRIPES[(rows + columns) // max(2, max(where.shape) // 32) % 2], pixels)


def _margins(is_background: npt.NDArray[np.bool_]) -> tuple[int, int] | None:
    """Returns the rows of background above and below; None if unequal, or the whole image."""
    rows: Any = is_background.all(1)
    before, after = int(rows.argmin()), int(rows[::-1].argmin())
    is_one_sided = (before > 0) != (after > 0) and before + after > 1  # padding of one row is below
    return None if rows.all() or is_one_sided or abs(before - after) > SPREAD else (before, after)
