"""Lists of values in a row, of any kind: cut when they are stored, padded when they are read."""

from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.kinds.base import ListDescription
from recordmill.transforms.contract.kinds.raw import RawDescription
from recordmill.transforms.tensorflow.kind import Parts


def cut(max_length: int | None, column: tf.RaggedTensor) -> tf.RaggedTensor:
    """Keeps the first `max_length` values of each row, or all."""
    return column if max_length is None else column[:, :max_length]


def of_train(column: tf.RaggedTensor, train: tf.Tensor) -> tf.Tensor:
    """Gives the values of the train split's rows, one after another."""
    return tf.boolean_mask(column.flat_values, tf.gather(train, column.value_rowids()))


def padded(description: ListDescription | RawDescription, values: tf.RaggedTensor, padding: Any = None) -> Parts:
    """Pads lists at the end.

    Args:
        description: `length`, a number or `varying`, and `max_length`.
        values: ragged, [rows, None]; [rows, None, …] where values have a shape of their own.
        padding: the value after a list's end; by default 0 or `""`.

    Returns:
        The values of shape [rows, length]; or, where it varies, [rows, max_length], as wide as the longest row
        without a limit, and the part `length`: int64, shape [rows].
    """
    length = description.length
    wide = description.max_length if length == "varying" else length
    full = values.to_tensor(default_value=padding, shape=[None, wide, *values.shape[2:]])
    if length != "varying":
        return {"": full}
    return {"": full, "length": tf.cast(values.row_lengths(), tf.int64)}
