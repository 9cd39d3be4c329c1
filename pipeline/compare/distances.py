"""Distances between two distributions, given as counts.

>>> l_infinity({"cat": 90, "dog": 10}, {"cat": 80, "dog": 20})
(0.1, 'dog')
>>> jensen_shannon([1, 0], [0, 1])
1.0
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from recordmill.pipeline.dataset.histogram import Histogram

BINS = 10
SMALLEST_SHARE = 1e-4
Shares = npt.NDArray[np.float64]
Counts = Sequence[int] | npt.NDArray[np.int64]
Name = TypeVar("Name")


def l_infinity(before: Mapping[Name, int], after: Mapping[Name, int]) -> tuple[float, Name]:
    """Returns the largest difference between the shares of one name, 0 to 1, and the name; of equal ones the last.

    Both are counts by name, with a positive sum. `LInftyDistance` of TensorFlow Data Validation: each side is divided
    by its total (`anomalies/metrics.cc`, `MaxNormalizedDifference` with `kSeparateTotal`).
    """
    names, *counts = aligned(before, after)
    old, new = map(_shares, counts)
    differences = abs(new - old).round(12)  # keeps equal differences equal
    largest = len(names) - 1 - int(np.argmax(differences[::-1]))
    return float(differences[largest]), names[largest]


def aligned(before: Mapping[Name, int], after: Mapping[Name, int]) -> tuple[list[Name], list[int], list[int]]:
    """Returns all names, and their counts on both sides, in one order."""
    names = [*dict.fromkeys([*before, *after])]
    return names, [before.get(name, 0) for name in names], [after.get(name, 0) for name in names]


def jensen_shannon(before: Counts, after: Counts) -> float:
    """Returns the Jensen–Shannon divergence to the base 2: 0 for equal distributions, 1 for disjoint ones.

    Lin, Divergence measures based on the Shannon entropy (1991): `(D(P‖M) + D(Q‖M)) / 2` with `M = (P + Q) / 2` and the
    Kullback–Leibler divergence `D`; `JensenShannonDivergence` of TensorFlow Data Validation (`anomalies/metrics.cc`)
    gives the same number for the same bins. Only its square root is a metric. Both are counts of the same bins, each
    with a positive sum.
    """
    old, new = _shares(before), _shares(after)
    middle = (old + new) / 2
    return min(max((_kullback_leibler(old, middle) + _kullback_leibler(new, middle)) / 2, 0.0), 1.0)


def _kullback_leibler(of: Shares, other: Shares) -> float:
    there = of > 0
    return float((of[there] * np.log2(of[there] / other[there])).sum())


def population_stability_index(before: Counts, after: Counts) -> float:
    """Returns the population stability index: the sum of `(q - p) ln(q / p)` over bins with shares p and q.

    Siddiqi, Credit Risk Scorecards (2006): below 0.1 little has moved, above 0.25 much. It is the symmetric
    Kullback–Leibler divergence (Jeffreys) in nats. Shares are at least 0.0001, to keep empty bins finite. Counts as for
    `jensen_shannon`.
    """
    old, new = (np.maximum(_shares(counts), SMALLEST_SHARE) for counts in (before, after))
    return float(((new - old) * np.log(new / old)).sum())


def standardized_shifts(before: Sequence[float], variances: Sequence[float], after: Sequence[float]) -> list[float]:
    """Returns each channel's shift of the mean, in standard deviations before (Glass's Δ, 1976); 0 counts as 1."""
    deviations = [math.sqrt(variance) or 1.0 for variance in variances]
    return [(new - old) / scale for old, scale, new in zip(before, deviations, after, strict=True)]


def middle_shift(before: Histogram, after: Histogram) -> float:
    """Returns the shift of the middle half's mean beyond chance, relative to the middle 80 % of the values before.

    Repeated values make a median jump, and outliers move a mean. Chance is three standard errors (Tukey and McLaughlin,
    1963: a trimmed mean's, by the winsorized variance). A range of 0 counts as 1. Both need at least one value.
    """
    count = int(before.counts.sum())
    low, high = before.at([count // 10, count * 9 // 10])
    (old, error), (new, other_error) = map(_middle, (before, after))
    return max(0.0, abs(new - old) - 3 * math.hypot(error, other_error)) / (high - low or 1.0)


def _middle(histogram: Histogram) -> tuple[float, float]:
    """Returns the mean of the middle half of at least one value, and its standard error."""
    values, counts, count = histogram.values, histogram.counts, int(histogram.counts.sum())
    inside = np.diff(np.clip(4 * np.cumsum(counts), count, 3 * count), prepend=count)
    low, high = histogram.at([count // 4, count * 3 // 4])
    clipped = np.clip(values, low, high)
    squares = (counts * (clipped - (counts * clipped).sum() / count) ** 2).sum()
    return float((inside * values).sum() / (2 * count)), 2 * math.sqrt(squares) / count


def _shares(counts: Counts) -> Shares:
    array = np.asarray(counts, np.float64)
    return array / array.sum()


def binned(before: Histogram, after: Histogram) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Counts two histograms in the same bins: tenths of the values before, and one below and one above all of them.

    Equal values share a bin: repeated values make fewer bins. The bounds are the coarser histogram's.
    """
    old, new = Histogram.coarsened([before, after])
    ranks = [len_ * int(old.counts.sum()) // BINS for len_ in range(1, BINS)]
    starts = old.keys[np.searchsorted(np.cumsum(old.counts), ranks, side="right")]
    edges = np.unique(np.concatenate([old.keys[:1], starts, old.keys[-1:] + 1]))
    return _counted(old, edges), _counted(new, edges)


def _counted(histogram: Histogram, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    bins: Any = np.searchsorted(edges, histogram.keys, side="right")
    return np.bincount(bins, histogram.counts, len(edges) + 1).astype(np.int64)
