"""Boxes in a picture: moved as its pixels are, and stored by where they lie in what is stored of the picture.

A stored box is `y_min, x_min, y_max, x_max`, each from 0 to 1: the order of `tf.image` and TensorFlow Datasets. Every
step is one exactly rounded operation in float64, without a division by a constant, which a graph may take for another
multiplication: the same bits in any batch.

Every box keeps its place, so that lists beside it, such as its categories, stay aligned. What lies outside of the
picture has no area; nor has a box whose end is before its beginning; what is not a number, and all boxes of a row
without a picture, are zeros.
"""

import tensorflow as tf

from recordmill.transforms.contract.kinds.boxes import BoxesDescription, BoxesOptions
from recordmill.transforms.contract.kinds.image import ImageOptions, PixelOptions
from recordmill.transforms.tensorflow.geometry import placement, upright
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics
from recordmill.transforms.tensorflow.lists import cut, padded

NUMBERS = 4  # of a box
LEAST = 2.0**-100  # what is smaller is 0: TensorFlow may, or may not, take what is below 2**-126 for 0


def prepare(options: BoxesOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores lists of boxes, four float32 each, ragged [rows, None]: as many, or the first `max_length`.

    The feature that `image` names is prepared before.
    """
    limit = options.max_length
    kept = cut(limit and NUMBERS * limit, column)
    geometry, picture = context.prepared[options.image].geometry, context.options[options.image]
    assert isinstance(picture, ImageOptions)  # noqa: S101 - the spec's check
    assert geometry is not None  # noqa: S101 - as all images have

    def store(_: Statistics) -> Parts:
        boxes = tf.reshape(kept.flat_values, [-1, NUMBERS])
        sources = tf.gather(geometry(), kept.value_rowids()[::NUMBERS])
        return {"": kept.with_flat_values(tf.reshape(moved(options, picture, boxes, sources), [-1]))}

    return Prepared(store)


def moved(options: BoxesOptions, picture: PixelOptions, boxes: tf.Tensor, sources: tf.Tensor) -> tf.Tensor:
    """Moves boxes as their pictures are cut, scaled and laid on the background.

    Args:
        options: the boxes': `order`, `unit` and `oriented` tell what the numbers mean.
        picture: the image's.
        boxes: numbers of any float type, shape [boxes, 4].
        sources: for each box height, width and orientation of its picture, int64 [boxes, 3] (`tensorflow.image`).

    Returns:
        float32 [boxes, 4]: `y_min, x_min, y_max, x_max`, 0..1, relative to the stored picture.
    """
    boxes, (sides, turn) = tf.cast(boxes, tf.float64), (sources[:, :2], sources[:, 2])
    start, end = _upright_corners(options, *_corners(options.order, boxes), sides, turn)
    corners = tf.concat([_placed(start, sides, picture), _placed(end, sides, picture)], 1)
    is_box = tf.reduce_all(sides > 0, 1) & ~tf.reduce_any(tf.math.is_nan(corners), 1)
    return tf.cast(tf.where(is_box[:, tf.newaxis] & (corners >= LEAST), corners, tf.zeros_like(corners)), tf.float32)


def _corners(order: str, boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The points y, x where boxes begin and end, each [boxes, 2]; none ends before it begins."""
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
    """Corners in pixels of the upright picture; `sides` are of that."""
    in_file = options.oriented == "file"
    if options.unit == "relative":
        scale = tf.cast(upright(sides, turn) if in_file else sides, tf.float64)
        start, end = start * scale, end * scale
    return _turned(start, end, tf.cast(sides, tf.float64), turn) if in_file else (start, end)


def _turned(start: tf.Tensor, end: tf.Tensor, sides: tf.Tensor, turn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Turns corners as `transforms.tensorflow.exif.orient` turns the picture: transposed first, then mirrored."""
    start, end, flip = upright(start, turn), upright(end, turn), (turn - 1) % 4
    mirrored = tf.stack([flip >= 2, (flip == 1) | (flip == 2)], 1)
    return tf.where(mirrored, sides - end, start), tf.where(mirrored, sides - start, end)


def _placed(points: tf.Tensor, sides: tf.Tensor, picture: PixelOptions) -> tf.Tensor:
    """Moves points of upright pictures to where they lie in the stored ones, 0..1, or to the nearest edge."""
    place = placement(sides, picture)
    least, most = tf.maximum(place.offset, 0), tf.minimum(place.offset + place.scaled, place.output)
    start, box, scaled, offset, output, least, most = (tf.cast(each, tf.float64) for each in (*place, least, most))
    # All in pixels of the result times the box, so that the one division is the last step.
    there = (points - start) * scaled + offset * box
    return tf.clip_by_value(there, least * box, most * box) / (output * box)


def features(description: BoxesDescription, stored: Parts) -> Parts:
    """Pads with boxes of zeros.

    Returns:
        float32 [rows, boxes, 4], and the part `length`, the number of boxes, as `lists.padded` says.
    """
    return padded(description, _rows(stored[""]))


def _rows(numbers: tf.RaggedTensor) -> tf.RaggedTensor:
    """Lists of numbers as lists of boxes: ragged [rows, None, 4]."""
    boxes = tf.reshape(numbers.flat_values, [-1, NUMBERS])
    return tf.RaggedTensor.from_row_splits(boxes, numbers.row_splits // NUMBERS, validate=False)
