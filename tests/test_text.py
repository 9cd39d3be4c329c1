"""Text's graph: tokens to ids, special ids, cutting and padding; equal eagerly, in a map, alone and in a batch."""

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
THE, CAT, SAT, DOTTED = HASHED
IDS = [
    # (options, the ids of TEXTS)
    ({}, [[2, 3, 1, 2], [], [1]]),
    ({"max_length": 2}, [[2, 3], [], [1]]),
    ({"max_length": 9}, [[2, 3, 1, 2], [], [1]]),
    ({"max_length": 2, "truncate": "start"}, [[1, 2], [], [1]]),
    ({"begin": True}, [[2, 3, 4, 1, 3], [2], [2, 1]]),
    ({"end": True}, [[3, 4, 1, 3, 2], [2], [1, 2]]),
    ({"begin": True, "end": True}, [[2, 4, 5, 1, 4, 3], [2, 3], [2, 1, 3]]),
    ({"begin": True, "end": True, "max_length": 4}, [[2, 4, 5, 3], [2, 3], [2, 1, 3]]),
    ({"begin": True, "end": True, "max_length": 4, "truncate": "start"}, [[2, 1, 4, 3], [2, 3], [2, 1, 3]]),
    ({"oov_buckets": 5}, [[6, 7, 1 + SAT, 6], [], [1 + DOTTED]]),
    ({"oov_buckets": 5, "end": True}, [[7, 8, 1 + SAT, 7, 6], [6], [1 + DOTTED, 6]]),
    ({"hash_buckets": 5}, [[1 + THE, 1 + CAT, 1 + SAT, 1 + THE], [], [1 + DOTTED]]),
    ({"hash_buckets": 5, "begin": True, "max_length": 2}, [[1, 2 + THE], [1], [1, 2 + DOTTED]]),
    ({"tokenizer": "bytes", "max_length": 3}, [[1 + b for b in b"the"], [], [1 + b for b in "i\u0307".encode()]]),
    ({"case": "keep"}, [[1, 3, 1, 2], [], [1]]),
]


@pytest.mark.first(14)
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


@pytest.mark.parametrize(("given", "counted"), [
    ({}, ["the", "cat", "the"]),
    ({"max_length": 1}, ["the", "cat", "the"]),
    ({"ngrams": [1, 2]}, ["the", "cat", "the cat", "the"]),
    ({"tokenizer": "characters"}, [*"the▁cat", *"the"]),
    ({"vocabulary": "words.txt"}, None),
    ({"hash_buckets": 3}, None),
    ({"tokenizer": "bytes"}, None),
])  # fmt: skip
def test_what_is_counted(given: dict[str, Any], counted: list[str] | None) -> None:
    tokens = prepared(tf.constant(["The cat", "", "the"]), **given).tokens
    found = None if tokens is None else [token.decode() for token in tokens().numpy().tolist()]
    assert found == counted
    assert Text(kind="text", **given).analyzed == bool(counted)


def described(max_length: int | None = None, padding_id: int = 0, **given: Any) -> TextDescription:
    ids = {"vocabulary_size": 9, "unknown_id": 1, "first_id": 2}
    return TextDescription(max_length=max_length, padding_id=padding_id, **ids, **given)


@BOTH_WAYS
@pytest.mark.parametrize(
    ("given", "lengths"),
    [({}, [4, 0, 1]), ({"max_length": 2}, [4, 0, 1]), ({"max_length": 3, "begin": True, "end": True}, [6, 2, 3])],
)
def test_true_lengths_are_kept(run: Run, given: dict[str, Any], lengths: list[int]) -> None:
    parts = stored(run, TEXTS, keep_length=True, **given)
    assert parts["length"].dtype == tf.int64
    assert parts["length"].numpy().tolist() == lengths
    description = described(keep_length=True)
    assert list(description.parts()) == ["", "length"]
    assert text.features(description, parts)["length"].numpy().tolist() == lengths


@BOTH_WAYS
@pytest.mark.parametrize(
    ("max_length", "padding_id", "padded"),
    [
        (None, 0, [[5, 6, 7], [0, 0, 0]]),
        (2, 0, [[5, 6], [0, 0]]),
        (4, 9, [[5, 6, 7, 9], [9, 9, 9, 9]]),
    ],
)
def test_padding(run: Run, max_length: int | None, padding_id: int, padded: list[list[int]]) -> None:
    description = described(max_length=max_length, padding_id=padding_id)
    ids = tf.ragged.constant([[5, 6, 7], []], tf.int64)
    ready = run(lambda ragged: text.features(description, {"": ragged}), ids)
    assert list(ready) == list(description.parts()) == [""]
    assert (ready[""].dtype, ready[""].numpy().tolist()) == (tf.int64, padded)


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
