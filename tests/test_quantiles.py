"""Quantiles: equal to NumPy's for few values, else within the stated bound, in any order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.dataset.histogram import LIMIT as MOST_VALUES
from recordmill.pipeline.dataset.histogram import Histogram

FLOAT = st.floats(width=32, allow_nan=False, allow_infinity=False)
FLOATS = st.lists(FLOAT | st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5]), min_size=1, max_size=60)
LIMIT = 16  # a histogram of so many values is coarse


def histogram(values: list[float], size: int = 60, limit: int = 1 << 17) -> Histogram:
    parts = [Histogram.of(np.float32(values[start : start + size])) for start in range(0, len(values), size)]
    return Histogram.merged(parts, limit)


def content(seen: Histogram) -> tuple[int, list[int], list[int]]:
    return seen.lost, seen.keys.tolist(), seen.counts.tolist()


@given(FLOATS, st.integers(2, 12))
def test_quantiles_are_numpys(values: list[float], buckets: int) -> None:
    ordered, seen = np.sort(np.float32(values).astype(np.float64)), histogram(values)
    assert (seen.median(), seen.relative_error) == (float(np.median(ordered)), 0.0)
    shares = np.arange(1, buckets) / buckets
    after = ordered[np.arange(1, buckets) * len(ordered) // buckets]  # the first value of the upper part
    assert (after >= np.quantile(ordered, shares, method="inverted_cdf")).all()
    assert seen.boundaries(buckets) == sorted({*after.tolist()} - {ordered[0]})


@given(st.sets(FLOAT, min_size=1, max_size=60), st.integers(2, 12))
def test_buckets_of_different_values_differ_by_one_value_at_most(values: set[float], buckets: int) -> None:
    boundaries = histogram(list(values)).boundaries(buckets)
    sizes = np.bincount(np.searchsorted(boundaries, [*values], side="right"), minlength=len(boundaries) + 1)
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == min(buckets, len(values))


@given(FLOATS, st.integers(2, 12), st.randoms(use_true_random=False), st.integers(1, 7))
def test_coarse_quantiles_keep_the_bound_and_do_not_depend_on_order_batches_or_workers(
    values: list[float], buckets: int, random, size: int
) -> None:
    seen, shuffled = histogram(values, limit=LIMIT), random.sample(values, len(values))
    parts = [histogram(shuffled[start : start + size], 3, LIMIT) for start in range(0, len(values), size)]
    workers = [Histogram.merged(parts[0::2], LIMIT), Histogram.merged(parts[1::2], LIMIT)]
    assert content(Histogram.merged(workers[::-1], LIMIT)) == content(seen)
    assert len(seen.counts) <= LIMIT
    exact = np.sort(np.float32(values).astype(np.float64))
    found = np.array(seen.at(range(len(values))))
    assert (np.abs(found) <= np.abs(exact)).all()  # nearer to 0
    smallest = 2.0**-126
    assert (np.abs(found - exact) <= seen.relative_error * np.maximum(np.abs(exact), smallest)).all()
    assert seen.boundaries(buckets) == sorted({*seen.boundaries(buckets)})


def test_a_histogram_loses_no_more_than_it_must() -> None:
    values = [1 + place / 1024 for place in range(256)]
    for limit, lost in ((256, 0), (255, 14), (64, 15), (1, 21)):
        assert histogram(values, 7, limit).lost == lost


def test_all_floats_there_are_fit() -> None:
    magnitudes = np.arange(0x7F80_0000 >> 15, dtype=np.int64)
    keys = np.unique([-magnitudes, magnitudes])
    seen = Histogram.merged([Histogram(15, keys, np.ones_like(keys))])
    assert (len(seen.keys), seen.lost) == (len(keys), 15)
    assert len(keys) < MOST_VALUES


def test_equal_values_and_none() -> None:
    assert (histogram([]).median(), histogram([]).boundaries(4)) == (0.0, [])
    assert (histogram([-0.0, 0.0]).boundaries(2), histogram([3.0] * 9).boundaries(4)) == ([], [])
    assert histogram([0.0] * 90 + [1.0, 2.0] * 5).boundaries(20) == [1.0, 2.0]
