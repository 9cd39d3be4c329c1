"""Places an image in its result: the box that is cut out, the size that it is scaled to, and where that lies.

All is computed in whole numbers, so that an image, its boxes and its points move by the same rule. The functions take
one image, shape [2], or a batch, shape [rows, 2]; a pair is height, width in pixels, or y, x. A point of the upright
source goes to `(point - start) * scaled / box + offset`, which is outside of the result where the image was cut.

>>> placement(tf.constant([300, 400]), PixelOptions(size=(64, 64))).scaled.numpy()
array([48, 64])
"""

from typing import Any, NamedTuple

import tensorflow as tf

from recordmill.transforms.contract.kinds.image import PixelOptions
from recordmill.transforms.contract.orientation import is_transposed

MAX_SIDE = 16_384
"""The longest side that `shorter_side` may give, in pixels: a longer strip is scaled to this instead."""
MAX_STRIP = 64
"""The greatest length of a strip, in widths, before it is scaled and its centre cut; the rest is cut first."""


class Placement(NamedTuple):
    """Pairs of int64, each of the source's shape: [2] or [rows, 2]."""

    start: tf.Tensor
    """The first pixel of the box that is cut out of the upright source."""
    box: tf.Tensor
    """The box's size."""
    scaled: tf.Tensor
    """The size that the box is scaled to."""
    offset: tf.Tensor
    """The scaled box's first pixel in the result: below 0 where the box is cut again."""
    output: tf.Tensor
    """The result's size."""


def placement(sides: tf.Tensor, options: PixelOptions) -> Placement:
    """Places images of some size, by `size`, `fit` and `shorter_side`.

    Args:
        sides: heights and widths of upright images, of any integer type; a side of 0 counts as 1.
        options: an image's.

    Sides are rounded half up, to 1 pixel at least; an odd margin has its larger half below and to the right.
    """
    sides = tf.maximum(tf.cast(sides, tf.int64), 1)
    nothing = tf.zeros_like(sides)
    if options.size is None:
        scaled = _own(sides, options.shorter_side)
        return Placement(nothing, sides, scaled, nothing, scaled)
    size = tf.constant(options.size, tf.int64) + nothing
    if options.fit == "stretch":
        return Placement(nothing, sides, size, nothing, size)
    if options.fit == "pad":
        scaled = tf.minimum(size, divided(sides * _swapped(size), _swapped(sides)))
        return Placement(nothing, sides, scaled, (size - scaled) // 2, size)
    if options.shorter_side is None:
        # Cut before it is scaled: a strip of 1 x 16,000 pixels, scaled to fill, would be of millions.
        box = tf.minimum(sides, divided(_swapped(sides) * size, _swapped(size)))
        return Placement((sides - box) // 2, box, size, nothing, size)
    start = tf.maximum(sides - MAX_STRIP * _swapped(sides), 0) // 2
    box = sides - 2 * start
    scaled = divided(box * options.shorter_side, _least(box))
    return Placement(start, box, scaled, -((scaled - size) // 2), size)


def upright(sides: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Swaps the sides, shape [2] or [rows, 2], of images that their orientation (shape [] or [rows]) transposes."""
    return tf.where(is_transposed(orientation)[..., tf.newaxis], _swapped(sides), sides)


def divided(dividend: tf.Tensor, divisor: Any) -> tf.Tensor:
    """Divides whole numbers, rounded half up, 1 at least."""
    return tf.maximum((2 * dividend + divisor) // (2 * divisor), 1)


def _own(sides: tf.Tensor, shorter_side: int | None) -> tf.Tensor:
    """Gives the size of an image that keeps its proportions."""
    if shorter_side is None:
        return sides
    longest = tf.reduce_max(sides, -1, keepdims=True)
    return tf.minimum(divided(sides * shorter_side, _least(sides)), divided(sides * MAX_SIDE, longest))


def _least(sides: tf.Tensor) -> tf.Tensor:
    return tf.reduce_min(sides, -1, keepdims=True)


def _swapped(sides: tf.Tensor) -> tf.Tensor:
    return tf.reverse(sides, [-1])
