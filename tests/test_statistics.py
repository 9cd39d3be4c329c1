"""Exact statistics: equal to arithmetic in fractions, whatever the order and the batches."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.summaries.numbers import added, extremes, mean_and_variance, sums
from recordmill.pipeline.build.summaries.words import most_frequent

FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=60)
SPECIAL = {
    "zeros": [0.0, -0.0],
    "smallest denormals": [1e-45, -1e-45, 3e-45],
    "denormal beside normal": [1.1754942e-38, 1.17549435e-38],
    "largest": [3.4028235e38, -3.4028235e38, 3.4028235e38],
    "huge beside tiny": [3e38, 1e-45, -3e38],
    "one value": [0.1],
    "equal": [0.1] * 1000,
    "a float64 sum of squares would lose all": [16777215.0, 16777216.0],
}


def moments(values: list[float]) -> pa.Table:
    return sums("x", np.array(values, np.float32))


def rows(table: pa.Table) -> list[str]:
    """Sorts the rows, including the signs of zeros."""
    return sorted(map(repr, table.to_pylist()))


def exact(values: list[float]) -> tuple[float, float]:
    fractions = [Fraction(float(value)) for value in np.array(values, np.float32)]
    mean = sum(fractions, Fraction()) / len(fractions)
    return float(mean), float(sum((value - mean) ** 2 for value in fractions) / len(fractions))


@pytest.mark.parametrize("name", SPECIAL)
def test_moments_of_special_values_are_exact(name: str) -> None:
    assert mean_and_variance(moments(SPECIAL[name])) == exact(SPECIAL[name])


@given(FLOATS)
def test_moments_are_exact(values: list[float]) -> None:
    assert mean_and_variance(moments(values)) == exact(values)


@given(FLOATS)
def test_extremes_are_exact_and_zero_has_no_sign(values: list[float]) -> None:
    floats = np.array(values, np.float32)
    assert extremes(moments(values)) == (floats.min(), floats.max())
    assert [str(extremes(moments(zeros))) for zeros in ([-0.0, 0.0], [0.0, -0.0], [])] == ["(0.0, 0.0)"] * 3


@given(FLOATS, st.randoms(use_true_random=False), st.integers(1, 7))
def test_moments_do_not_depend_on_order_batches_or_workers(values: list[float], random, size: int) -> None:
    shuffled = random.sample(values, len(values))
    batches = [moments(shuffled[start : start + size]) for start in range(0, len(values), size)]
    workers = [added(batches[0::2]), added(batches[1::2]), added([])]  # the third sees nothing
    assert rows(added([added(workers[1:]), workers[0]])) == rows(moments(values))


def test_moments_take_values_of_any_shape_none_and_many_of_one_exponent() -> None:
    assert mean_and_variance(sums("x", np.zeros((0,), np.float32))) == (0.0, 1.0)
    summed = sums("x", np.array([[1, 2], [3, 6]], np.float32))
    assert (sum(summed["count"].to_pylist()), *mean_and_variance(summed)) == (4, 3.0, 3.5)
    values = np.full(200_000, np.float32(1.9999999))
    assert mean_and_variance(added([sums("x", values)] * 50)) == (float(values[0]), 0.0)


COUNTS = {b"b": 2, b"a": 2, "ü".encode(): 2, b"rare": 1, b"the": 9, b"": 50, b" ": 50, b"x\ny": 50, b"x\ry": 50}


@pytest.mark.parametrize(("top_k", "minimum", "most"), [(None, 1, 5), (2, 1, 2), (100, 1, 5), (None, 2, 4), (3, 10, 0)])
def test_the_most_frequent_words_come_first(top_k: int | None, minimum: int, most: int) -> None:
    words = [b"the", "ü".encode(), b"b", b"a", b"rare"][:most]
    assert most_frequent(COUNTS, top_k, minimum) == [(COUNTS[word], word) for word in words]
