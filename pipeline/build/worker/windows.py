"""Windows of long texts: several records of a row, after the graph, which knows texts only whole.

As Hugging Face's `return_overflowing_tokens`, with a stride of `length - stride` and no special tokens of its own.

>>> [part.tolist() for part in windows(np.array([0, 9]), Window(length=4, stride=3))]
[[0, 1, 1, 1], [0, 0, 1, 2], [0, 0, 3, 6], [0, 4, 4, 3]]
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from recordmill.pipeline.build.worker.shard_report import Ids, Stored
from recordmill.pipeline.errors import UserError
from recordmill.transforms.contract.kinds.text import WINDOW_PARTS, Window
from recordmill.transforms.contract.stored import part_name, positions_of, splits_of


class Windows(NamedTuple):
    """The windows of some rows, in order; int64 [windows] each."""

    rows: Ids
    numbers: Ids
    """From 0 in each row."""
    starts: Ids
    """The places of their first ids in the rows' ids."""
    sizes: Ids
    """Their numbers of ids."""


def windows(lengths: Ids, window: Window) -> Windows:
    """Cuts texts by their numbers of ids, int64 [rows]: one window or more of each; the last reaches the end."""
    counts = 1 + np.maximum(-(-(lengths - window.length) // window.stride), 0)
    rows = np.repeat(np.arange(len(lengths)), counts)
    numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = numbers * window.stride
    return Windows(rows, numbers, starts, np.minimum(lengths[rows] - starts, window.length))


def expand(stored: Stored, names: Sequence[str], window: Window) -> tuple[Stored, Ids]:
    """Returns the stored tensors of a text's windows, and each window's row; other features are repeated.

    `names` are the text and the labels of its tokens, lists of equal lengths.

    Raises:
        UserError: the text is stored as something else.
    """
    ids = stored.get(names[0])
    if not isinstance(ids, tf.RaggedTensor) or ids.dtype != tf.int64 or ids.ragged_rank != 1:
        raise UserError(f"`preprocessing` stores '{names[0]}' as no list of int64, and its `window` needs one")
    made, first = windows(ids.row_lengths().numpy(), window), ids.row_splits.numpy()
    splits, places = splits_of(made.sizes), positions_of(first[made.rows] + made.starts, made.sizes)
    of_window: dict[str, Any] = {
        name: tf.RaggedTensor.from_row_splits(stored[name].flat_values.numpy()[places], splits, validate=False)
        for name in names
    }
    for part, numbers in zip(WINDOW_PARTS, made[1:3], strict=True):
        of_window[part_name(names[0], part)] = tf.constant(numbers)
    repeated = {name: tf.gather(values, made.rows) for name, values in stored.items() if name not in of_window}
    return {**repeated, **of_window}, made.rows
