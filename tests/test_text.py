"""Text's graph: special ids beside cutting; equal eagerly, in a map, alone and in a batch; no rows, no state."""

from typing import Any

import pytest
import tensorflow as tf

from recordmill.pipeline.spec.features.text import Text
from recordmill.transforms.contract.kinds.text import TextDescription
from recordmill.transforms.tensorflow import text
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics
from tests.running import BOTH_WAYS, Run, lookup_of

TEXTS = ["The cat sat, the", "", "İ"]


def prepared(column: tf.Tensor, **given: Any) -> Prepared:
    options = Text(kind="text", **given).options()
    return text.prepare(options, column, Context())


def stored(run: Run, texts: list[str], **given: Any) -> Parts:
    found = Statistics(lookup=lookup_of("the", "cat"))
    return run(lambda column: prepared(column, **given).store(found), tf.constant(texts, tf.string))


HASHED = tf.strings.to_hash_bucket_fast(["the", "cat", "sat", "i\u0307"], 5).numpy().tolist()
THE, _, SAT, DOTTED = HASHED
IDS = [
    # (options, the ids of TEXTS)
    ({"max_length": 2}, [[2, 3], [], [1]]),
    ({"max_length": 2, "truncate": "start"}, [[1, 2], [], [1]]),
    ({"begin": True, "end": True, "max_length": 4}, [[2, 4, 5, 3], [2, 3], [2, 1, 3]]),
    ({"begin": True, "end": True, "max_length": 4, "truncate": "start"}, [[2, 1, 4, 3], [2, 3], [2, 1, 3]]),
    ({"oov_buckets": 5, "end": True}, [[7, 8, 1 + SAT, 7, 6], [6], [1 + DOTTED, 6]]),
    ({"hash_buckets": 5, "begin": True, "max_length": 2}, [[1, 2 + THE], [1], [1, 2 + DOTTED]]),
    ({"tokenizer": "bytes", "max_length": 3}, [[1 + b for b in b"the"], [], [1 + b for b in "i\u0307".encode()]]),
]


@BOTH_WAYS
@pytest.mark.parametrize(("given", "ids"), IDS, ids=[str(given) for given, _ in IDS])
def test_ids(run: Run, given: dict[str, Any], ids: list[list[int]]) -> None:
    parts = stored(run, TEXTS, **given)
    assert list(parts) == [""]
    assert parts[""].dtype == tf.int64
    assert parts[""].to_list() == ids
    alone = [stored(run, [one], **given)[""].to_list()[0] for one in TEXTS]
    assert alone == ids, "a text's ids do not depend on its batch"
    assert stored(run, [], **given)[""].to_list() == []


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
