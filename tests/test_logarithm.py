"""The logarithm: as exact as the C library's, with the same bits anywhere in any batch."""

import numpy as np
import pytest
import tensorflow as tf

from recordmill.transforms.values.values_graph import log, log1p
from tests.running import BOTH_WAYS, Run

RANDOM = np.random.default_rng(5)
BITS = RANDOM.integers(0x0080_0000, 0x7F7F_FFFF, 30_000).astype(np.int32).view(np.float32)
NEAR = np.exp(RANDOM.normal(0, 1, 30_000)).astype(np.float32)
EDGES = np.float32(
    [2.0**-126, 0.5, 0.70710677, 0.7071068, 0.99999994, 1.0, 1.0000001, 1.4142135, 1.4142137, 2.0, 3.4e38]
)
VALUES = np.concatenate([EDGES, BITS, NEAR]).astype(np.float64)
TINY = np.concatenate([[0.0, -0.0, -0.99999994, 1e-45], RANDOM.normal(0, 1e-7, 1000)]).astype(np.float32)
FUNCTIONS = [
    pytest.param(log, np.log, VALUES, id="log"),
    pytest.param(log1p, np.log1p, np.concatenate([VALUES, TINY.astype(np.float64)]), id="log1p"),
]


@BOTH_WAYS
@pytest.mark.parametrize(("ours", "exact", "values"), FUNCTIONS)
def test_it_is_as_exact_as_the_c_librarys(ours, exact, values: np.ndarray, run: Run) -> None:
    found, expected = run(ours, tf.constant(values)).numpy(), exact(values)
    assert (np.abs(found - expected) <= np.spacing(np.abs(expected))).all()
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(("ours", "exact", "values"), FUNCTIONS)
def test_a_value_has_the_same_bits_at_every_place_of_batches_of_every_length(ours, exact, values: np.ndarray) -> None:
    whole = ours(tf.constant(values)).numpy()
    for run in (ours, tf.function(ours, input_signature=[tf.TensorSpec([None], tf.float64)])):
        for length in range(1, 71):
            start = 97 * length
            part = run(tf.constant(values[start : start + length])).numpy()
            assert part.tobytes() == whole[start : start + length].tobytes()
            moved = run(tf.constant(np.roll(values[:70], length))).numpy()  # each value at each place
            assert moved.tobytes() == np.roll(whole[:70], length).tobytes()


def test_no_values_give_none_and_any_shape_stays() -> None:
    assert log(tf.zeros([0], tf.float64)).shape == [0]
    np.testing.assert_array_equal(log1p(tf.zeros([2, 3], tf.float64)), np.zeros((2, 3)))
