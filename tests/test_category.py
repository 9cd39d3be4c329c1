"""Categories' graph: ids by the place in the vocabulary, of the label and of any other feature."""

import pytest
import tensorflow as tf

from tests.running import BOTH_WAYS, Run, lookup_of
from transforms import category
from transforms.kind import Found, Prepared

NAMES = tf.constant(["cat", "dög", "with space", "never seen", ""])
TRAIN = tf.constant([True, False, True, False, False])
LOOKUP = lookup_of("cat", "dög", "with space")


def prepared(column: tf.Tensor, is_label: bool) -> Prepared:
    return category.prepare({"is_label": is_label, "classes": None}, column, TRAIN)


@BOTH_WAYS
@pytest.mark.parametrize(
    ("is_label", "ids"), [(True, [0, 1, 2, -1, -1]), (False, [1, 2, 3, 0, 0])], ids=["label", "feature"]
)
def test_a_labels_ids_begin_at_zero_and_all_others_leave_zero_to_the_unknown(
    run: Run, is_label: bool, ids: list[int]
) -> None:
    stored = run(lambda column: prepared(column, is_label).store(Found(lookup=LOOKUP)), NAMES)
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
    ready = category.prepare({"is_label": False, "classes": None}, empty, tf.constant([], tf.bool))
    assert ready.store(Found(lookup=LOOKUP)).shape == [0]
