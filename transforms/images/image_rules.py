"""Image geometry for both engines: orientation, placement in the result, and grey.

The functions take integers, arrays and tensors, and compute in whole numbers: images, boxes and points move by the same
rule in NumPy and TensorFlow. EXIF orientations, 1 to 8, transpose first and then mirror.

`placement` gives the box to cut from an image, the size to scale it to, and its offset in the result. It takes one
image, shape [2], or a batch, shape [rows, 2]; a pair is height, width in pixels, or y, x. A point of the upright source
goes to `(point - start) * scaled / box + offset`, outside the result if the image was cut there.

>>> placement(np.array([300, 400]), PixelOptions(size=(64, 64))).scaled.tolist()
[48, 64]
"""

from typing import Any, NamedTuple

import numpy as np

from recordmill.transforms.images.image_stored import MAX_SIDE, PixelOptions

TAG = 0x0112  # EXIF's tag
MAX_STRIP = 64  # longest strip to scale, in widths; its ends are cut first


def is_transposed(orientation: Any) -> Any:
    """Returns True for orientations that swap height and width: from 5 on."""
    return orientation >= 5


def mirrored(orientation: Any) -> tuple[Any, Any]:
    """Returns whether top and bottom, and left and right, are swapped; 5..8 mirror as 1..4 do."""
    turn = (orientation - 1) % 4
    return turn >= 2, (turn == 1) | (turn == 2)


class Placement(NamedTuple):
    """Pairs of int64, each of the source's shape: [2] or [rows, 2]."""

    start: Any  # first pixel of the box in the upright source
    box: Any  # box's size
    scaled: Any  # the scaled box's size
    offset: Any  # its first pixel in the result; negative if it is cut again
    output: Any  # result's size


def placement(sides: Any, options: PixelOptions, xp: Any = np) -> Placement:
    """Places images with these sides, heights and widths of upright images, int64; `xp` is their module.

    A side of 0 counts as 1. Results are rounded half up, to at least 1; the larger half of an odd margin is the last.
    """

    def divided(dividend: Any, divisor: Any) -> Any:
        """Rounds half up, to at least 1."""
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
        # Cut before scaling: a strip of 1 x 16,000 pixels, scaled to fill, would have millions.
        box = xp.minimum(sides, divided(swapped * size, turned))
        return Placement((sides - box) // 2, box, size, nothing, size)
    start = xp.maximum(sides - MAX_STRIP * swapped, 0) // 2
    box = sides - 2 * start
    scaled = divided(box * shorter, xp.minimum(box, box[..., ::-1]))
    return Placement(start, box, scaled, -((scaled - size) // 2), size)


def upright(sides: Any, orientation: Any, xp: Any = np) -> Any:
    """Swaps the sides, shape [2] or [rows, 2], for transposing orientations, shape [] or [rows]."""
    return xp.where(is_transposed(orientation)[..., None], sides[..., ::-1], sides)


def luma(red: Any, green: Any, blue: Any) -> Any:
    """Grey of ITU-R BT.601 in 16 bits, rounded as Pillow does; takes integers, arrays or tensors of 0..255."""
    return (19_595 * red + 38_470 * green + 7_471 * blue + 32_768) // 65_536


def padding_levels(options: PixelOptions) -> list[Any]:
    """Returns the number around padded images, by channel."""
    if options.planes:
        return [options.fill if options.pixel == "float32" else round(options.fill)] * options.channels
    color = options.padding or options.background
    return list(color) if options.channels == 3 else [luma(*color)]
