"""Random mixtures of a batch's rows in a TensorFlow graph, as `augment_batches` makes them: equal bit for bit.

>>> features, label = apply_batch(MixUp(num_classes=10), features, label, uniforms)  # doctest: +SKIP
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from recordmill.transforms.numpy.augment_batches import BatchAugmentation, CutMix, MixUp
from recordmill.transforms.tensorflow.augment import TENSORFLOW


def apply_batch(
    change: BatchAugmentation, features: Mapping[str, tf.Tensor], label: tf.Tensor | None, uniforms: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
    """Mixes a batch's rows; arguments, results and errors as of `BatchAugmentation.apply`, but for tensors."""
    parameters = tf.numpy_function(change.draw, [uniforms], tf.float64, stateful=False)  # roots and cosines are NumPy's
    names = change.mixed({name: feature.shape.rank for name, feature in features.items()})
    mixed = [_MIXTURES[type(change)](change, tf.transpose(parameters), features[name]) for name in names]
    features = {**features, **{name: batch for name, (batch, _) in zip(names, mixed, strict=True)}}
    if label is None:
        return features, None
    change.check_label(label.shape, label.dtype.name)
    label = tf.one_hot(label, change.num_classes) if label.dtype.is_integer else tf.cast(label, tf.float32)
    own = _beside(tf.cast(mixed[0][1], tf.float32), label)
    return features, own * label + (1.0 - own) * _next(label)


def _next(rows: tf.Tensor) -> tf.Tensor:
    return tf.roll(rows, -1, 0)


def _beside(numbers: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """One number a row, [rows], in as many dimensions as the rows have."""
    return tf.reshape(numbers, [-1, *[1] * (rows.shape.rank - 1)])


def _mix_up(change: MixUp, values: tf.Tensor, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    own, levels = _beside(tf.cast(values[0], tf.float32), batch), tf.cast(batch, tf.float32)
    mixed = levels * own + _next(levels) * (1.0 - own)
    return tf.cast(mixed + 0.5 if batch.dtype == tf.uint8 else mixed, batch.dtype), values[0]


def _cut_mix(change: CutMix, values: tf.Tensor, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    height, width = tf.unstack(tf.cast(tf.shape(batch)[-3:-1], tf.float64))
    y, x, high, wide = (each[:, tf.newaxis] for each in change.window(values, height, width, TENSORFLOW))
    rows, columns = tf.range(height), tf.range(width)
    down, across = (rows >= y) & (rows < y + high), (columns >= x) & (columns < x + wide)
    cut = down[:, :, tf.newaxis] & across[:, tf.newaxis]  # [rows, height, width]
    shape = [-1, *[1] * (batch.shape.rank - 4), *tf.unstack(tf.shape(batch)[-3:-1]), 1]
    pixel = 1.0 / (height * width)
    return tf.where(tf.reshape(cut, shape), _next(batch), batch), (1.0 - high * wide * pixel)[:, 0]


_MIXTURES: dict[type, Callable[[Any, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]] = {
    MixUp: _mix_up,
    CutMix: _cut_mix,
}
"""Give the batch mixed, and each row's own share, float64 [rows], by the parameters, float64 [numbers, rows]."""
