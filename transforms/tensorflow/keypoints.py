"""Key points of objects in an image: moved with its pixels as boxes are (`boxes`), float64 until they are stored.

A stored point is `y, x, visibility`: three zeros if it is not labelled, outside the image, or in a cropped part, or if
the row has no image.
"""

import tensorflow as tf

from recordmill.transforms.contract.kinds.image import PixelOptions
from recordmill.transforms.contract.kinds.keypoints import NUMBERS, VISIBLE, KeypointsOptions
from recordmill.transforms.tensorflow.boxes import LEAST, placed, prepare_places, upright_points
from recordmill.transforms.tensorflow.kind import Context, Prepared


def prepare(options: KeypointsOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores key points, ragged [rows, None], of `max_length` objects at most; prepare their image first."""
    return prepare_places(options, options.count * options.numbers, column, context, moved)


def moved(options: KeypointsOptions, image: PixelOptions, objects: tf.Tensor, sources: tf.Tensor) -> tf.Tensor:
    """Moves key points as their images are cut, scaled and laid on the background.

    `objects` have `x, y`, or `x, y, visibility`, of each point: floats [objects, count * numbers]; `sources` are as in
    `boxes.moved`. Returns float32 [objects, count * 3].
    """
    points = tf.reshape(tf.cast(objects, tf.float64), [-1, options.numbers])
    sources = tf.repeat(sources, options.count, axis=0)
    sides, turn = sources[:, :2], sources[:, 2]
    visibility = points[:, 2:] if options.numbers == NUMBERS else tf.fill([tf.shape(points)[0], 1], VISIBLE)
    upright = upright_points(options, tf.reverse(points[:, :2], [1]), sides, turn)
    places, is_inside = placed(upright, sides, image)
    is_point = (is_inside & tf.reduce_all(sides > 0, 1))[:, tf.newaxis] & (visibility > 0)
    stored = tf.concat([places, tf.cast(visibility, tf.float64)], 1)
    stored = tf.where(is_point & (stored >= LEAST), stored, tf.zeros_like(stored))
    return tf.cast(tf.reshape(stored, [-1, options.count * NUMBERS]), tf.float32)
