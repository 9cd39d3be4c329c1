"""The graph of deep images: more than 8 bits, or other than 1 or 3 channels.

A deep image is a grey PNG of its planes, one below the other (`contract.kinds.image.planes_of`), as the worker makes of
any file (`pipeline.build.images.deep_files`). No step rounds or cuts a number but `image_decode.resize`.

>>> image = tf.constant([[[1.5, -2.0]]])
>>> bool(tf.reduce_all(of_planes(to_planes(image), "float32", 2) == image))
True
"""

import tensorflow as tf

from recordmill.transforms.contract.image_header import PNG
from recordmill.transforms.contract.kinds.image import PixelOptions
from recordmill.transforms.tensorflow.image_decode import orient
from recordmill.transforms.tensorflow.image_properties import other_orientation


def decode(encoded: tf.Tensor, options: PixelOptions, orientation: tf.Tensor | None = None) -> tf.Tensor:
    """Decodes a PNG of planes, a string scalar, and turns it upright: [height, width, channels] of the type `pixel`.

    `orientation` is as in `image_decode.decode`. Raises: tf.errors.InvalidArgumentError: another file, or a damaged
    one.
    """
    image = decode_planes(encoded, options.pixel, options.channels)
    turn = other_orientation(encoded) if orientation is None else orientation
    return tf.cond(turn > 1, lambda: orient.python_function(image, turn), lambda: image)


def decode_planes(encoded: tf.Tensor, pixel: str, channels: int) -> tf.Tensor:
    """Decodes a PNG of planes as it lies: [height, width, channels] of the type `pixel`. Raises: as `decode`."""
    depth, dtype = (8, tf.uint8) if pixel == "uint8" else (16, tf.uint16)
    head = tf.strings.substr(encoded, 0, len(PNG)) + tf.strings.substr(encoded, 24, 2)
    grey = tf.where(head == PNG + bytes([depth, 0]), encoded, "")  # other files would be converted
    return of_planes(tf.io.decode_png(grey, channels=1, dtype=dtype), pixel, channels)


def of_planes(image: tf.Tensor, pixel: str, channels: int) -> tf.Tensor:
    """Stacks an image's planes, [planes * height, width, 1], to [height, width, channels]."""
    halves = 2 if pixel == "float32" else 1
    width = tf.shape(image)[1]
    height = tf.shape(image)[0] // (halves * channels)
    planes = tf.reshape(image, tf.stack([halves, channels, height, width]))
    if halves == 2:  # low ones first, as bytes lie in memory
        planes = tf.bitcast(tf.stack([planes[1], planes[0]], -1), tf.float32)[tf.newaxis]
    return tf.ensure_shape(tf.transpose(planes[0], [1, 2, 0]), [None, None, channels])


def to_planes(image: tf.Tensor) -> tf.Tensor:
    """Lays an image's planes, [height, width, channels], one below the other: [planes * height, width, 1]."""
    planes = tf.transpose(image, [2, 0, 1])
    if image.dtype == tf.float32:
        low, high = tf.unstack(tf.bitcast(planes, tf.uint16), axis=-1)
        planes = tf.concat([high, low], 0)
    return tf.reshape(planes, tf.stack([-1, tf.shape(image)[1], 1]))
