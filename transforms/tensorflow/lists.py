"""Lists of values in a row, of any kind: each value prepared as one of its kind, padded when they are read."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.kinds.base import ListDescription, Padded
from recordmill.transforms.contract.stored import UNENCODED
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics


def each(prepare: Callable[[Any, Any, Context], Prepared]) -> Callable[[Any, Any, Context], Prepared]:
    """Makes of a kind's `prepare` that of its lists, ragged [rows, None].

    The first `max_length` values of a list are prepared, each as a value of the kind. A missing list is an empty one,
    so no value is missing.
    """

    def prepare_lists(options: Any, column: tf.RaggedTensor, context: Context) -> Prepared:
        kept = cut(options.max_length, column)
        values = prepare(replace(options, optional=False), kept.flat_values, context)

        def store(statistics: Statistics) -> Parts:
            parts = values.store(statistics)
            return {part: kept.with_flat_values(parts[part]) for part in ("", UNENCODED) if part in parts}

        return replace(values, store=store, geometry=None)

    return prepare_lists


def cut(max_length: int | None, column: tf.RaggedTensor) -> tf.RaggedTensor:
    """Keeps the first `max_length` values of each row, or all."""
    return column if max_length is None else column[:, :max_length]


def padded(description: Padded, values: tf.RaggedTensor, padding: Any = None) -> Parts:
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


def features(description: ListDescription, stored: Parts) -> Parts:
    """Pads with 0, and gives the part `length` where it varies (`padded`)."""
    return padded(description, stored[""])
