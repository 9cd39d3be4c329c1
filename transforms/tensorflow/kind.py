"""What the graph half of a kind is: raw to stored in two steps around the analysis, stored to model-ready in one.

`prepare` gives what the analysis must see and a function that, given what the analysis found, makes the stored
tensors, by part (`transforms.contract.stored`); `finish` makes them model-ready. Descriptions are the manifest's
(`dataset.json`), options the spec's as a plain mapping.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

Options = Mapping[str, Any]
Stored: TypeAlias = tf.Tensor | tf.RaggedTensor
Parts = Mapping[str, Stored]
"""Tensors by part."""


@dataclass(frozen=True)
class Statistics:
    """What the analysis found for one feature: a vocabulary's look-up, or what numbers are like."""

    lookup: Callable[[tf.Tensor, int], tf.Tensor] | None = None
    """Gives the int64 places (0, 1, …) of strings in the vocabulary, and the given integer for unknown ones."""
    mean: tf.Tensor | None = None
    """A float64 scalar."""
    scale: tf.Tensor | None = None
    """A float64 scalar: 1 / standard deviation, 1 where that is 0."""
    minimum: tf.Tensor | None = None
    """A float64 scalar."""
    range_scale: tf.Tensor | None = None
    """A float64 scalar: 1 / (maximum - minimum), 1 where that is 0."""
    median: tf.Tensor | None = None
    """A float64 scalar."""
    boundaries: tf.Tensor | None = None
    """float64, [buckets - 1]: where quantile buckets begin, ascending; infinity in the place of those left out."""


@dataclass(frozen=True)
class RequestedStatistics:
    """What is wanted of a feature's values beside mean and variance."""

    extremes: bool = False
    """Minimum and maximum."""
    median: bool = False
    buckets: int = 1
    """How many quantile buckets; 1 for none."""


@dataclass(frozen=True)
class Prepared:
    """A raw column on its way: what is to be analyzed, and what then makes the stored tensors."""

    store: Callable[[Statistics], Parts]
    tokens: tf.Tensor | None = None
    """Strings to be counted for the vocabulary, any number of them, of rows that the feature may learn from."""
    values: tf.Tensor | None = None
    """float32 values for statistics, any number of them, of the train split alone."""
    wanted: RequestedStatistics = RequestedStatistics()
    """Which statistics of the values."""
    geometry: Callable[[], tf.Tensor] | None = None
    """Of pictures: their sizes before they were scaled, for what must move with them (`tensorflow.geometry`)."""


@dataclass(frozen=True)
class Context:
    """What a kind may look at beside its own column."""

    train: tf.Tensor
    """Which rows are of the train split: bool, shape [rows]."""
    columns: Mapping[str, Stored] = field(default_factory=dict)
    """The raw columns of all features, by feature: shape [rows], or ragged [rows, None]."""
    prepared: Mapping[str, Prepared] = field(default_factory=dict)
    """The features that are prepared already: pictures come first."""
    options: Mapping[str, Options] = field(default_factory=dict)
    """The options of all features, by feature."""


class Kind(Protocol):
    """A module of this package that is the graph half of a kind."""

    def prepare(self, options: Options, column: Any, context: Context) -> Prepared:
        """Takes the raw column, shape [rows] or ragged [rows, None] (None for a kind that has no column).

        What a row lacks, where `optional` allows it, comes as `""`, as NaN, or as an empty list.
        """

    def finish(self, description: Options, stored: Parts) -> Mapping[str, Any]:
        """Makes a batch of stored values model-ready, by part."""
