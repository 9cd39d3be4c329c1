"""Brings an upright image to the size in its options, in the graph: cut, scaled, laid on the background.

`contract.geometry` computes where an image goes; this module moves the pixels there. Every method rounds
its weighted sums to the nearest whole number, half to even, and keeps them in 0..255.
"""

import tensorflow as tf

from recordmill.transforms.contract.geometry import placement
from recordmill.transforms.contract.kinds.image import PixelOptions
from recordmill.transforms.contract.luma import luma

MEANS = ("area", "bilinear", "nearest")  # of bytes: never beyond 0..255, as the other methods are beside an edge


def resize(image: tf.Tensor, options: PixelOptions) -> tf.Tensor:
    """Brings an image, uint8 [h, w, channels], to its size: uint8 [height, width, channels].

    Both sides are static where the options give a `size`.
    """
    goal = placement(tf.shape(image, tf.int64)[:2], options, tf)
    cuts = options.size is not None and options.fit == "crop"
    if cuts:
        image = _cut(image, goal.start, goal.box)
    image = _scaled(image, goal.scaled, options)
    if cuts and options.shorter_side is not None:
        image = _cut(image, -goal.offset, goal.output)
    if options.size is not None and options.fit == "pad":
        image = _framed(image, goal.offset, goal.output - goal.scaled - goal.offset, options)
    return tf.ensure_shape(image, [*(options.size or (None, None)), options.channels])


def _cut(image: tf.Tensor, start: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.slice(image, tf.concat([start, [0]], 0), tf.concat([size, [-1]], 0))


def _framed(image: tf.Tensor, before: tf.Tensor, after: tf.Tensor, options: PixelOptions) -> tf.Tensor:
    """Lays the background above, below and beside: one of the two axes has no margin."""
    red, green, blue = options.background
    colour = [red, green, blue] if options.channels == 3 else [luma(red, green, blue)]

    def margin(size: tf.Tensor, axis: int) -> tf.Tensor:
        shape = tf.tensor_scatter_nd_update(tf.shape(image, tf.int64), [[axis]], [size])
        return tf.broadcast_to(tf.constant(colour, tf.uint8), shape)

    for axis in (0, 1):
        image = tf.concat([margin(before[axis], axis), image, margin(after[axis], axis)], axis)
    return image


def _scaled(image: tf.Tensor, size: tf.Tensor, options: PixelOptions) -> tf.Tensor:
    """Scales to a size, int64 [height, width], as `resize` says.

    `auto`: area averaging if that has fewer pixels or as many, else bilinear.
    """
    sides, method = tf.shape(image, tf.int64)[:2], options.resize

    def by(method: str, antialias: bool) -> tf.Tensor:
        scaled = tf.round(tf.image.resize(image, tf.cast(size, tf.int32), method=method, antialias=antialias))
        return tf.cast(scaled if method in MEANS else tf.clip_by_value(scaled, 0, 255), tf.uint8)

    shrinks = tf.reduce_prod(size) <= tf.reduce_prod(sides)
    way = tf.where(tf.reduce_all(size == sides), 0, tf.where(shrinks, 1, 2))
    if method == "auto":
        return tf.switch_case(way, [lambda: image, lambda: by("area", False), lambda: by("bilinear", False)])
    return tf.cond(way == 0, lambda: image, lambda: by(method, options.antialias))
