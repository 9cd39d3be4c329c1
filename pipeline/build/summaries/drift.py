"""The distance of a build's rows from those that a frozen analysis was learned from.

Shifts are in standard deviations of the values that the graph was made of, so that any two features compare.
"""

import math
from collections.abc import Mapping
from typing import Any

from recordmill.pipeline.build.frozen import LiveAnalysis
from recordmill.pipeline.build.summaries.look import Look, Sums
from recordmill.pipeline.build.summaries.moments import Moments
from recordmill.pipeline.build.summaries.pixels import Pixels
from recordmill.pipeline.build.summaries.quantiles import Quantiles

Drift = dict[str, dict[str, Any]]
"""Figures by feature, as `dataset.json` holds them."""


def drift_of(look: Look, done: Sums, frozen: LiveAnalysis) -> Drift:
    """Compares the numbers and the images of a finished look with those that the graph was made of."""
    drift: Drift = {}
    for kind, compare in ((Moments, _number), (Quantiles, _median), (Pixels, _image)):
        for name, found in look.result(kind.name, done, {}).items():
            if figures := compare(found, frozen.statistics.get(name, {})):
                drift.setdefault(name, {}).update(figures)
    return drift


def _number(found: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    if not found["count"] or not learned.get("count"):
        return {}
    figures = {"count": found["count"], **_moments(found, learned)}
    extent = learned.get("maximum", 0.0) - learned.get("minimum", 0.0)
    if extent > 0:
        for name in ("minimum", "maximum"):
            figures[f"scaled_{name}"] = (found[name] - learned["minimum"]) / extent
    return figures


def _median(found: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    if "median" not in found or "median" not in learned:
        return {}
    return {"median_shift": _shift(found["median"], learned["median"], learned["variance"])}


def _image(found: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    if not found["images"] or not learned.get("images"):
        return {}
    both = zip(found["mean"], found["variance"], learned["mean"], learned["variance"], strict=True)
    channels = [
        _moments({"mean": mean, "variance": variance}, {"mean": before, "variance": spread})
        for mean, variance, before, spread in both
    ]
    return {"images": found["images"]} | {key: [channel[key] for channel in channels] for key in channels[0]}


def _moments(found: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "mean_shift": _shift(found["mean"], learned["mean"], learned["variance"]),
        "variance_ratio": found["variance"] / learned["variance"] if learned["variance"] > 0 else None,
    }


def _shift(value: float, before: float, variance: float) -> float:
    return (value - before) / (math.sqrt(variance) if variance > 0 else 1.0)
