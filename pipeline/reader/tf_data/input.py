"""An input as `tf.data`: the batches of the NumPy reader as they are, handed over without a copy."""

from collections.abc import Callable
from copy import copy
from typing import Any, TypeAlias

import tensorflow as tf

from recordmill.pipeline.reader.input import BATCHES_AHEAD, NumpyBatches, Source
from recordmill.pipeline.reader.order.steps import Passes
from recordmill.pipeline.reader.tf_data.handover import in_groups
from recordmill.pipeline.reader.workers.pool import AHEAD as AHEAD_OF_WORKER
from recordmill.transforms.contract.ragged import ArraySpec

MOST_TOGETHER = 8  # batches of a call: of more the first comes later, as a larger graph is traced, the others no sooner
AHEAD = 2  # batches that tf.data holds ready, beside those that the reader makes ahead

Begin: TypeAlias = Callable[[Source], NumpyBatches]
"""Begins the next iteration over a source."""


@tf.autograph.experimental.do_not_convert  # AutoGraph writes files and runs them
def as_tf_data(source: Source, passes: Passes, begin: Begin) -> tf.data.Dataset:
    """Gives an input's batches; see `Input.as_tf_data`."""
    batches = _generated(_in_one_thread(source), begin)
    if _is_whole(source):  # Keras shows its progress by the number of batches
        count = tf.data.INFINITE_CARDINALITY if passes.steps is None else passes.steps
        batches = batches.apply(tf.data.experimental.assert_cardinality(count))
    options = tf.data.Options()
    options.autotune.enabled = False  # all numbers are given, and its thread delays dropping an iterator by seconds
    return batches.prefetch(AHEAD).with_options(options)


def _in_one_thread(source: Source) -> Source:
    """Lets TensorFlow's thread make the batches where one thread would: two would compete for Python's lock."""
    if source.threads > 1 or source.given.workers:
        return source
    alone = copy(source)
    alone.threads = 0
    return alone


def _generated(source: Source, begin: Begin) -> tf.data.Dataset:
    """Gives the batches of a source; ragged lists travel as pairs of values and splits."""
    spec = source.element_spec
    specs = _mapped(_tensor_spec, spec)
    batches = in_groups(
        lambda: (tf.nest.flatten(_pairs(batch)) for batch in begin(source)),
        tf.nest.flatten(specs),
        lambda tensors: tf.nest.pack_sequence_as(specs, tensors),
        min(MOST_TOGETHER, _ready(source)),
    )
    if not _has_ragged(spec):
        return batches
    return batches.map(lambda *batch: _mapped(_tensor, spec, batch if len(batch) > 1 else batch[0]))


def _ready(source: Source) -> int:
    """Counts the batches that a reader which is faster than its loop has ready: a call does not wait for more."""
    workers, threads = source.given.workers, source.threads
    made = AHEAD_OF_WORKER * workers if workers else threads + BATCHES_AHEAD if threads else 1
    return made * source.steps_together


def _mapped(function: Callable[..., Any], spec: Any, *values: Any) -> Any:
    """Applies a function to each `ArraySpec` of a structure, and to the values at its place in other structures."""
    if isinstance(spec, ArraySpec):
        return function(spec, *values)
    if isinstance(spec, dict):
        return {name: _mapped(function, spec[name], *(value[name] for value in values)) for name in spec}
    return tuple(_mapped(function, *parts) for parts in zip(spec, *values, strict=True))


def _tensor_spec(spec: ArraySpec) -> Any:
    kind = tf.string if spec.dtype == "bytes" else tf.as_dtype(spec.dtype)
    if spec.ragged:
        return tf.TensorSpec([None, *spec.shape[2:]], kind), tf.TensorSpec([None], tf.int64)
    return tf.TensorSpec(spec.shape, kind)


def _tensor(spec: ArraySpec, value: Any) -> Any:
    if not spec.ragged:
        return value
    return tf.RaggedTensor.from_row_splits(*value, validate=False)


def _has_ragged(spec: Any) -> bool:
    ragged: list[bool] = []
    _mapped(lambda array: ragged.append(array.ragged), spec)
    return any(ragged)


def _pairs(batch: Any) -> Any:
    """Makes each `Ragged` a plain tuple, which tf.data takes for a structure."""
    if isinstance(batch, dict):
        return {name: _pairs(value) for name, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(map(_pairs, batch))
    return batch


def _is_whole(source: Source) -> bool:
    """Whether all iterations have the same length: a resumed input's first may be the rest of an epoch.

    With `on_error="skip"` all records of a step may be left out, and so its batch.
    """
    given = source.given
    return given.on_error == "raise" and (given.epochs is not None or given.start_step % max(1, source.of_epoch) == 0)
