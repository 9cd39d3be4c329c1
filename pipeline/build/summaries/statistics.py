"""The statistics that a build learns from its rows: one look's summaries, its result, and its drift.

The drift is the distance of the rows from those that a frozen analysis was learned from. Shifts are in standard
deviations of the values that the graph was made of, so that any two features compare.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild, RowDecisions
from recordmill.pipeline.build.frozen import LiveAnalysis
from recordmill.pipeline.build.summaries.look import KeptSums, Look, Sums
from recordmill.pipeline.build.summaries.numbers import Moments, Quantiles
from recordmill.pipeline.build.summaries.pixels import Pixels
from recordmill.pipeline.build.summaries.summary import Summary, add_up
from recordmill.pipeline.build.summaries.words import TokenizerWords, Vocabularies
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.versions.stores.open_store import open_store

Drift = dict[str, dict[str, Any]]
"""Figures by feature, as `dataset.json` holds them."""
NAME = "statistics"


class RowsSeen(Summary[dict[str, int]]):
    """Counts keyed rows, to be reconciled with the rows written: a table of `split`, by its position, and `rows`."""

    name = "rows"
    of_read_rows = True

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Counts the rows."""
        counts = rows["@split"].value_counts()
        return pa.table({"split": counts.field("values"), "rows": counts.field("counts")})

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up the splits' rows."""
        return add_up(tables, ["split"], {"rows": "sum"})

    def result(self, tables: Sequence[pa.Table]) -> dict[str, int]:
        """Returns the rows of every split."""
        counted = {row["split"]: row["rows"] for table in tables for row in table.to_pylist()}
        return {name: counted.get(number, 0) for number, name in enumerate(self.planned.layout.splits)}


@dataclass(frozen=True)
class LearnedAnalysis:
    """All that a build learned."""

    rows: dict[str, int] | None
    """The rows that the look saw, by split; None where there was nothing to learn."""
    statistics: dict[str, dict[str, Any]]
    """By feature, as `dataset.json` holds them."""
    vocabularies: dict[str, list[bytes]]
    """The words with an id, in the order of the ids, by the feature that the vocabulary is named after."""
    models: dict[str, bytes]
    """The tokenizers that were trained, by the feature that each is named after."""
    drift: Drift = field(default_factory=dict)


def statistics_look(planned: PlannedBuild, decisions: RowDecisions, live: LiveAnalysis | None = None) -> Look:
    """Returns the look that a build learns from; one without summaries where nothing is learned of the rows."""
    kinds: list[type[Summary[Any]]] = [Vocabularies, TokenizerWords, Moments, Quantiles, Pixels]
    needed = [summary for kind in kinds if (summary := kind(planned)).is_needed]
    kept = KeptSums(open_store(live.folder).url, live.summaries, count=not live.is_frozen) if live else None
    return Look(NAME, planned, decisions, [RowsSeen(planned), *needed] if needed else [], kept)


def learned(look: Look, done: Sums) -> LearnedAnalysis:
    """Returns what a finished look learned. Raises: UserError: as `Summary.result`."""
    planned, results = look.planned, look.results(done)
    vocabularies = results.get(Vocabularies.name) or Vocabularies(planned).result([])  # given ones
    statistics = {name: vocabulary.statistics for name, vocabulary in vocabularies.items()}
    for name in (Moments.name, Quantiles.name, Pixels.name):
        for feature, found in results.get(name, {}).items():
            statistics.setdefault(feature, {}).update(found)
    words = {name: vocabulary.words for name, vocabulary in vocabularies.items()}
    return LearnedAnalysis(results.get(RowsSeen.name), statistics, words, results.get(TokenizerWords.name, {}))


def kept(look: Look, done: Sums, frozen: LiveAnalysis, models: dict[str, bytes]) -> LearnedAnalysis:
    """Returns an earlier version's analysis, with the rows that a finished look saw and their drift."""
    rows = look.result(RowsSeen.name, done)
    return LearnedAnalysis(rows, frozen.statistics, {}, models, drift_of(look, done, frozen))


def drift_of(look: Look, done: Sums, frozen: LiveAnalysis) -> Drift:
    """Compares the numbers and the images of a finished look with the statistics that the graph was made of."""
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
