"""Distances between distributions: definitions and common properties."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.compare.distributions import (
    binned,
    jensen_shannon,
    l_infinity,
    middle_shift,
    population_stability_index,
)
from recordmill.pipeline.dataset.histogram import Histogram

COUNTS = st.integers(2, 12).flatmap(
    lambda bins: st.tuples(
        *[st.lists(st.integers(0, 1000), min_size=bins, max_size=bins).filter(any) for _ in range(2)]
    )
)
FLOATS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=200)


def named(counts: list[int]) -> dict[int, int]:
    return dict(enumerate(counts))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1, "b": 1}, {"a": 3, "b": 1}, (0.25, "b")),  # TFDV's metrics_test.cc: shares, not counts, are compared
        ({"a": 1}, {"b": 5}, (1.0, "b")),
        ({"a": 7, "b": 3}, {"a": 70, "b": 30}, (0.0, "b")),
        ({"a": 98, "rare": 2}, {"a": 100}, (0.02, "rare")),
    ],
)
def test_l_infinity(before: dict[str, int], after: dict[str, int], expected: tuple[float, str]) -> None:
    assert l_infinity(before, after) == expected


def test_jensen_shannon_and_population_stability_index_are_those_of_their_definitions() -> None:
    expected = (math.log2(0.5 / 0.375) * 0.5 + math.log2(0.5 / 0.625) * 0.5) / 2
    expected += (math.log2(0.25 / 0.375) * 0.25 + math.log2(0.75 / 0.625) * 0.75) / 2
    assert jensen_shannon([5, 5], [10, 30]) == pytest.approx(expected)
    assert jensen_shannon([1, 0], [0, 1]) == 1.0
    assert jensen_shannon([2, 1, 0], [0, 1, 2]) == pytest.approx(2 / 3)  # bins of one side alone count by their share
    expected = (0.25 - 0.5) * math.log(0.25 / 0.5) + (0.75 - 0.5) * math.log(0.75 / 0.5)
    assert population_stability_index([5, 5], [10, 30]) == pytest.approx(expected)
    empty = (0.5 - 1.0) * math.log(0.5) + (0.5 - 1e-4) * math.log(0.5 / 1e-4)
    assert population_stability_index([10, 0], [5, 5]) == pytest.approx(empty)


WIDE = np.random.default_rng(7).lognormal(3, 0.9, 4000)


@pytest.mark.parametrize(
    ("before", "after", "least", "most"),
    [
        (WIDE, WIDE, 0, 0),
        (WIDE[:2000], WIDE[2000:], 0, 0.01),  # chance
        (WIDE, WIDE * 1.3, 0.05, 0.2),  # where psi is below 0.25
        (WIDE > 20, WIDE[::-1] > 19.5, 0, 0.01),  # two values: a median would jump from one to the other
        (np.zeros(500), np.full(500, 0.1), 0.1, 0.11),  # a constant counts in its own units
        (WIDE, np.append(WIDE, [1e30] * 400), 0, 0.05),  # outliers
        (np.ones(1), np.ones(1), 0, 0),
    ],
)
def test_the_middle_shifts_by_more_than_chance(before: Any, after: Any, least: float, most: float) -> None:
    old, new = (Histogram.of(np.asarray(each, np.float32)) for each in (before, after))
    assert least <= middle_shift(old, new) <= most


@given(COUNTS)
def test_all_are_bounded_symmetric_and_nothing_between_equals(both: tuple[list[int], list[int]]) -> None:
    before, after = both
    for distance in (jensen_shannon, population_stability_index):
        assert distance(before, before) == pytest.approx(0, abs=1e-12)
        assert distance(before, after) == pytest.approx(distance(after, before), abs=1e-12)
        assert distance(before, [2 * count for count in before]) == pytest.approx(0, abs=1e-12)
    largest = l_infinity(named(before), named(after))[0]
    assert l_infinity(named(before), named(before))[0] == 0
    assert largest == l_infinity(named(after), named(before))[0]
    assert 0 <= largest**2 / (2 * math.log(2)) <= jensen_shannon(before, after) * 4 + 1e-9  # Pinsker, for both halves
    assert jensen_shannon(before, after) <= 1
    assert population_stability_index(before, after) >= 0


@given(FLOATS, FLOATS)
def test_bins_hold_every_value_and_the_outer_ones_what_is_new(before: list[float], after: list[float]) -> None:
    old, new = np.array(before, np.float32), np.array(after, np.float32)
    old_counts, new_counts = binned(Histogram.of(old), Histogram.of(new))
    assert (old_counts.sum(), new_counts.sum()) == (len(old), len(new))
    assert (old_counts[0], old_counts[-1]) == (0, 0)
    assert (new_counts[0], new_counts[-1]) == ((new < old.min()).sum(), (new > old.max()).sum())
    assert len(old_counts) <= 12


def test_histograms_of_other_detail_are_compared_in_the_coarser_bins() -> None:
    values = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    fine, coarse = Histogram.of(values), Histogram.merged([Histogram.of(values)], limit=256)
    assert coarse.lost > fine.lost
    assert population_stability_index(*binned(fine, coarse)) == 0
