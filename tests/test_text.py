"""Text's graph: special ids beside cutting; equal eagerly, in a map, alone and in a batch; no rows, no state."""

from typing import Any

import pytest
import tensorflow as tf

from recordmill.transforms.base.graph import Context, Prepared, Statistics
from recordmill.transforms.texts import text_graph as text
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.texts.text_stored import TextDescription
from tests.running import lookup_of


def prepared(column: tf.Tensor, **given: Any) -> Prepared:
    options = Text(kind="text", **given)
    return text.prepare(options, column, Context())


def described(max_length: int | None = None, padding_id: int = 0, **given: Any) -> TextDescription:
    ids = {"vocabulary_size": 9, "unknown_id": 1, "first_id": 2}
    return TextDescription(max_length=max_length, padding_id=padding_id, **ids, **given)


@pytest.mark.parametrize(("max_length", "shape"), [(None, [0, 0]), (3, [0, 3])])
def test_no_rows_are_padded_to_no_rows(max_length: int | None, shape: list[int]) -> None:
    none = tf.RaggedTensor.from_row_splits(tf.constant([], tf.int64), tf.constant([0], tf.int64))
    assert text.features(described(max_length=max_length), {"": none})[""].shape == shape


@pytest.mark.parametrize("given", [{"begin": True, "end": True, "max_length": 5}, {"oov_buckets": 3}, {"ngrams": 2}])
def test_the_graph_keeps_no_state(given: dict[str, Any]) -> None:
    def graph(column: tf.Tensor) -> tf.Tensor:
        return prepared(column, **given).store(Statistics(lookup=lookup_of("a")))[""].flat_values

    traced = tf.function(graph, autograph=False).get_concrete_function(tf.TensorSpec([None], tf.string)).graph
    assert [operation.type for operation in traced.get_operations() if operation.op_def.is_stateful] == []
