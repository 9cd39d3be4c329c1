"""The statistics that a build learns from its rows, as one look's summaries and as its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.row_schema import RowDecisions
from recordmill.pipeline.build.frozen import LiveAnalysis
from recordmill.pipeline.build.summaries.base import Summary
from recordmill.pipeline.build.summaries.look import KeptSums, Look, Sums
from recordmill.pipeline.build.summaries.moments import Moments
from recordmill.pipeline.build.summaries.pixels import Pixels
from recordmill.pipeline.build.summaries.quantiles import Quantiles
from recordmill.pipeline.build.summaries.rows import RowsSeen
from recordmill.pipeline.build.summaries.words import TokenizerWords, Vocabularies
from recordmill.pipeline.compare.distributions import Drift, statistics_drift
from recordmill.pipeline.versions.stores.open_store import open_store

NAME = "statistics"
MEASURED = (Moments, Quantiles, Pixels)
"""The summaries of numbers and images, whose results are statistics by feature."""


@dataclass(frozen=True)
class Learned:
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
    """The distance of the rows from those that a frozen analysis was learned from, by feature."""


def statistics_look(planned: PlannedBuild, decisions: RowDecisions, live: LiveAnalysis | None = None) -> Look:
    """Returns the look that a build learns from; one without summaries where nothing is learned of the rows."""
    kinds: list[type[Summary[Any]]] = [Vocabularies, TokenizerWords, Moments, Quantiles, Pixels]
    needed = [summary for kind in kinds if (summary := kind(planned)).is_needed]
    kept = KeptSums(open_store(live.folder).url, live.summaries, count=not live.is_frozen) if live else None
    return Look(NAME, planned, decisions, [RowsSeen(planned), *needed] if needed else [], kept)


def kept(look: Look, done: Sums, frozen: LiveAnalysis, models: dict[str, bytes]) -> Learned:
    """Returns what an earlier version learned, with the rows that a finished look saw and their drift."""
    new = _by_feature({kind.name: look.result(kind.name, done, {}) for kind in MEASURED})
    drift = {name: statistics_drift(frozen.statistics.get(name, {}), found) for name, found in new.items()}
    drift = {name: figures for name, figures in drift.items() if figures}
    return Learned(look.result(RowsSeen.name, done), frozen.statistics, {}, models, drift)


def learned(look: Look, done: Sums) -> Learned:
    """Returns what a finished look learned. Raises: UserError: as `Summary.result`."""
    planned, results = look.planned, look.results(done)
    vocabularies = results.get(Vocabularies.name) or Vocabularies(planned).result([])  # those that are given
    statistics = {name: vocabulary.statistics for name, vocabulary in vocabularies.items()}
    for name, found in _by_feature(results).items():
        statistics.setdefault(name, {}).update(found)
    words = {name: vocabulary.words for name, vocabulary in vocabularies.items()}
    return Learned(results.get(RowsSeen.name), statistics, words, results.get(TokenizerWords.name, {}))


def _by_feature(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Joins the measured statistics of each feature."""
    statistics: dict[str, dict[str, Any]] = {}
    for kind in MEASURED:
        for name, found in results.get(kind.name, {}).items():
            statistics.setdefault(name, {}).update(found)
    return statistics
