"""Boxes in an image: moved with its pixels, and stored relative to the stored image.

A stored box is `y_min, x_min, y_max, x_max`, each from 0 to 1: the order of `tf.image` and TensorFlow Datasets. Every
step is a single exactly rounded operation in float64, without division by a constant, which a graph may replace by a
multiplication: the same bits in any batch.

Every box stays in the list, which keeps parallel lists, such as categories, aligned. A box outside the image or with
its end before its start gets an empty area. A box with NaN, and all boxes of a row without an image, become zeros.
"""

import tensorflow as tf

from recordmill.transforms.contract.image_rules import mirrored, placement, upright
from recordmill.transforms.contract.kinds.boxes import BoxesDescription, BoxesOptions
from recordmill.transforms.contract.kinds.image import ImageOptions, PixelOptions
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics, cut, padded

NUMBERS = 4  # of a box
LEAST = 2.0**-100  # smaller numbers become 0, as TensorFlow may flush those below 2**-126


def prepare(options: BoxesOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores boxes, four float32 each, ragged [rows, None], `max_length` at most; prepare their image first."""
    limit = options.max_length
    kept = cut(limit and NUMBERS * limit, column)
    geometry, image = context.prepared[options.image].geometry, context.options[options.image]
    assert isinstance(image, ImageOptions)  # noqa: S101 - the spec's check
    assert geometry is not None  # noqa: S101 - as all images have

    def store(_: Statistics) -> Parts:
        boxes = tf.reshape(kept.flat_values, [-1, NUMBERS])
        sources = tf.gather(geometry(), kept.value_rowids()[::NUMBERS])
        return {"": kept.with_flat_values(tf.reshape(moved(options, image, boxes, sources), [-1]))}

    return Prepared(store)


def moved(options: BoxesOptions, image: PixelOptions, boxes: tf.Tensor, sources: tf.Tensor) -> tf.Tensor:
    """Moves boxes as their images are cut, scaled and laid on the background.

    `boxes` are of any float type, [boxes, 4], as `order`, `unit` and `oriented` define them; `sources` are the height,
    width and orientation of each box's image, int64 [boxes, 3] (`image.geometry`). Returns float32 [boxes, 4]:
    `y_min, x_min, y_max, x_max`, 0..1, relative to the stored image.
    """
    boxes, (sides, turn) = tf.cast(boxes, tf.float64), (sources[:, :2], sources[:, 2])
    start, end = _upright_corners(options, *_corners(options.order, boxes), sides, turn)
    corners = tf.concat([_placed(start, sides, image), _placed(end, sides, image)], 1)
    is_box = tf.reduce_all(sides > 0, 1) & ~tf.reduce_any(tf.math.is_nan(corners), 1)
    return tf.cast(tf.where(is_box[:, tf.newaxis] & (corners >= LEAST), corners, tf.zeros_like(corners)), tf.float32)


def _corners(order: str, boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the start and end points y, x of boxes, each [boxes, 2], with no end before its start."""
    first, second = tf.unstack(tf.reshape(boxes, [-1, 2, 2]), axis=1)
    if order != "tensorflow":
        first, second = tf.reverse(first, [1]), tf.reverse(second, [1])
    if order == "center":
        first = first - second * 0.5
    end = first + second if order in ("coco", "center") else second
    return first, tf.maximum(first, end)


def _upright_corners(
    options: BoxesOptions, start: tf.Tensor, end: tf.Tensor, sides: tf.Tensor, turn: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns corners in pixels of the upright image of height and width `sides`."""
    in_file = options.oriented == "file"
    if options.unit == "relative":
        scale = tf.cast(upright(sides, turn, tf) if in_file else sides, tf.float64)
        start, end = start * scale, end * scale
    if not in_file:
        return start, end
    # Corners turn as in `image_decode.orient`.
    sides = tf.cast(sides, tf.float64)
    start, end, flipped = upright(start, turn, tf), upright(end, turn, tf), tf.stack(mirrored(turn), 1)
    return tf.where(flipped, sides - end, start), tf.where(flipped, sides - start, end)


def _placed(points: tf.Tensor, sides: tf.Tensor, image: PixelOptions) -> tf.Tensor:
    """Moves points of upright images into the stored images, 0..1, clipped to the edges."""
    goal = placement(sides, image, tf)
    least, most = tf.maximum(goal.offset, 0), tf.minimum(goal.offset + goal.scaled, goal.output)
    start, box, scaled, offset, output, least, most = (tf.cast(each, tf.float64) for each in (*goal, least, most))
    # In pixels of the result times the box: the only division is the last step.
    inside = (points - start) * scaled + offset * box
    return tf.clip_by_value(inside, least * box, most * box) / (output * box)


def features(description: BoxesDescription, stored: Parts) -> Parts:
    """Pads with zero boxes: float32 [rows, boxes, 4], and the number of boxes as the part `length` (`kind.padded`)."""
    return padded(description, _rows(stored[""]))


def _rows(numbers: tf.RaggedTensor) -> tf.RaggedTensor:
    """Groups lists of numbers into boxes: ragged [rows, None, 4]."""
    boxes = tf.reshape(numbers.flat_values, [-1, NUMBERS])
    return tf.RaggedTensor.from_row_splits(boxes, numbers.row_splits // NUMBERS, validate=False)
