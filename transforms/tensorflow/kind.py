"""The graph half of a kind, and of lists of its values: raw to stored, then stored to model-ready.

`prepare` returns a function for what is to be learned, which a look at the rows calls, and one that makes the stored
tensors, by part, of the results; `features` makes them model-ready. Options and descriptions are those of
`transforms.contract.kinds`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from recordmill.transforms.contract.kinds.base import FeatureOptions, Padded
from recordmill.transforms.contract.stored import UNENCODED

Stored: TypeAlias = tf.Tensor | tf.RaggedTensor
Parts = Mapping[str, Stored]  # tensors by part
DTYPES = {"bytes": tf.string, "int64": tf.int64, "float32": tf.float32}  # TensorFlow's types of what is stored


@dataclass(frozen=True)
class Statistics:
    """The facts learned for one feature: a vocabulary's look-up, or statistics of numbers."""

    lookup: Callable[[tf.Tensor, int], tf.Tensor] | None = None
    """Returns the int64 indices (0, 1, …) of strings in the vocabulary, and the given integer for unknown strings."""
    mean: tf.Tensor | None = None  # float64 scalar
    scale: tf.Tensor | None = None  # float64 scalar: 1 / standard deviation, 1 where that is 0
    minimum: tf.Tensor | None = None  # float64 scalar
    range_scale: tf.Tensor | None = None  # float64 scalar: 1 / (maximum - minimum), 1 where that is 0
    median: tf.Tensor | None = None  # float64 scalar
    boundaries: tf.Tensor | None = None
    """float64, [buckets - 1]: where quantile buckets begin, ascending; infinity instead of those left out."""


@dataclass(frozen=True)
class Prepared:
    """A raw column on its way: what to learn from it, and the function that then makes the stored tensors."""

    store: Callable[[Statistics], Parts]
    tokens: Callable[[], tf.Tensor] | None = None
    """Returns the strings to count for the vocabulary, any number of them; the rows are those to learn from."""
    values: Callable[[], tf.Tensor] | None = None
    """Returns the float32 values to take statistics of, any number of them; the rows are those to learn from."""
    geometry: Callable[[], tf.Tensor] | None = None
    """Returns images' sizes before they were scaled, for boxes, which move with them (`contract.image_rules`)."""


@dataclass(frozen=True)
class Context:
    """The data that a kind may use besides its own column."""

    columns: Mapping[str, Stored] = field(default_factory=dict)
    """The raw columns of all features, by feature: shape [rows], or ragged [rows, None]."""
    prepared: Mapping[str, Prepared] = field(default_factory=dict)
    """The features that are prepared already: images come first."""
    options: Mapping[str, FeatureOptions] = field(default_factory=dict)  # options of all features, by feature


class Kind(NamedTuple):
    """The graph half of a kind."""

    prepare: Callable[[Any, Any, Context], Prepared]
    """Takes the options and the raw column, shape [rows] or ragged [rows, None]; None for a kind without a column. A
    missing value, where `optional` allows it, comes as `""`, as NaN, or as an empty list."""
    features: Callable[[Any, Parts], Parts] = lambda description, stored: stored
    """Takes the description, and makes a batch of stored values model-ready, by part; by default they are."""


def each(prepare: Callable[[Any, Any, Context], Prepared]) -> Callable[[Any, Any, Context], Prepared]:
    """Makes of a kind's `prepare` that of its lists, ragged [rows, None].

    The first `max_length` values of a list are prepared, each as a value of the kind. A missing list is an empty one,
    so no value is missing.
    """

    def prepare_lists(options: Any, column: tf.RaggedTensor, context: Context) -> Prepared:
        kept = cut(options.max_length, column)
        values = prepare(replace(options, optional=False), kept.flat_values, context)

        def store(statistics: Statistics) -> Parts:
            parts = values.store(statistics)
            return {part: kept.with_flat_values(parts[part]) for part in ("", UNENCODED) if part in parts}

        return replace(values, store=store, geometry=None)

    return prepare_lists


def cut(max_length: int | None, column: tf.RaggedTensor) -> tf.RaggedTensor:
    """Keeps the first `max_length` values of each row, or all."""
    return column if max_length is None else column[:, :max_length]


def padded(description: Padded, values: tf.RaggedTensor, padding: Any = None) -> Parts:
    """Pads lists at the end.

    Args:
        description: `length`, a number or `varying`, and `max_length`.
        values: ragged, [rows, None]; [rows, None, …] where values have a shape of their own.
        padding: the value after a list's end; by default 0 or `""`.

    Returns:
        The values of shape [rows, length]; or, where it varies, [rows, max_length], as wide as the longest row
        without a limit, and the part `length`: int64, shape [rows].
    """
    length = description.length
    wide = description.max_length if length == "varying" else length
    full = values.to_tensor(default_value=padding, shape=[None, wide, *values.shape[2:]])
    if length != "varying":
        return {"": full}
    return {"": full, "length": tf.cast(values.row_lengths(), tf.int64)}
