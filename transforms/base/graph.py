"""The graph of a kind, and of lists of its values: raw to stored, then stored to model-ready.

`prepare` returns the values to learn from, for a look at the rows, and a function that makes the stored tensors from
the learned statistics; `features` makes them model-ready. `pipeline.spec.features` has the options,
`transforms.base.kinds` the descriptions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import tensorflow as tf

from recordmill.transforms.base.description import NOTHING, Learned
from recordmill.transforms.base.stored import LAST, UNENCODED

if TYPE_CHECKING:
    from recordmill.transforms.base.feature import Feature

Stored: TypeAlias = tf.Tensor | tf.RaggedTensor
Parts = Mapping[str, Stored]  # tensors by part
DTYPES = {"bytes": tf.string, "int64": tf.int64, "float32": tf.float32}  # of stored parts


@dataclass(frozen=True)
class Statistics:
    """Facts learned for one feature: a vocabulary's lookup, or number statistics as float64 scalars."""

    lookup: Callable[[tf.Tensor, int], tf.Tensor] | None = None
    """Returns int64 indices (0, 1, …) of strings in the vocabulary; the given integer for unknown strings."""
    mean: tf.Tensor | None = None
    scale: tf.Tensor | None = None  # 1 / standard deviation; 1 instead of 1 / 0
    minimum: tf.Tensor | None = None
    range_scale: tf.Tensor | None = None  # 1 / (maximum - minimum); 1 instead of 1 / 0
    median: tf.Tensor | None = None
    boundaries: tf.Tensor | None = None
    """float64 [buckets - 1]: ascending starts of quantile buckets; infinity for omitted ones."""


@dataclass(frozen=True)
class Prepared:
    """A raw column on its way to storage: the values to learn from, and the function that stores."""

    store: Callable[[Statistics], Parts]
    tokens: Callable[[], tf.Tensor] | None = None
    """Returns the strings to count for the vocabulary, from the rows to learn from."""
    values: Callable[[], tf.Tensor] | None = None
    """Returns the float32 values for statistics, from the rows to learn from."""
    geometry: Callable[[], tf.Tensor] | None = None
    """Returns unscaled image sizes, to move boxes with their images (`images.image_rules`)."""


@dataclass(frozen=True)
class Context:
    """Data that a kind may use besides its own column."""

    columns: Mapping[str, Stored] = field(default_factory=dict)
    """Raw columns by feature: shape [rows], or ragged [rows, None]."""
    prepared: Mapping[str, Prepared] = field(default_factory=dict)  # features prepared so far; images come first
    options: Mapping[str, "Feature"] = field(default_factory=dict)  # options of all features, by feature
    learned: Learned = NOTHING  # for the feature itself


class Kind(NamedTuple):
    """The graph of a kind."""

    prepare: Callable[[Any, Any, Context], Prepared]
    """Takes options, and a raw column, shape [rows] or ragged [rows, None]; None for a kind without a column. Missing
    optional values are `""`, NaN or empty lists."""
    features: Callable[[Any, Parts], Parts] = lambda description, stored: stored
    """Makes stored parts model-ready; by default they are unchanged."""


def each(prepare: Callable[[Any, Any, Context], Prepared]) -> Callable[[Any, Any, Context], Prepared]:
    """Makes `prepare` work on the first `max_length` values of lists, ragged [rows, None]; missing lists are empty."""

    def prepare_lists(options: Any, column: tf.RaggedTensor, context: Context) -> Prepared:
        kept = cut(options.max_length, column)
        values = prepare(options.model_copy(update={"optional": False}), kept.flat_values, context)

        def store(statistics: Statistics) -> Parts:
            parts = values.store(statistics)
            return {part: kept.with_flat_values(parts[part]) for part in ("", UNENCODED, LAST) if part in parts}

        return replace(values, store=store, geometry=None)

    return prepare_lists


def cut(max_length: int | None, column: tf.RaggedTensor) -> tf.RaggedTensor:
    """Keeps the first `max_length` values of each row; None: all."""
    return column if max_length is None else column[:, :max_length]


def padded(description: Any, values: tf.RaggedTensor, padding: Any = None) -> Parts:
    """Pads lists, ragged [rows, None] or [rows, None, …], at the end, by default with 0 or `""`: [rows, length].

    If the description's length varies, [rows, max_length], by default the longest row's; with the part `length`, int64
    [rows].
    """
    length = description.length
    wide = description.max_length if length == "varying" else length
    full = values.to_tensor(default_value=padding, shape=[None, wide, *values.shape[2:]])
    return {"": full} | ({"length": tf.cast(values.row_lengths(), tf.int64)} if length == "varying" else {})
