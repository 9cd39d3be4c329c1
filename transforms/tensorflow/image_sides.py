"""Reads an image's stored size from its bytes, in the graph, without decoding it."""

import tensorflow as tf

from recordmill.transforms.tensorflow.image_decode import by_format, is_jpeg


def stored_sides(encoded: tf.Tensor) -> tf.Tensor:
    """Reads height and width in pixels, before EXIF turns them, of an image: int64 [2]; zeros for an empty string.

    Args:
        encoded: a string scalar, JPEG, PNG, WebP or BMP; other bytes give sides without a meaning.

    Raises:
        tf.errors.InvalidArgumentError: a JPEG is cut off inside its header.
    """
    return tf.cond(
        is_jpeg(encoded),
        lambda: tf.cast(tf.io.extract_jpeg_shape(encoded)[:2], tf.int64),
        lambda: _other(encoded),
    )


def _other(encoded: tf.Tensor) -> tf.Tensor:
    head = tf.cast(
        tf.io.decode_raw(tf.strings.substr(encoded, 0, 30), tf.uint8, fixed_length=30),
        tf.int64,
    )
    return by_format(encoded, png=lambda: _png(head), webp=lambda: _webp(head), bmp=lambda: _bmp(head))


def _png(head: tf.Tensor) -> tf.Tensor:
    return tf.stack([_number(head[20:24][::-1]), _number(head[16:20][::-1])])


def _bmp(head: tf.Tensor) -> tf.Tensor:
    height = _number(head[22:26])
    return tf.stack([tf.minimum(height, (1 << 32) - height), _number(head[18:22])])  # negative: from the top down


def _webp(head: tf.Tensor) -> tf.Tensor:
    """Reads the canvas of an extended file, else the single frame's size, of 14 bits a side (RFC 9649)."""
    extended = tf.stack([1 + _number(head[27:30]), 1 + _number(head[24:27])])
    bits = _number(head[21:25])
    lossless = tf.stack([1 + bits // (1 << 14) % (1 << 14), 1 + bits % (1 << 14)])
    lossy = tf.stack([_number(head[28:30]), _number(head[26:28])]) % (1 << 14)
    return tf.where(head[15] == ord("X"), extended, tf.where(head[15] == ord("L"), lossless, lossy))


def _number(digits: tf.Tensor) -> tf.Tensor:
    """Reads bytes as a little-endian number, int64."""
    return tf.reduce_sum(digits * [256**power for power in range(digits.shape[0])])
