"""Rules of images for both engines: how pixels become upright, where they go in the result, what their grey is.

The functions take integers, arrays and tensors alike, and compute in whole numbers, so that an image, its boxes and its
points move by one rule in NumPy and in TensorFlow. EXIF orientations, 1 to 8, transpose first and then mirror.

>>> is_transposed(6), mirrored(6)
(True, (False, True))

`placement` gives the box that is cut out of an image, the size that it is scaled to, and where it is in the result. It
takes one image, shape [2], or a batch, shape [rows, 2]; a pair is height, width in pixels, or y, x. A point of the
upright source goes to `(point - start) * scaled / box + offset`, outside of the result where the image was cut.

>>> placement(np.array([300, 400]), PixelOptions(size=(64, 64))).scaled.tolist()
[48, 64]
"""

from typing import Any, NamedTuple

import numpy as np

from recordmill.transforms.contract.kinds.image import MAX_SIDE, PixelOptions

TAG = 0x0112  # the number of EXIF's tag


def is_transposed(orientation: Any) -> Any:
    """Returns True where height and width change places: from 5 on."""
    return orientation >= 5


def mirrored(orientation: Any) -> tuple[Any, Any]:
    """Returns whether top and bottom, and whether left and right, change places; 5..8 mirror as 1..4 do."""
    turn = (orientation - 1) % 4
    return turn >= 2, (turn == 1) | (turn == 2)


MAX_STRIP = 64
"""The greatest length of a strip, in widths, before it is scaled and its centre cut; the rest is cut first."""


class Placement(NamedTuple):
    """Pairs of int64, each of the source's shape: [2] or [rows, 2]."""

    start: Any  # first pixel of the box that is cut out of the upright source
    box: Any  # box's size
    scaled: Any  # size that the box is scaled to
    offset: Any  # scaled box's first pixel in the result: below 0 where the box is cut again
    output: Any  # result's size


def placement(sides: Any, options: PixelOptions, xp: Any = np) -> Placement:
    """Places images of some size, by `size`, `fit` and `shorter_side`.

    Args:
        sides: heights and widths of upright images, int64; a side of 0 counts as 1.
        options: an image's.
        xp: the module of `sides`, NumPy or TensorFlow.

    Sides are rounded half up, to 1 pixel at least; an odd margin has its larger half below and to the right.
    """

    def divided(dividend: Any, divisor: Any) -> Any:
        """Divides whole numbers, rounded half up, 1 at least."""
        return xp.maximum((2 * dividend + divisor) // (2 * divisor), 1)

    sides = xp.maximum(sides, 1)
    swapped, nothing, shorter = sides[..., ::-1], xp.zeros_like(sides), options.shorter_side
    if options.size is None:
        if shorter is None:
            return Placement(nothing, sides, sides, nothing, sides)
        least, longest = xp.minimum(sides, swapped), xp.maximum(sides, swapped)
        scaled = xp.minimum(divided(sides * shorter, least), divided(sides * MAX_SIDE, longest))
        return Placement(nothing, sides, scaled, nothing, scaled)
    high, wide = options.size
    size, turned = nothing + (high, wide), nothing + (wide, high)
    if options.fit == "stretch":
        return Placement(nothing, sides, size, nothing, size)
    if options.fit == "pad":
        scaled = xp.minimum(size, divided(sides * turned, swapped))
        return Placement(nothing, sides, scaled, (size - scaled) // 2, size)
    if shorter is None:
        # Cut before it is scaled: a strip of 1 x 16,000 pixels, scaled to fill, would be of millions.
        box = xp.minimum(sides, divided(swapped * size, turned))
        return Placement((sides - box) // 2, box, size, nothing, size)
    start = xp.maximum(sides - MAX_STRIP * swapped, 0) // 2
    box = sides - 2 * start
    scaled = divided(box * shorter, xp.minimum(box, box[..., ::-1]))
    return Placement(start, box, scaled, -((scaled - size) // 2), size)


def upright(sides: Any, orientation: Any, xp: Any = np) -> Any:
    """Swaps the sides, shape [2] or [rows, 2], of images that their orientation (shape [] or [rows]) transposes."""
    return xp.where(is_transposed(orientation)[..., None], sides[..., ::-1], sides)


def luma(red: Any, green: Any, blue: Any) -> Any:
    """Grey of ITU-R BT.601 in 16 bits, as Pillow rounds it; of integers or integer arrays or tensors of 0..255."""
    return (19_595 * red + 38_470 * green + 7_471 * blue + 32_768) // 65_536
