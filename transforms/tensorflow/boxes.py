"""Boxes in an image: moved as its pixels are, and stored relative to the stored image.

A stored box is `y_min, x_min, y_max, x_max`, each from 0 to 1: the order of `tf.image` and TensorFlow Datasets. Every
step is a single exactly rounded operation in float64, without a division by a constant, which a graph may replace by a
multiplication: the same bits in any batch.

Every box stays in the list, so that lists beside it, such as its categories, stay aligned. A box outside of the image
has no area, nor has a box whose end is before its beginning. A box with NaN, and all boxes of a row without an image,
are zeros.
"""

import tensorflow as tf

from recordmill.transforms.contract.image_rules import mirrored, placement, upright
from recordmill.transforms.contract.kinds.boxes import BoxesDescription, BoxesOptions
from recordmill.transforms.contract.kinds.image import ImageOptions, PixelOptions
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics, cut, padded

NUMBERS = 4  # of a box
LEAST = 2.0**-100  # smaller numbers become 0, since TensorFlow may or may not flush those below 2**-126


def prepare(options: BoxesOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores lists of boxes, four float32 each, ragged [rows, None]: all, or the first `max_length`.

    The image is prepared before its boxes.
    """
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

    Args:
        options: the boxes': `order`, `unit` and `oriented` define the numbers.
        image: the image's options.
        boxes: numbers of any float type, shape [boxes, 4].
        sources: for each box height, width and orientation of its image, int64 [boxes, 3] (`image.geometry`).

    Returns:
        float32 [boxes, 4]: `y_min, x_min, y_max, x_max`, 0..1, relative to the stored image.
    """
    boxes, (sides, turn) = tf.cast(boxes, tf.float64), (sources[:, :2], sources[:, 2])
    start, end = _upright_corners(options, *_corners(options.order, boxes), sides, turn)
    corners = tf.concat([_placed(start, sides, image), _placed(end, sides, image)], 1)
    is_box = tf.reduce_all(sides > 0, 1) & ~tf.reduce_any(tf.math.is_nan(corners), 1)
    return tf.cast(tf.where(is_box[:, tf.newaxis] & (corners >= LEAST), corners, tf.zeros_like(corners)), tf.float32)


def _corners(order: str, boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the points y, x where boxes begin and end, each [boxes, 2]; no box ends before it begins."""
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
    """Returns corners in pixels of the upright image, whose height and width are `sides`."""
    in_file = options.oriented == "file"
    if options.unit == "relative":
        scale = tf.cast(upright(sides, turn, tf) if in_file else sides, tf.float64)
        start, end = start * scale, end * scale
    if not in_file:
        return start, end
    # Corners are turned as `image_decode.orient` turns the image.
    sides = tf.cast(sides, tf.float64)
    start, end, flipped = upright(start, turn, tf), upright(end, turn, tf), tf.stack(mirrored(turn), 1)
    return tf.where(flipped, sides - end, start), tf.where(flipped, sides - start, end)


def _placed(points: tf.Tensor, sides: tf.Tensor, image: PixelOptions) -> tf.Tensor:
    """Moves points of upright images into the stored images, 0..1; outside points go to the nearest edge."""
    goal = placement(sides, image, tf)
    least, most = tf.maximum(goal.offset, 0), tf.minimum(goal.offset + goal.scaled, goal.output)
    start, box, scaled, offset, output, least, most = (tf.cast(each, tf.float64) for each in (*goal, least, most))
    # All in pixels of the result times the box, so that the one division is the last step.
    inside = (points - start) * scaled + offset * box
    return tf.clip_by_value(inside, least * box, most * box) / (output * box)


def features(description: BoxesDescription, stored: Parts) -> Parts:
    """Pads with boxes of zeros.

    Returns:
        float32 [rows, boxes, 4], and the part `length`, the number of boxes, as `kind.padded` says.
    """
    return padded(description, _rows(stored[""]))


def _rows(numbers: tf.RaggedTensor) -> tf.RaggedTensor:
    """Makes lists of boxes from lists of numbers: ragged [rows, None, 4]."""
    boxes = tf.reshape(numbers.flat_values, [-1, NUMBERS])
    return tf.RaggedTensor.from_row_splits(boxes, numbers.row_splits // NUMBERS, validate=False)
