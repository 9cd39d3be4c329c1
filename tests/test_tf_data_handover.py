"""Batches handed over to `tf.data` in groups: the same arrays, one batch after another."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from recordmill.pipeline.reader.tf_data import MOST_BYTES, in_groups
from tests.messages import raises

MOST = 8
SPECS = [tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None], tf.float32), tf.TensorSpec([None, 3], tf.uint8)]
SPECS += [tf.TensorSpec([None], dtype) for dtype in (tf.bool, tf.int8, tf.bfloat16, tf.string)]


def drawn(seed: int) -> list[NDArray[Any]]:
    """A batch of arrays with odd sizes, some empty."""
    rng = np.random.default_rng(seed)
    rows, width = rng.integers(0, 9, 2)
    return [
        rng.integers(-(2**40), 2**40, (rows, width)),
        rng.random(rows, np.float32),
        rng.integers(0, 256, (rows, 3), np.uint8),
        rng.random(rows) < 0.5,
        rng.integers(-128, 128, rows, np.int8),
        rng.random(rows, np.float32).astype(tf.bfloat16.as_numpy_dtype),
        np.array([b"word" * number for number in range(rows)], object),
    ]


def handed_over(batches: Any, specs: list[tf.TensorSpec] = SPECS) -> list[Any]:
    return list(in_groups(lambda: batches, specs, tuple, MOST).as_numpy_iterator())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 64, 64 + MOST + 1])
def test_batches_arrive_as_they_are(count: int) -> None:
    expected = [drawn(seed) for seed in range(count)]
    arrived = handed_over(expected)
    assert len(arrived) == count
    for ours, theirs in zip(arrived, expected, strict=True):
        for array, original in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(array, original, strict=True)


def test_arrays_of_any_strides() -> None:
    table = np.arange(12).reshape(3, 4)
    (ours,) = handed_over([[table.T]], [tf.TensorSpec([None, None], tf.int64)])
    np.testing.assert_array_equal(ours[0], table.T)


def test_large_batches_do_not_wait_for_each_other() -> None:
    made: list[int] = []

    def batches() -> Iterator[list[NDArray[Any]]]:
        for number in range(20):
            made.append(number)
            yield [np.zeros(MOST_BYTES, np.uint8)]

    iterator = iter(in_groups(batches, [tf.TensorSpec([None], tf.uint8)], tuple, MOST))
    next(iterator)
    assert len(made) <= 4  # one given out, and those that wait


def test_batches_before_an_error_come_before_it() -> None:
    def batches() -> Iterator[list[NDArray[Any]]]:
        for number in range(6):
            yield [np.array([number])]
        raise ValueError("the seventh is damaged")

    iterator = in_groups(batches, [tf.TensorSpec([1], tf.int64)], tuple, MOST).as_numpy_iterator()
    assert [int(next(iterator)[0][0]) for _ in range(6)] == list(range(6))
    with raises(tf.errors.OpError, "the seventh is damaged"):
        next(iterator)


def test_an_element_has_its_structure_and_shape() -> None:
    spec = tf.TensorSpec([2, None], tf.int64)
    batches = in_groups(lambda: [[np.zeros((2, 5), np.int64)]], [spec], lambda x: {"a": x[0]}, MOST)
    assert batches.element_spec == {"a": spec}
