"""Applies random changes to one picture and its boxes in a TensorFlow graph, as `augment_numpy` does.

The parameters are made by NumPy; windows, boxes and colours follow from them by the same exactly rounded operations. So
both engines give equal pixels and boxes, but for pixels that were scaled: these differ by at most 1 of 255 levels, and
more where a later change of colours enlarges that.

>>> pixels = tf.constant([[[1], [2]]], tf.uint8)
>>> apply(pixels, None, [RandomFlip()], tf.constant([1.0, 0.0], tf.float64))[0][..., 0].numpy()
array([[2, 1]], dtype=uint8)
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

from recordmill.transforms.contract.augment import (
    Augmentation,
    CenterCrop,
    ColorJitter,
    OwnFunction,
    RandomCrop,
    RandomCutout,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    Resize,
    by_change,
    output_shape,
)
from recordmill.transforms.contract.augment_places import LEAST_SIDE, Arithmetic, Move, overlap
from recordmill.transforms.contract.color_matrix import mean_grey
from recordmill.transforms.numpy.pixels import nearest_places

TENSORFLOW = Arithmetic(tf.floor, tf.sqrt, tf.minimum, tf.maximum, tf.where)

Scale: TypeAlias = Callable[[tf.Tensor, tuple[int, int]], tf.Tensor]
Change: TypeAlias = Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor]
"""Gives a picture changed, by the change's options and its parameters, float64 [numbers]."""


def apply(
    pixels: tf.Tensor,
    boxes: tf.Tensor | None,
    augmentations: Sequence[Augmentation],
    parameters: tf.Tensor,
    *,
    mask: bool = False,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Changes one picture, eagerly or in a graph.

    Args:
        pixels: uint8 [height, width, c]; c, 1 or 3, is static.
        boxes: float32 [n, 4], y_min, x_min, y_max, x_max, 0 to 1; None for none.
        augmentations: what `transforms.contract.augment.check` gave, without functions of the user's.
        parameters: the picture's row of `transforms.contract.augment.parameters`, float64 [numbers].
        mask: as in `transforms.numpy.augment.apply`.

    Returns:
        The pixels, with the static shape of `output_shape`; and the boxes, float32 [n, 4], as in `augment_numpy`.

    Raises:
        ValueError: there is a function of the user's.
    """
    shape = output_shape(augmentations, tuple(pixels.shape))
    if boxes is not None:
        boxes = move_boxes(boxes, tf.shape(pixels)[:2], augmentations, parameters)
    for change, values in by_change(augmentations, parameters):
        if isinstance(change, OwnFunction):
            raise ValueError(f"augment holds the function {change.function!r}: TensorFlow's engine has none of these")
        if mask and type(change) not in _MASK_CHANGES:
            continue
        pixels = (_MASK_CHANGES if mask else _CHANGES)[type(change)](change, values, pixels)
    return tf.ensure_shape(pixels, shape), boxes


def move_boxes(
    boxes: tf.Tensor, sides: tf.Tensor, augmentations: Sequence[Augmentation], parameters: tf.Tensor
) -> tf.Tensor:
    """Moves the boxes of one picture, float32 [n, 4], as `apply` moves its pixels.

    Args:
        boxes: as in `apply`.
        sides: the picture's height and width before it is changed, numbers of any type [2].
        augmentations: as in `apply`.
        parameters: as in `apply`.
    """
    height, width = tf.unstack(tf.cast(sides, tf.float64))
    moved = tf.clip_by_value(tf.cast(boxes, tf.float64), 0.0, 1.0)
    for change, values in by_change(augmentations, parameters):
        moved = _moved(moved, change.move(values, height, width, TENSORFLOW))
        height, width = (tf.cast(side, tf.float64) for side in change.output_shape((height, width, 3))[:2])
    kept = tf.cast(moved, tf.float32)
    is_box = tf.reduce_all(kept[:, 2:] - kept[:, :2] >= LEAST_SIDE, 1, keepdims=True)
    return tf.where(is_box, kept, 0.0)


def _sides(pixels: tf.Tensor) -> list[tf.Tensor]:
    return tf.unstack(tf.cast(tf.shape(pixels)[:2], tf.float64))


def _whole(numbers: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    return [tf.cast(each, tf.int32) for each in numbers]


def _resized(pixels: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    # Not `tf.image.resize`, which leaves a picture of that size in another type.
    levels = tf.raw_ops.ResizeBilinear(images=pixels[tf.newaxis], size=size, half_pixel_centers=True)[0]
    return tf.cast(levels + 0.5, tf.uint8)


def _nearest(pixels: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    rows, columns = (nearest_places(tf.shape(pixels, tf.int64)[axis], size[axis]) for axis in (0, 1))
    return tf.gather(tf.gather(pixels, rows), columns, axis=1)


def _crop(change: Any, values: tf.Tensor, pixels: tf.Tensor, scale: Scale = _resized) -> tf.Tensor:
    height, width = _sides(pixels)
    y, x, high, wide = change.window(values, height, width, TENSORFLOW)
    if change.scales:
        y, x, high, wide = _whole((y, x, high, wide))
        return scale(pixels[y : y + high, x : x + wide], change.sides)
    top, bottom, above = _whole(overlap(y, high, height, TENSORFLOW))
    left, right, before = _whole(overlap(x, wide, width, TENSORFLOW))
    inside = pixels[top:bottom, left:right]
    down, across = change.sides
    around = [[above, down - (bottom - top) - above], [before, across - (right - left) - before], [0, 0]]
    is_whole = tf.reduce_all(tf.equal(around, 0))  # padding nothing would take as long as padding
    return tf.cond(is_whole, lambda: inside, lambda: tf.pad(inside, around))


def _flip(change: Any, values: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    for axis, mirrored, share in ((1, values[0], change.horizontal), (0, values[1], change.vertical)):
        if share:
            pixels = tf.cond(mirrored > 0, partial(tf.reverse, pixels, [axis]), partial(tf.identity, pixels))
    return pixels


def _rotate(change: Any, values: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    return tf.image.rot90(pixels, tf.cast(change.turns(values, *_sides(pixels), TENSORFLOW), tf.int32))


def _recolor(change: Any, values: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    channels = pixels.shape[2]
    numbers = tf.cast(values, tf.float32)
    rows = tf.reshape(numbers[:1] if channels == 1 else numbers[2:], [channels, channels])
    levels = tf.matmul(tf.reshape(tf.cast(pixels, tf.float32), [-1, channels]), rows, transpose_b=True)
    offset = 0.5 + (numbers[1] * tf.cast(_mean_grey(pixels), tf.float32) if change.contrast else 0.0)
    levels = tf.clip_by_value(levels + offset, 0.0, 255.0)  # the cast cuts off what lies behind the point
    return tf.reshape(tf.cast(levels, tf.uint8), tf.shape(pixels))


def _mean_grey(pixels: tf.Tensor) -> tf.Tensor:
    sums = tf.reduce_sum(tf.cast(pixels, tf.int64), [0, 1])
    return mean_grey(tf.unstack(sums), tf.reduce_prod(tf.shape(pixels, tf.int64)[:2]))


def _cut_out(change: Any, values: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    y, x, high, wide = _whole(change.window(values, *_sides(pixels), TENSORFLOW))
    middle = pixels[y : y + high]
    filled = tf.fill([high, wide, pixels.shape[2]], tf.constant(change.fill, tf.uint8))
    middle = tf.concat([middle[:, :x], filled, middle[:, x + wide :]], 1)
    return tf.concat([pixels[:y], middle, pixels[y + high :]], 0)


_MASK_CHANGES: dict[type, Change] = {
    **dict.fromkeys((RandomResizedCrop, Resize, RandomCrop, CenterCrop), partial(_crop, scale=_nearest)),
    RandomFlip: _flip,
    RandomRotation90: _rotate,
}
_CHANGES: dict[type, Change] = {
    **_MASK_CHANGES,
    **dict.fromkeys((RandomResizedCrop, Resize, RandomCrop, CenterCrop), _crop),
    ColorJitter: _recolor,
    RandomCutout: _cut_out,
}


def _moved(boxes: tf.Tensor, move: Move | None) -> tf.Tensor:
    """Moves both corners, float64 [n, 4], to the picture's edge at most."""
    if move is None:
        return boxes
    corners = tf.reshape(boxes, [-1, 2, 2])
    corners = tf.where(move.swap > 0, tf.reverse(corners, [2]), corners)
    corners = corners * tf.stack([move.scale_y, move.scale_x]) + tf.stack([move.shift_y, move.shift_x])
    corners = tf.clip_by_value(corners, 0.0, 1.0)
    return tf.concat([tf.reduce_min(corners, 1), tf.reduce_max(corners, 1)], 1)
