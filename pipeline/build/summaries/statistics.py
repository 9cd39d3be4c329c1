"""The statistics that a build learns from its rows: one look's summaries, its result, and its drift."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.base.live_analysis import LiveAnalysis
from recordmill.pipeline.build.context.build_context import PlannedBuild, RowDecisions
from recordmill.pipeline.build.summaries.look import KeptSums, Look, Sums
from recordmill.pipeline.build.summaries.numbers import Moments, Quantiles
from recordmill.pipeline.build.summaries.pixels import PixelSums
from recordmill.pipeline.build.summaries.summary import Summary, add_up
from recordmill.pipeline.build.summaries.words import TokenizerWords, Vocabularies
from recordmill.pipeline.compare.distributions import Drift, statistics_drift
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.versions.stores.open_store import open_store

NAME = "statistics"
MEASURED = (Moments, Quantiles, PixelSums)
"""The summaries of numbers and images, whose results are statistics by feature."""


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
    drift: dict[str, Drift] = field(default_factory=dict)


def statistics_look(planned: PlannedBuild, decisions: RowDecisions, live: LiveAnalysis | None = None) -> Look:
    """Returns the look that a build learns from; one without summaries where nothing is learned of the rows."""
    kinds: list[type[Summary[Any]]] = [Vocabularies, TokenizerWords, Moments, Quantiles, PixelSums]
    needed = [summary for kind in kinds if (summary := kind(planned)).is_needed]
    kept = KeptSums(open_store(live.folder).url, live.summaries, count=not live.is_frozen) if live else None
    return Look(NAME, planned, decisions, [RowsSeen(planned), *needed] if needed else [], kept)


def learned(look: Look, done: Sums) -> LearnedAnalysis:
    """Returns what a finished look learned. Raises: UserError: as `Summary.result`."""
    planned, results = look.planned, look.results(done)
    vocabularies = results.get(Vocabularies.name) or Vocabularies(planned).result([])  # given ones
    statistics = {name: vocabulary.statistics for name, vocabulary in vocabularies.items()}
    for name, found in _by_feature(results).items():
        statistics.setdefault(name, {}).update(found)
    words = {name: vocabulary.words for name, vocabulary in vocabularies.items()}
    return LearnedAnalysis(results.get(RowsSeen.name), statistics, words, results.get(TokenizerWords.name, {}))


def kept(look: Look, done: Sums, frozen: LiveAnalysis, models: dict[str, bytes]) -> LearnedAnalysis:
    """Returns an earlier version's analysis, with the rows that a finished look saw and their drift."""
    new = _by_feature({kind.name: look.result(kind.name, done, {}) for kind in MEASURED})
    drift = {name: statistics_drift(frozen.statistics.get(name, {}), found) for name, found in new.items()}
    drift = {name: figures for name, figures in drift.items() if figures}
    return LearnedAnalysis(look.result(RowsSeen.name, done), frozen.statistics, {}, models, drift)


def _by_feature(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Joins the measured statistics of each feature."""
    statistics: dict[str, dict[str, Any]] = {}
    for kind in MEASURED:
        for name, found in results.get(kind.name, {}).items():
            statistics.setdefault(name, {}).update(found)
    return statistics
