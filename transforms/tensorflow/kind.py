"""The graph half of a kind: raw to stored, with what must be learned of the data first, and stored to model-ready.

`prepare` gives a function for what is to be learned, which a look at the rows calls, and one that makes the stored
tensors, by part, of the results; `features` makes them model-ready. Options and descriptions are those of
`transforms.contract.kinds`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from recordmill.transforms.contract.kinds.base import FeatureOptions

Stored: TypeAlias = tf.Tensor | tf.RaggedTensor
Parts = Mapping[str, Stored]
"""Tensors by part."""
DTYPES = {"bytes": tf.string, "int64": tf.int64, "float32": tf.float32}
"""TensorFlow's types of what is stored."""


@dataclass(frozen=True)
class Statistics:
    """The facts learned for one feature: a vocabulary's look-up, or statistics of numbers."""

    lookup: Callable[[tf.Tensor, int], tf.Tensor] | None = None
    """Returns the int64 indices (0, 1, …) of strings in the vocabulary, and the given integer for unknown strings."""
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
    """float64, [buckets - 1]: where quantile buckets begin, ascending; infinity instead of those left out."""


@dataclass(frozen=True)
class RequestedStatistics:
    """The statistics of a feature's values that are wanted beside mean and variance."""

    extremes: bool = False
    """Minimum and maximum."""
    median: bool = False
    buckets: int = 1
    """The number of quantile buckets; 1 asks for no quantiles."""


@dataclass(frozen=True)
class Prepared:
    """A raw column on its way: what to learn from it, and the function that then makes the stored tensors."""

    store: Callable[[Statistics], Parts]
    tokens: Callable[[], tf.Tensor] | None = None
    """Returns the strings to count for the vocabulary, any number of them; the rows are those to learn from."""
    values: Callable[[], tf.Tensor] | None = None
    """Returns the float32 values to take statistics of, any number of them; the rows are those to learn from."""
    geometry: Callable[[], tf.Tensor] | None = None
    """Returns images' sizes before they were scaled, for boxes, which move with them (`contract.geometry`)."""


@dataclass(frozen=True)
class Context:
    """The data that a kind may use beside its own column."""

    columns: Mapping[str, Stored] = field(default_factory=dict)
    """The raw columns of all features, by feature: shape [rows], or ragged [rows, None]."""
    prepared: Mapping[str, Prepared] = field(default_factory=dict)
    """The features that are prepared already: images come first."""
    options: Mapping[str, FeatureOptions] = field(default_factory=dict)
    """The options of all features, by feature."""


class Kind(NamedTuple):
    """The graph half of a kind."""

    prepare: Callable[[Any, Any, Context], Prepared]
    """Takes the options and the raw column, shape [rows] or ragged [rows, None]; None for a kind without a column. A
    missing value, where `optional` allows it, comes as `""`, as NaN, or as an empty list."""
    features: Callable[[Any, Parts], Parts] = lambda description, stored: stored
    """Takes the description, and makes a batch of stored values model-ready, by part; by default they are."""
