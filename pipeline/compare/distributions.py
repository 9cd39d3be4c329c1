"""Rules on the values of features: missing, unknown, and how they are distributed, by split."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recordmill.pipeline.compare.distances import (
    aligned,
    binned,
    jensen_shannon,
    l_infinity,
    population_stability_index,
    standardized_shift,
)
from recordmill.pipeline.compare.figures import Check, rise
from recordmill.pipeline.compare.versions import GatedVersion
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import FeatureProfile

if TYPE_CHECKING:
    from recordmill.pipeline.spec.gate import Gate


def distribution_checks(
    name: str, split: str, before: GatedVersion, after: GatedVersion, gate: "Gate"
) -> Iterator[Check]:
    """Compares a feature's values in a split, those of all rows and those of each new span.

    Shares of fewer rows than `min_rows`, and distributions of fewer values than `min_values`, are not compared.

    Raises:
        DatasetError: a vocabulary is broken.
    """
    old = (before.profiles or {}).get(split, {}).get(name)
    parts = {"": after.profiles or {}} | {name: span.profiles for name, span in after.spans.items()}
    for span, profiles in parts.items():
        new = profiles.get(split, {}).get(name)
        if old is not None and new is not None:
            for check in _values(f"{name} ({split})", name, (before, old), (after, new), gate):
                yield replace(check, span=span)


def _values(
    subject: str,
    name: str,
    live: tuple[GatedVersion, FeatureProfile],
    candidate: tuple[GatedVersion, FeatureProfile],
    gate: "Gate",
) -> Iterator[Check]:
    """Compares the values of a feature in some rows, each side with the version that its ids are of."""
    (before, old), (after, new) = live, candidate
    missing, unknown = (old.missing, new.missing), (old.unknown, new.unknown)
    yield from rise("missing", subject, missing, (old.rows, new.rows), gate.limit("missing", name), gate.min_rows)
    limit = gate.limit("out_of_vocabulary", name)
    yield from rise("out_of_vocabulary", subject, unknown, (old.tokens, new.tokens), limit, gate.min_rows)
    if old.histogram is not None and new.histogram is not None:
        yield from _histograms(subject, name, old.histogram, new.histogram, gate)
    if old.ids and new.ids and min(old.tokens, new.tokens) >= gate.min_values:
        names = [_by_name(profile, side.words(name)) for profile, side in ((old, before), (new, after))]
        yield from _names(subject, name, names[0], names[1], gate)


def _histograms(subject: str, name: str, before: Histogram, after: Histogram, gate: "Gate") -> Iterator[Check]:
    """Compares numbers, or lengths of texts, in tenths of the live version's values."""
    if min(before.counts.sum(), after.counts.sum()) < gate.min_values:
        return
    bins = binned(before, after)
    detail = f"median {before.median():.6g} → {after.median():.6g}"
    yield Check("psi", subject, population_stability_index(*bins), gate.limit("psi", name), detail)
    yield Check("jensen_shannon", subject, jensen_shannon(*bins), gate.limit("jensen_shannon", name), detail)


def _names(
    subject: str, name: str, before: Mapping[str, int], after: Mapping[str, int], gate: "Gate"
) -> Iterator[Check]:
    """Compares how often each name of a category occurs."""
    distance, moved = l_infinity(before, after)
    shares = [counts.get(moved, 0) / sum(counts.values()) for counts in (before, after)]
    detail = f"'{moved}' {shares[0]:.2%} → {shares[1]:.2%}"
    yield Check("l_infinity", subject, distance, gate.limit("l_infinity", name), detail)
    _, *counts = aligned(before, after)
    yield Check("jensen_shannon", subject, jensen_shannon(*counts), gate.limit("jensen_shannon", name), detail)


def _by_name(profile: FeatureProfile, words: list[str] | None) -> Counter[str]:
    """Counts names, since an id may stand for another name in another version; hashed ids are their own names."""
    counts: Counter[str] = Counter()
    for id_, count in (profile.ids or {}).items():
        counts[words[id_] if words is not None and 0 <= id_ < len(words) else str(id_)] += count
    return counts


def pixel_checks(name: str, before: GatedVersion, after: GatedVersion, gate: "Gate") -> Iterator[Check]:
    """Compares the pixels of an image feature, by channel, of the sample that statistics are taken from.

    Those of each new span are compared with the live version's statistics.
    With a frozen analysis the statistics are those of its own rows: the new rows' shift against these counts then.
    """
    learned = before.manifest.statistics.get(name, {})
    for span, profile in after.spans.items():
        for check in _pixels(name, learned, profile.pixels.get(name, {}), gate):
            yield replace(check, span=span)
    drift = after.manifest.drift.get("features", {}).get(name, {})
    if drift.get("images", 0) >= gate.min_rows:
        shift, detail = max(map(abs, drift["mean_shift"])), f"{drift['images']:,} images against the frozen analysis"
        yield Check("pixels", name, shift, gate.limit("pixels", name), detail)
    else:
        yield from _pixels(name, learned, after.manifest.statistics.get(name, {}), gate)


def _pixels(name: str, old: Mapping[str, Any], new: Mapping[str, Any], gate: "Gate") -> Iterator[Check]:
    """Compares means and deviations of two samples of images, where both are large enough."""
    if min(old.get("images", 0), new.get("images", 0)) < gate.min_rows or len(old["mean"]) != len(new["mean"]):
        return
    means = standardized_shift(old["mean"], old["variance"], new["mean"])
    spreads = standardized_shift(_deviations(old), old["variance"], _deviations(new))
    detail = f"mean {_numbers(old['mean'])} → {_numbers(new['mean'])}"
    yield Check("pixels", name, max(means, spreads), gate.limit("pixels", name), detail)


def _deviations(statistics: Mapping[str, Any]) -> list[float]:
    return [math.sqrt(variance) for variance in statistics["variance"]]


def _numbers(values: list[float]) -> str:
    return " ".join(f"{value:.4g}" for value in values)
