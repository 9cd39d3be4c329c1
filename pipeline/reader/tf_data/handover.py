"""Batches handed over to `tf.data` several at a time: a call of Python costs it as much as many a batch takes to make.

No array is copied that lies at an address which TensorFlow can use, as those of `BatchMemory` do.

>>> batches = in_groups(lambda: [[np.arange(3)], [np.arange(2)]], [tf.TensorSpec([None], tf.int64)], tuple, most=8)
>>> list(batches.as_numpy_iterator())
[(array([0, 1, 2]),), (array([0, 1]),)]
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy.typing as npt
import tensorflow as tf

MOST_BYTES = 16 << 20  # 16 MiB: larger batches do not wait for each other

Arrays: TypeAlias = Sequence[npt.NDArray[Any]]
"""The arrays of a batch, in a fixed order."""


def in_groups(
    begin: Callable[[], Iterable[Arrays]],
    specs: Sequence[tf.TensorSpec],
    structured: Callable[[Sequence[tf.Tensor]], Any],
    most: int,
) -> tf.data.Dataset:
    """Gives batches as a dataset.

    Args:
        begin: begins an iteration over the batches.
        specs: the shape and dtype of each of their arrays.
        structured: gives the tensors of a batch, which lie in the order of its arrays, the structure of an element.
        most: the batches of a call of Python.
    """

    def groups() -> Iterator[tuple[tuple[Any, ...], int]]:
        for group in _grouped(begin(), most):
            filled = [*group, *[group[-1]] * (most - len(group))]  # each call has as many tensors
            yield tuple(array for batch in filled for array in batch), len(group)

    def elements(arrays: Sequence[tf.Tensor], count: tf.Tensor) -> tf.data.Dataset:
        starts = range(0, len(arrays), len(specs))
        batches = [structured(arrays[start : start + len(specs)]) for start in starts]
        return tf.data.experimental.from_list(batches).take(count)

    signature = tuple(specs) * most, tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(groups, output_signature=signature).prefetch(1).flat_map(elements)


def _grouped(batches: Iterable[Arrays], most: int) -> Iterator[list[Arrays]]:
    """Gives the first batch alone, so that it comes at once, then twice as many each time, up to the limits."""
    group: list[Arrays] = []
    size, limit = 0, 1
    try:
        for batch in batches:
            group.append(batch)
            size += sum(array.nbytes for array in batch)
            if len(group) >= limit or size >= MOST_BYTES:
                yield group
                group, size, limit = [], 0, min(2 * limit, most)
    except Exception:
        if group:  # the batches before an error come before it
            yield group
        raise
    if group:
        yield group
