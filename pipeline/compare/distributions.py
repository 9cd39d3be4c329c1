"""Compares feature values: missing, unknown, their distribution; and the drift under a frozen analysis.

Drift is the distance between a build's rows and the rows from which its frozen graph was learned. Shifts are in
standard deviations of the latter, to make features comparable. Distances are of two distributions, given as counts.

>>> l_infinity({"cat": 90, "dog": 10}, {"cat": 80, "dog": 20})
(0.1, 'dog')
>>> jensen_shannon([1, 0], [0, 1])
1.0
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.compare.figures import Figure, rise
from recordmill.pipeline.compare.versions import ComparedVersion
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import FeatureProfile, Profile, Profiles, add_up
from recordmill.pipeline.dataset.version import PADDING
from recordmill.transforms.base.description import UNKNOWN

SHOWN = 5  # features shown with their drift during a build: the most drifted
BINS = 10
SMALLEST_SHARE = 1e-4
Shares = npt.NDArray[np.float64]
Counts = Sequence[int] | npt.NDArray[np.int64]
Name = TypeVar("Name")
Drift = dict[str, Any]  # a feature's drift by figure, as in `dataset.json`


def value_figures(name: str, split: str, before: ComparedVersion, after: ComparedVersion) -> Iterator[Figure]:
    """Compares values in a split: of all rows, and of each new span. Raises: DatasetError: a vocabulary is broken."""
    old = before.profiles.get(split, {}).get(name)
    parts = {"": after.profiles} | {name: span.profiles for name, span in after.spans.items()}
    for span, profiles in parts.items():
        new = profiles.get(split, {}).get(name)
        if old is not None and new is not None:
            subject, missing = f"{name} ({split})", (old.missing, new.missing)
            yield from rise("missing", subject, missing, (old.rows, new.rows), feature=name, span=span)
            learned = None
            with suppress(ImportError):  # `diff` may run without Arrow
                from recordmill.pipeline.compare.words import unknown_words

                learned = unknown_words(name, before, after, span) if split == "train" else None
            ids = learned or ([old.unknown, new.unknown], [old.tokens, new.tokens])
            yield from rise("out_of_vocabulary", subject, *ids, feature=name, span=span)
            words = (before.words(name), after.words(name)) if old.ids and new.ids else (None, None)
            for figure in _distances(old, new, words):
                yield replace(figure, subject=subject, feature=name, span=span)


Words = list[str] | None


def _distances(before: FeatureProfile, after: FeatureProfile, words: tuple[Words, Words]) -> Iterator[Figure]:
    """Compares numbers or text lengths in tenths of the values before, names by name (`words`; None: by raw id)."""
    if before.histogram and after.histogram:
        counted = min(int(before.histogram.counts.sum()), int(after.histogram.counts.sum()))
        if counted:
            bins = binned(before.histogram, after.histogram)
            detail = _medians(before.histogram, after.histogram)
            yield Figure("psi", "", population_stability_index(*bins), detail, counted)
            yield Figure("jensen_shannon", "", jensen_shannon(*bins), detail, counted)
            if not before.tokens:  # numbers
                yield Figure("shift", "", middle_shift(before.histogram, after.histogram), detail, counted)
    measures = before.appearance.keys() & after.appearance.keys()
    shifts = {name: middle_shift(before.appearance[name], after.appearance[name]) for name in sorted(measures)}
    if shifts:
        largest = max(shifts, key=shifts.__getitem__)
        both = before.appearance[largest], after.appearance[largest]
        counted = min(int(each.counts.sum()) for each in both)
        yield Figure("appearance", "", shifts[largest], f"{largest}, {_medians(*both)}", counted)
    if before.ids and after.ids:
        old, new = (_by_name(each.ids or {}, names) for each, names in zip((before, after), words, strict=True))
        distance, moved = l_infinity(old, new)
        shares = [counts.get(moved, 0) / sum(counts.values()) for counts in (old, new)]
        detail, counted = f"'{moved}' {shares[0]:.2%} → {shares[1]:.2%}", min(before.tokens, after.tokens)
        yield Figure("l_infinity", "", distance, detail, counted)
        _, *counts = aligned(old, new)
        yield Figure("jensen_shannon", "", jensen_shannon(*counts), detail, counted)


def _medians(before: Histogram, after: Histogram) -> str:
    return f"median {before.median():.6g} → {after.median():.6g}"


def lost_names(name: str, before: ComparedVersion, after: ComparedVersion) -> Iterator[Figure]:
    """Yields the share, over all splits, of the most frequent name that vanished, in a span by the number expected."""
    old = _all_rows(before.profiles, name)
    parts = {"": after.profiles} | {span: each.profiles for span, each in after.spans.items()}
    for span, new in ((span, _all_rows(profiles, name)) for span, profiles in parts.items()):
        if old.ids and new.ids:
            there = {*_by_name(new.ids, after.words(name)), UNKNOWN, PADDING}
            counts = _by_name(old.ids, before.words(name))
            lost = max((name for name in counts if name not in there), key=counts.__getitem__, default="")
            counted = counts[lost] * (new.tokens / old.tokens if span else 1) if lost else math.inf
            detail = f"'{lost}' {counts[lost]:,} → 0" if lost else ""
            yield Figure("names_lost", name, counts[lost] / old.tokens, detail, counted, name, span)


def _all_rows(profiles: Profiles, name: str) -> FeatureProfile:
    return add_up({name: profile[name]} for profile in profiles.values() if name in profile).get(name, FeatureProfile())


def _by_name(ids: Mapping[int, int], words: Words) -> Counter[str]:
    """Counts names; hashed ids serve as names."""
    counts: Counter[str] = Counter()
    for id_, count in ids.items():
        counts[words[id_] if words is not None and 0 <= id_ < len(words) else str(id_)] += count
    return counts


def pixel_figures(name: str, before: ComparedVersion, after: ComparedVersion) -> Iterator[Figure]:
    """Compares an image's pixels by channel, of all rows and of new spans; a frozen analysis gives their drift."""
    learned = before.manifest.statistics.get(name, {})
    for span, profile in after.spans.items():
        yield from _pixels(name, learned, profile.pixels.get(name, {}), span)
    drift = after.manifest.drift.get("features", {}).get(name, {})
    if images := drift.get("images", 0):
        shift, detail = max(map(abs, drift["mean_shift"])), f"{images:,} images against the frozen analysis"
        yield Figure("pixels", name, shift, detail, images, name)
    else:
        yield from _pixels(name, learned, after.manifest.statistics.get(name, {}))


def _pixels(name: str, old: Mapping[str, Any], new: Mapping[str, Any], span: str = "") -> Iterator[Figure]:
    counted = min(old.get("images", 0), new.get("images", 0))
    if counted and len(old["mean"]) == len(new["mean"]):
        means = standardized_shifts(old["mean"], old["variance"], new["mean"])
        before, after = ([math.sqrt(variance) for variance in each["variance"]] for each in (old, new))
        spreads = standardized_shifts(before, old["variance"], after)
        detail = "mean " + " → ".join(" ".join(f"{value:.4g}" for value in each["mean"]) for each in (old, new))
        yield Figure("pixels", name, max(map(abs, [*means, *spreads])), detail, counted, name, span)


def profile_drift(learned: Profile, new: Profile) -> dict[str, Drift]:
    """Compares the profiles of the train splits; returns figures by feature with rows in both."""
    drifts = dict[str, Drift]()
    for name, before, after in ((name, learned[name], new[name]) for name in new if name in learned):
        drift: Drift = {}
        if before.tokens and after.tokens:
            drift["unknown_share"] = after.unknown / after.tokens
            drift["unknown_share_before"] = before.unknown / before.tokens
        drift |= {figure.rule: figure.value for figure in _distances(before, after, (None, None))}
        drifts |= {name: drift} if drift else {}
    return drifts


def statistics_drift(learned: Mapping[str, Any], new: Mapping[str, Any]) -> Drift:
    """Compares the statistics of a number or an image with those in the graph."""
    if new.get("images") and learned.get("images"):
        return {"images": new["images"], **_moments(learned, new)}
    drift: Drift = {}
    if new.get("count") and learned.get("count"):
        moments = _moments(*({name: [each[name]] for name in ("mean", "variance")} for each in (learned, new)))
        drift = {"count": new["count"], **{name: shift for name, (shift,) in moments.items()}}
        extent = learned.get("maximum", 0.0) - learned.get("minimum", 0.0)
        if extent > 0:
            for name in ("minimum", "maximum"):
                drift[f"scaled_{name}"] = (new[name] - learned["minimum"]) / extent
    if "median" in new and "median" in learned:
        [drift["median_shift"]] = standardized_shifts([learned["median"]], [learned["variance"]], [new["median"]])
    return drift


def _moments(learned: Mapping[str, Any], new: Mapping[str, Any]) -> Drift:
    variances = zip(learned["variance"], new["variance"], strict=True)
    return {
        "mean_shift": standardized_shifts(learned["mean"], learned["variance"], new["mean"]),
        "variance_ratio": [after / before if before > 0 else None for before, after in variances],
    }


def drift_lines(drift: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each of the most drifted features, given `drift` of `dataset.json`."""
    lines = {name: _drift_line(figures) for name, figures in drift.get("features", {}).items()}
    moved = sorted(((weight, name, text) for name, (weight, text) in lines.items() if text), reverse=True)
    for _, name, text in moved[:SHOWN]:
        yield f"{name}: {text}, since {drift['against']}"
    if len(moved) > SHOWN:
        yield f"{len(moved) - SHOWN} more features moved less: `drift` in dataset.json has them all"


def _drift_line(figures: Mapping[str, Any]) -> tuple[float, str]:
    """Returns a feature's largest figure, and the text of all changed ones, if any."""
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
    """Counts both in tenths of the values before, and a bin below and one above; equal values share a bin."""
    old, new = Histogram.coarsened([before, after])
    ranks = [len_ * int(old.counts.sum()) // BINS for len_ in range(1, BINS)]
    starts = old.keys[np.searchsorted(np.cumsum(old.counts), ranks, side="right")]
    edges = np.unique(np.concatenate([old.keys[:1], starts, old.keys[-1:] + 1]))
    return _counted(old, edges), _counted(new, edges)


def _counted(histogram: Histogram, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    bins: Any = np.searchsorted(edges, histogram.keys, side="right")
    return np.bincount(bins, histogram.counts, len(edges) + 1).astype(np.int64)
