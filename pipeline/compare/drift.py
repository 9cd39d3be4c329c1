"""The distance of new rows' profile from that of the rows that a frozen analysis was learned from, and its lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.pipeline.compare.distances import (
    aligned,
    binned,
    jensen_shannon,
    l_infinity,
    population_stability_index,
)
from recordmill.pipeline.dataset.profile import FeatureProfile, Profile

SHOWN = 5
"""The features whose drift is shown while a build runs: those that moved the most."""
Figures = dict[str, dict[str, Any]]


def profile_drift(learned: Profile, new: Profile) -> Figures:
    """Compares the profiles of the train splits; gives figures by feature, none where either has no rows."""
    drift = {name: _figures(learned[name], new[name]) for name in new if name in learned}
    return {name: figures for name, figures in drift.items() if figures}


def _figures(before: FeatureProfile, after: FeatureProfile) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if before.tokens and after.tokens:
        shares = (after.unknown / after.tokens, before.unknown / before.tokens)
        figures |= dict(zip(("unknown_share", "unknown_share_before"), shares, strict=True))
    if before.histogram and after.histogram and before.histogram.counts.sum() and after.histogram.counts.sum():
        bins = binned(before.histogram, after.histogram)
        figures |= {"jensen_shannon": jensen_shannon(*bins), "psi": population_stability_index(*bins)}
    if before.ids and after.ids:
        _, *counts = aligned(before.ids, after.ids)
        figures |= {"l_infinity": l_infinity(before.ids, after.ids)[0], "jensen_shannon": jensen_shannon(*counts)}
    return figures


def drift_lines(drift: Mapping[str, Any]) -> Iterator[str]:
    """Gives a line for each of the features that moved the most, as `dataset.json` holds their figures."""
    lines = {name: _line(figures) for name, figures in drift.get("features", {}).items()}
    moved = sorted(((weight, name, text) for name, (weight, text) in lines.items() if text), reverse=True)
    for _, name, text in moved[:SHOWN]:
        yield f"{name}: {text}, since {drift['against']}"
    if len(moved) > SHOWN:
        yield f"{len(moved) - SHOWN} more features moved less: `drift` in dataset.json has them all"


def _line(figures: Mapping[str, Any]) -> tuple[float, str]:
    """Gives the largest of a feature's figures, and the text of those that moved, empty where none did."""
    parts, weights = [], [0.0]
    if figures.get("unknown_share", 0) != figures.get("unknown_share_before", 0):
        parts.append(f"{figures['unknown_share']:.2%} without an id (before {figures['unknown_share_before']:.2%})")
        weights.append(abs(figures["unknown_share"] - figures["unknown_share_before"]))
    shifts = figures.get("mean_shift", [])
    shift = max(shifts if isinstance(shifts, list) else [shifts], key=abs, default=0.0)
    if shift:
        parts.append(f"mean {shift:+.2f} standard deviations")
        weights.append(abs(shift))
    if distance := figures.get("jensen_shannon", 0.0):
        parts.append(f"Jensen–Shannon {distance:.3f}")
        weights.append(distance)
    return max(weights), ", ".join(parts)
