"""Compares feature values: missing, unknown, their distribution; and the drift under a frozen analysis.

Drift is the distance between a build's rows and the rows from which its frozen graph was learned. Shifts are in
standard deviations of the latter, to make features comparable.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from recordmill.pipeline.dataset.histogram import Histogram

from recordmill.pipeline.compare import distances
from recordmill.pipeline.compare.distances import jensen_shannon, middle_shift, standardized_shifts
from recordmill.pipeline.compare.figures import Figure, rise
from recordmill.pipeline.compare.versions import ComparedVersion
from recordmill.pipeline.dataset.profile import FeatureProfile, Profile, Profiles, add_up
from recordmill.pipeline.dataset.version import PADDING
from recordmill.transforms.contract.kinds.base import UNKNOWN

SHOWN = 5  # features shown with their drift during a build: the most drifted
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
    """Compares two distributions: numbers or text lengths in tenths of the values before; names by name.

    `words` are names by id for each version; None compares raw ids.
    """
    if before.histogram and after.histogram:
        counted = min(int(before.histogram.counts.sum()), int(after.histogram.counts.sum()))
        if counted:
            bins = distances.binned(before.histogram, after.histogram)
            detail = _medians(before.histogram, after.histogram)
            yield Figure("psi", "", distances.population_stability_index(*bins), detail, counted)
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
        distance, moved = distances.l_infinity(old, new)
        shares = [counts.get(moved, 0) / sum(counts.values()) for counts in (old, new)]
        detail, counted = f"'{moved}' {shares[0]:.2%} → {shares[1]:.2%}", min(before.tokens, after.tokens)
        yield Figure("l_infinity", "", distance, detail, counted)
        _, *counts = distances.aligned(old, new)
        yield Figure("jensen_shannon", "", jensen_shannon(*counts), detail, counted)


def _medians(before: Histogram, after: Histogram) -> str:
    return f"median {before.median():.6g} → {after.median():.6g}"


def lost_names(name: str, before: ComparedVersion, after: ComparedVersion) -> Iterator[Figure]:
    """Yields the share of a category's most frequent vanished name, over all splits. Raises as `value_figures`.

    Counts its occurrences; for a new span, the number expected of as many values.
    """
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
    """Compares an image feature's pixels by channel, in samples for statistics, and of new spans with these.

    Under a frozen analysis, which keeps its statistics, the figure is the new rows' drift.
    """
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
        spreads = standardized_shifts(_deviations(old), old["variance"], _deviations(new))
        detail = f"mean {_numbers(old['mean'])} → {_numbers(new['mean'])}"
        yield Figure("pixels", name, max(map(abs, [*means, *spreads])), detail, counted, name, span)


def _deviations(statistics: Mapping[str, Any]) -> list[float]:
    return [math.sqrt(variance) for variance in statistics["variance"]]


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4g}" for value in values)


def profile_drift(learned: Profile, new: Profile) -> dict[str, Drift]:
    """Compares the profiles of the train splits; returns figures by feature with rows in both."""
    drift = {name: _drift(learned[name], new[name]) for name in new if name in learned}
    return {name: figures for name, figures in drift.items() if figures}


def _drift(before: FeatureProfile, after: FeatureProfile) -> Drift:
    drift: Drift = {}
    if before.tokens and after.tokens:
        drift["unknown_share"] = after.unknown / after.tokens
        drift["unknown_share_before"] = before.unknown / before.tokens
    return drift | {figure.rule: figure.value for figure in _distances(before, after, (None, None))}


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
