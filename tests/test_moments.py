"""The statistics of numbers, summed by several workers: the same whatever the order, and only what is wanted."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipeline.build.beam.moments import MomentsSeen, SumMoments, report_moments, width
from recordmill.pipeline.dataset.atomic_files import read_report
from recordmill.transforms.tensorflow.kind import RequestedStatistics

FEATURES = {
    "plain": RequestedStatistics(),
    "range": RequestedStatistics(extremes=True),
    "bucket": RequestedStatistics(buckets=4),
    "middle": RequestedStatistics(extremes=True, median=True),
}
MOMENTS = {"mean": 3.0, "variance": 3.5, "count": 4}
EXPECTED = {
    "plain": MOMENTS,
    "range": {**MOMENTS, "minimum": 1.0, "maximum": 6.0},
    "bucket": {**MOMENTS, "boundaries": [2.0, 3.0, 6.0], "relative_error": 0.0},
    "middle": {**MOMENTS, "minimum": 1.0, "maximum": 6.0, "median": 2.5, "relative_error": 0.0},
}
SCALE = 1 / math.sqrt(3.5)
GRAPH = {
    "plain": [3, SCALE, 1, 0.2, 0, *[math.inf] * 3],
    "range": [3, SCALE, 1, 0.2, 0, *[math.inf] * 3],
    "bucket": [3, SCALE, 1, 0.2, 0, 2, 3, 6],
    "middle": [3, SCALE, 1, 0.2, 2.5, *[math.inf] * 3],
}
BATCHES = [[2.0], [], [6.0, 1.0], [3.0]]


def summed(batches: list[list[float]], workers: int) -> MomentsSeen:
    combine = SumMoments(FEATURES, ())
    parts = [combine.create_accumulator() for _ in range(workers)]
    for place, values in enumerate(batches):
        batch = (np.array([1, len(values)]), *[np.array(values, np.float32)] * len(FEATURES))
        combine.add_input(parts[place % workers], batch)
    return combine.extract_output(combine.merge_accumulators(parts))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batches", [BATCHES, BATCHES[::-1], [[6.0, 3.0, 2.0, 1.0]]])
def test_what_is_wanted_is_reported_and_given_to_the_graph(
    batches: list[list[float]], workers: int, tmp_path: Path
) -> None:
    given = report_moments(summed(batches, workers), FEATURES, (), str(tmp_path))
    report: Any = read_report(str(tmp_path), "moments")
    assert report == {"rows": 4 + len(batches), "moments": EXPECTED}
    assert given.shape == (len(FEATURES) + 1, width(FEATURES)) == (5, 8)
    assert dict(zip(GRAPH, given.tolist(), strict=False)) == GRAPH


def test_no_values_leave_numbers_as_they_are(tmp_path: Path) -> None:
    given = report_moments(summed([], 2), FEATURES, (), str(tmp_path))
    assert given.tolist() == [[0, 1, 0, 1, 0, *[math.inf] * 3]] * 4 + [[math.inf] * 8]
    assert width({}) == 5


def test_only_quantiles_pay_for_a_histogram() -> None:
    histograms = [len(sums) == 2 for sums in summed(BATCHES, 1).values]
    assert histograms == [False, False, True, True]
