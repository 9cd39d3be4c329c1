"""Padding of images that were stored with `fit: pad`: found at their margins, and hatched for people.

An image is padded on two opposite sides, as wide on both. Its record does not say how far, so margins count that are of
the background's colour all along, and of which one axis alone has any.

>>> hatched(Image.new("RGB", (4, 4)), None).getpixel((0, 0))
(0, 0, 0)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.transforms.contract.image_rules import luma

Color = tuple[int, int, int]
TOLERANCE, SPREAD = 10, 8  # levels and pixels by which JPEG's blocks at an edge differ
STRIPES = np.array([[176, 184, 194], [226, 230, 235]], np.uint8)


def background_of(options: Mapping[str, Any]) -> Color | None:
    """Returns the colour of an image's padding by the options of its spec; None where it has none."""
    is_padded = options.get("fit") == "pad" and options.get("size") is not None
    return tuple(options["background"]) if is_padded and len(options.get("background", ())) == 3 else None


def hatched(image: Image.Image, background: Color | None) -> Image.Image:
    """Returns an image whose padding is striped; the image itself where it has none."""
    if background is None:
        return image
    pixels, color = np.asarray(image), luma(*background) if image.mode == "L" else background
    near = np.abs(pixels.astype(int) - color) <= TOLERANCE
    is_background = np.all(near.reshape(*pixels.shape[:2], -1), axis=2)
    above, beside = _margins(is_background), _margins(is_background.T)
    if above is None or beside is None or any(above) == any(beside):
        return image
    rows, columns = np.indices(is_background.shape)
    place, size, (before, after) = (rows, image.height, above) if any(above) else (columns, image.width, beside)
    stripes = STRIPES[(rows + columns) // max(2, max(image.size) // 32) % 2]
    is_padding = (place < before) | (place >= size - after)
    return Image.fromarray(np.where(is_padding[..., None], stripes, np.asarray(image.convert("RGB"))))


def _margins(is_background: npt.NDArray[np.bool_]) -> tuple[int, int] | None:
    """Returns the rows of background above and below; None where the two differ, or nothing else is there."""
    rows: Any = is_background.all(1)
    before, after = int(rows.argmin()), int(rows[::-1].argmin())
    is_one_sided = (before > 0) != (after > 0) and before + after > 1  # padding of one row is below
    return None if rows.all() or is_one_sided or abs(before - after) > SPREAD else (before, after)
