"""What the graph half of a kind is: raw to stored in two steps around the analysis, stored to model-ready in one.

`prepare` gives what the analysis must see and a function that, given what the analysis found, makes the stored
tensor. `stored_spec` tells how the stored tensor is parsed, `finish` makes it model-ready. Descriptions are the
manifest's (`dataset.json`), options the spec's as a plain mapping.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

Options = Mapping[str, Any]
Stored: TypeAlias = tf.Tensor | tf.RaggedTensor


@dataclass(frozen=True)
class Found:
    """What the analysis found for one feature: a vocabulary's look-up, or moments."""

    lookup: Callable[[tf.Tensor, int], tf.Tensor] | None = None
    """Gives the int64 places (0, 1, …) of strings in the vocabulary, and the given integer for unknown ones."""
    mean: tf.Tensor | None = None
    """A float64 scalar."""
    scale: tf.Tensor | None = None
    """A float64 scalar: 1 / standard deviation, 1 where that is 0."""


@dataclass(frozen=True)
class Prepared:
    """A raw column on its way: what is to be analyzed, and what then makes the stored tensor."""

    store: Callable[[Found], Stored]
    tokens: tf.Tensor | None = None
    """Strings to be counted for the vocabulary, any number of them, of rows that the feature may learn from."""
    values: tf.Tensor | None = None
    """float32 values for mean and variance, of the train split alone."""


class Kind(Protocol):
    """A module of this package that is the graph half of a kind."""

    def prepare(self, options: Options, column: tf.Tensor, train: tf.Tensor) -> Prepared:
        """Takes the raw column, shape [rows], and which rows are of the train split (bool, shape [rows])."""

    def stored_spec(self, description: Options) -> Any:
        """How `tf.io.parse_example` reads the stored feature."""

    def finish(self, description: Options, stored: Stored) -> Any:
        """Makes a batch of stored values model-ready."""
