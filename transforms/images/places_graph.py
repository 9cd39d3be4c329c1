"""Places on an image, boxes and key points: moved with its pixels, and stored relative to the stored image.

A stored box is `y_min, x_min, y_max, x_max`, each from 0 to 1. Every step is a single exactly rounded operation in
float64, without division by a constant, which a graph may replace by a multiplication: the same bits in any batch.

Every box stays in the list, which keeps parallel lists aligned. A box outside the image or with its end before its
start gets an empty area; one with NaN, and all of a row without an image, become zeros. A stored point is `y, x,
visibility`: three zeros if it is not labelled, outside the image or its crop, or if the row has no image.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from recordmill.transforms.base.graph import Context, Parts, Prepared, Statistics, cut, padded
from recordmill.transforms.images.image_rules import mirrored, placement, upright
from recordmill.transforms.images.image_stored import PixelOptions
from recordmill.transforms.images.places_stored import POINT_NUMBERS, VISIBLE, PlacesDescription

if TYPE_CHECKING:
    from recordmill.transforms.images.places_spec import Boxes, Keypoints, Places

Move = Callable[[Any, PixelOptions, tf.Tensor, tf.Tensor], tf.Tensor]
LEAST = 2.0**-100  # smaller numbers become 0, as TensorFlow may flush those below 2**-126


def prepare(move: Move, options: "Places", column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores objects, float32 numbers, ragged [rows, None], `max_length` at most; prepare their image first."""
    numbers, limit = options.numbers_of_object, options.max_length
    kept = cut(limit and numbers * limit, column)
    image: Any = context.options[options.image]
    geometry = context.prepared[options.image].geometry
    assert geometry is not None  # noqa: S101 - as all images have

    def store(_: Statistics) -> Parts:
        sources = tf.gather(geometry(), kept.value_rowids()[::numbers])
        objects = move(options, image.pixel_options, tf.reshape(kept.flat_values, [-1, numbers]), sources)
        splits = kept.row_splits // numbers * objects.shape[1]
        return {"": tf.RaggedTensor.from_row_splits(tf.reshape(objects, [-1]), splits, validate=False)}

    return Prepared(store)


def moved_boxes(options: "Boxes", image: PixelOptions, boxes: tf.Tensor, sources: tf.Tensor) -> tf.Tensor:
    """Moves boxes, of any float type, [boxes, 4], as `options` define them, as their images are cut, scaled and padded.

    `sources` are the height, width and orientation of each box's image, int64 [boxes, 3] (`image_graph.geometry`).
    Returns float32 [boxes, 4]: `y_min, x_min, y_max, x_max`, 0..1, relative to the stored image.
    """
    boxes, (sides, turn) = tf.cast(boxes, tf.float64), (sources[:, :2], sources[:, 2])
    first, second = tf.unstack(tf.reshape(boxes, [-1, 2, 2]), axis=1)
    if options.order != "tensorflow":
        first, second = tf.reverse(first, [1]), tf.reverse(second, [1])
    if options.order == "center":
        first = first - second * 0.5
    end = first + second if options.order in ("coco", "center") else second
    points = first, tf.maximum(first, end)  # no end is before its start
    ends = [_upright_points(options, each, sides, turn) for each in points]
    corners = tf.concat([_placed(corner(*ends), sides, image)[0] for corner in (tf.minimum, tf.maximum)], 1)
    is_box = tf.reduce_all(sides > 0, 1) & ~tf.reduce_any(tf.math.is_nan(tf.concat(ends, 1)), 1)
    return tf.cast(tf.where(is_box[:, tf.newaxis] & (corners >= LEAST), corners, tf.zeros_like(corners)), tf.float32)


def moved_keypoints(options: "Keypoints", image: PixelOptions, objects: tf.Tensor, sources: tf.Tensor) -> tf.Tensor:
    """Moves key points, `x, y` or `x, y, visibility` each, floats [objects, count * numbers], with their images.

    `sources` are as in `moved_boxes`. Returns float32 [objects, count * 3].
    """
    points = tf.reshape(tf.cast(objects, tf.float64), [-1, options.numbers])
    sources = tf.repeat(sources, options.count, axis=0)
    sides, turn = sources[:, :2], sources[:, 2]
    visibility = points[:, 2:] if options.numbers == POINT_NUMBERS else tf.fill([tf.shape(points)[0], 1], VISIBLE)
    places, is_inside = _placed(_upright_points(options, tf.reverse(points[:, :2], [1]), sides, turn), sides, image)
    is_point = (is_inside & tf.reduce_all(sides > 0, 1))[:, tf.newaxis] & (visibility > 0)
    stored = tf.concat([places, tf.cast(visibility, tf.float64)], 1)
    stored = tf.where(is_point & (stored >= LEAST), stored, tf.zeros_like(stored))
    return tf.cast(tf.reshape(stored, [-1, options.count * POINT_NUMBERS]), tf.float32)


def _upright_points(options: "Places", points: tf.Tensor, sides: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """Returns points y, x, [points, 2], in pixels of their upright images of height and width `sides`."""
    in_file = options.oriented == "file"
    if options.unit == "relative":
        points = points * tf.cast(upright(sides, turn, tf) if in_file else sides, tf.float64)
    if not in_file:
        return points
    # Points turn as in `decode_graph.orient`.
    points = upright(points, turn, tf)
    return tf.where(tf.stack(mirrored(turn), 1), tf.cast(sides, tf.float64) - points, points)


def _placed(points: tf.Tensor, sides: tf.Tensor, image: PixelOptions) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves points into stored images, 0..1, clipped to the edges; also returns whether each was inside."""
    goal = placement(sides, image, tf)
    least, most = tf.maximum(goal.offset, 0), tf.minimum(goal.offset + goal.scaled, goal.output)
    start, box, scaled, offset, output, least, most = (tf.cast(each, tf.float64) for each in (*goal, least, most))
    # In pixels of the result times the box: the only division is the last step.
    moved = (points - start) * scaled + offset * box
    clipped = tf.clip_by_value(moved, least * box, most * box)
    return clipped / (output * box), tf.reduce_all(clipped == moved, 1)


def features(description: PlacesDescription, stored: Parts) -> Parts:
    """Pads with zeros: float32 [rows, objects, *shape], and the number of objects as the part `length`."""
    numbers, shape = stored[""], description.shape
    objects = tf.reshape(numbers.flat_values, [-1, *shape])
    splits = numbers.row_splits // math.prod(shape)
    return padded(description, tf.RaggedTensor.from_row_splits(objects, splits, validate=False))
