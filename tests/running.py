"""The ways that a graph function is run: a test that takes `run` proves them equal."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

Run = Callable[[Callable[[Any], Any], Any], Any]


def eagerly(function: Callable[[Any], Any], values: Any) -> Any:
    return function(values)


def in_a_map(function: Callable[[Any], Any], values: Any) -> Any:
    return next(iter(tf.data.Dataset.from_tensors(values).map(function)))


BOTH_WAYS = pytest.mark.parametrize("run", [eagerly, in_a_map])


def assert_same_bits(run: Run, function: Callable[[Any], Any], rows: Any) -> None:
    """Compares a function of a batch, run either way, with that of each row alone."""
    together = function(tf.constant(rows)).numpy()
    assert run(function, tf.constant(rows)).numpy().tobytes() == together.tobytes()
    alone = np.concatenate([function(tf.constant(rows[place : place + 1])).numpy() for place in range(len(rows))])
    assert alone.tobytes() == together.tobytes()


def lookup_of(*known: str) -> Callable[[tf.Tensor, int], tf.Tensor]:
    """A vocabulary's look-up, without a vocabulary."""

    def lookup(words: tf.Tensor, unknown: int) -> tf.Tensor:
        found = [tf.where(words == word, place - unknown, 0) for place, word in enumerate(known)]
        return tf.cast(tf.add_n(found) + unknown, tf.int64)

    return lookup
