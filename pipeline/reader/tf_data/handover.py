"""Small batches handed over to `tf.data` many at a time: each call of Python costs it more than a batch is to make.

The arrays of several batches lie in one buffer, each at an offset that lets the graph take it out without a copy.

>>> batches = in_groups(lambda: [[np.arange(3)], [np.arange(2)]], [tf.TensorSpec([None], tf.int64)], tuple)
>>> list(batches.as_numpy_iterator())
[(array([0, 1, 2]),), (array([0, 1]),)]
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from recordmill.transforms.numpy.buffers import BatchMemory

MOST_BATCHES = 32
MOST_BYTES = 4 << 20  # 4 MiB of batches wait at most, and a batch that a user keeps holds on to its group
ALIGNMENT = 64  # bytes: TensorFlow copies a piece of a tensor unless it begins and ends at a multiple

Arrays: TypeAlias = Sequence[npt.NDArray[Any]]
"""The arrays of a batch, of numbers, in a fixed order."""


def in_groups(
    begin: Callable[[], Iterable[Arrays]],
    specs: Sequence[tf.TensorSpec],
    structured: Callable[[Sequence[tf.Tensor]], Any],
) -> tf.data.Dataset:
    """Gives batches as a dataset.

    Args:
        begin: begins an iteration over the batches.
        specs: the shape and dtype of each of their arrays; no strings.
        structured: gives the tensors of a batch, which lie in the order of its arrays, the structure of an element.
    """
    memory = BatchMemory()
    widths = [width for spec in specs for width in (1, 1, spec.shape.rank)]

    def groups() -> Iterator[tuple[Any, Any]]:
        return (_joined(group, memory) for group in _grouped(begin()))

    def element(buffer: tf.Tensor, facts: tf.Tensor) -> Any:
        parts = iter(tf.split(facts, widths))
        return structured([_cut(buffer, spec, next(parts), next(parts), next(parts)) for spec in specs])

    def elements(buffer: tf.Tensor, facts: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(facts).map(lambda of_batch: element(buffer, of_batch))

    signature = tf.TensorSpec([None], tf.uint8), tf.TensorSpec([None, sum(widths)], tf.int64)
    return tf.data.Dataset.from_generator(groups, output_signature=signature).prefetch(1).flat_map(elements)


def _grouped(batches: Iterable[Arrays]) -> Iterator[list[Arrays]]:
    """Gives the first batch alone, so that it comes at once, then twice as many each time, up to the limits."""
    group: list[Arrays] = []
    size, most = 0, 1
    try:
        for batch in batches:
            group.append(batch)
            size += sum(array.nbytes for array in batch)
            if len(group) >= most or size >= MOST_BYTES:
                yield group
                group, size, most = [], 0, min(2 * most, MOST_BATCHES)
    except Exception:
        if group:  # the batches before an error come before it
            yield group
        raise
    if group:
        yield group


def _joined(group: Sequence[Arrays], memory: BatchMemory) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Copies arrays into one buffer.

    Returns:
        The buffer, uint8 [bytes], and each batch's facts, int64 [batches, facts]: of each array its offset, its size in
        bytes and its shape.
    """
    facts, size = [], 0
    for batch in group:
        row: list[int] = []
        for array in batch:
            row += size, array.nbytes, *array.shape
            size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        facts.append(row)
    buffer = memory.empty((size,), np.uint8)
    end = 0
    for array in (array for batch in group for array in batch):
        buffer[end : end + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return buffer, np.array(facts, np.int64)


def _cut(buffer: tf.Tensor, spec: tf.TensorSpec, offset: tf.Tensor, size: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Takes an array out of the buffer."""
    tensor = tf.reshape(_typed(tf.slice(buffer, offset, size), spec.dtype), shape)
    tensor.set_shape(spec.shape)
    return tensor


def _typed(data: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Takes bytes, uint8 [bytes], for values of a dtype, [values]."""
    if dtype == tf.bool:
        return tf.cast(data, dtype)
    return tf.bitcast(data if dtype.size == 1 else tf.reshape(data, (-1, dtype.size)), dtype)
