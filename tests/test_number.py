"""Numbers' graph: z-scores of the same bits in any batch, or the number itself."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.running import BOTH_WAYS, Run
from transforms import number
from transforms.kind import Found

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
EDGES = [0.0, -0.0, 1.0, 0.1, -3.4028235e38, 3.4028235e38, 1.17549435e-38, 16777217.0]


def stored(values: Any, mean: float = 0.0, scale: float = 1.0, normalize: str = "z_score") -> tf.Tensor:
    column = tf.convert_to_tensor(values, tf.float32)
    found = Found(mean=tf.constant(mean, tf.float64), scale=tf.constant(scale, tf.float64))
    return number.prepare({"normalize": normalize}, column, tf.ones_like(column, tf.bool)).store(found)


def bits(values: Any) -> list[int]:
    return np.asarray(values, np.float32).view(np.uint32).tolist()


@BOTH_WAYS
def test_a_z_score_is_computed_in_float64(run: Run) -> None:
    mean, scale = 0.1, 1 / 3
    found = run(lambda values: stored(values, mean, scale), tf.constant(EDGES, tf.float32))
    expected = ((np.array(EDGES, np.float32).astype(np.float64) - mean) * scale).astype(np.float32)
    assert found.dtype == tf.float32
    assert bits(found) == bits(expected)


@settings(max_examples=40)
@given(st.lists(FLOATS, min_size=1, max_size=40), FLOATS, st.floats(1e-3, 1e3))
def test_a_z_score_does_not_depend_on_its_batch(values: list[float], mean: float, scale: float) -> None:
    together = stored(values, mean, scale)
    assert bits(together) == [bits(stored([value], mean, scale))[0] for value in values]


@BOTH_WAYS
def test_without_normalization_a_number_is_itself(run: Run) -> None:
    edges = [*EDGES, 1e-45, float("inf")]
    found = run(lambda values: stored(values, 5.0, 2.0, "none"), tf.constant(edges, tf.float32))
    assert bits(found) == bits(edges)
    assert bits(number.finish({}, found)) == bits(edges)


@pytest.mark.parametrize(("normalize", "values"), [("z_score", [1.0, 3.0]), ("none", None)])
def test_the_moments_are_those_of_the_train_split(normalize: str, values: list[float] | None) -> None:
    column, train = tf.constant([1.0, 2.0, 3.0]), tf.constant([True, False, True])
    found = number.prepare({"normalize": normalize}, column, train).values
    assert (None if found is None else found.numpy().tolist()) == values


@pytest.mark.parametrize("normalize", ["z_score", "none"])
def test_no_rows_give_no_numbers(normalize: str) -> None:
    assert stored(np.zeros(0), normalize=normalize).shape == [0]
