"""Drift: the distance between a build's rows and those behind a frozen graph."""

import numpy as np

from recordmill.pipeline.compare.distributions import drift_lines, profile_drift, statistics_drift
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import FeatureProfile
from tests.messages import assert_names

LEARNED = {"count": 9, "mean": 10.0, "variance": 4.0, "minimum": 6.0, "maximum": 14.0, "median": 10.0}


def test_shifts_are_in_standard_deviations_of_what_was_learned() -> None:
    new = {"count": 2, "mean": 13.0, "variance": 1.0, "minimum": 12.0, "maximum": 16.0, "median": 14.0}
    assert statistics_drift(LEARNED, new) == {
        "count": 2, "mean_shift": 1.5, "variance_ratio": 0.25, "scaled_minimum": 0.75, "scaled_maximum": 1.25,
        "median_shift": 2.0,
    }  # fmt: skip
    images = {"images": 3, "mean": [1.0, 2.0], "variance": [4.0, 0.0]}
    assert statistics_drift(images, {**images, "mean": [2.0, 1.0]}) == {
        "images": 3, "mean_shift": [0.5, -1.0], "variance_ratio": [1.0, None],
    }  # fmt: skip


def test_without_rows_there_is_no_drift() -> None:
    assert statistics_drift(LEARNED, {"count": 0, "mean": 0.0, "variance": 1.0}) == {}
    assert statistics_drift({}, LEARNED) == {}
    empty = FeatureProfile(histogram=Histogram.of(np.empty(0, np.float32)))
    assert profile_drift({"age": empty}, {"age": empty, "new": empty}) == {}


def test_the_features_that_moved_the_most_are_told_first() -> None:
    learned = {"city": FeatureProfile(4, ids={1: 4}, tokens=4), "same": FeatureProfile(4, ids={1: 4}, tokens=4)}
    new = {"city": FeatureProfile(4, ids={0: 1, 1: 3}, tokens=4, unknown=1), "same": learned["same"]}
    features = profile_drift(learned, new)
    assert features["city"]["l_infinity"] == 0.25
    features["price"] = {"mean_shift": -1.5}
    price, city = drift_lines({"against": "v1", "features": features})
    assert_names(price, "price", "mean -1.50", "v1")
    assert_names(city, "city", "25.00% without an id", "before 0.00%", "Jensen–Shannon 0.138", "v1")
