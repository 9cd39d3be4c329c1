"""Categories' graph: ids by the place in the vocabulary, of the label and of any other feature."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from transforms import category
from transforms.kind import Found, Prepared

RUN = [
    pytest.param(lambda function, values: function(values), id="eager"),
    pytest.param(
        lambda function, values: next(iter(tf.data.Dataset.from_tensors(values).map(function))), id="Dataset.map"
    ),
]
NAMES = tf.constant(["cat", "dög", "with space", "never seen", ""])
TRAIN = tf.constant([True, False, True, False, False])
PLACES = {"cat": 0, "dög": 1, "with space": 2}
Run = Callable[[Callable[[tf.Tensor], Any], tf.Tensor], Any]


def prepared(column: tf.Tensor, is_label: bool) -> Prepared:
    return category.prepare({"is_label": is_label}, column, TRAIN)


def lookup(words: tf.Tensor, unknown: int) -> tf.Tensor:
    found = [tf.where(words == word, place - unknown, 0) for word, place in PLACES.items()]
    return tf.cast(tf.add_n(found) + unknown, tf.int64)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    ("is_label", "ids"), [(True, [0, 1, 2, -1, -1]), (False, [1, 2, 3, 0, 0])], ids=["label", "feature"]
)
def test_a_labels_ids_begin_at_zero_and_all_others_leave_zero_to_the_unknown(
    run: Run, is_label: bool, ids: list[int]
) -> None:
    stored = run(lambda column: prepared(column, is_label).store(Found(lookup=lookup)), NAMES)
    assert (stored.dtype, stored.numpy().tolist()) == (tf.int64, ids)
    assert category.finish({}, stored).numpy().tolist() == ids


@pytest.mark.parametrize(("is_label", "count"), [(True, 5), (False, 2)])
def test_only_a_label_learns_from_all_splits(is_label: bool, count: int) -> None:
    tokens = prepared(NAMES, is_label).tokens
    assert tokens is not None
    assert tokens.numpy().tolist() == tf.boolean_mask(NAMES, TRAIN if not is_label else [True] * 5).numpy().tolist()
    assert len(tokens) == count


def test_no_rows_give_no_ids() -> None:
    empty = tf.constant([], tf.string)
    ready = category.prepare({"is_label": False}, empty, tf.constant([], tf.bool))
    assert ready.store(Found(lookup=lookup)).shape == [0]
