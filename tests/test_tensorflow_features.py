"""Stored to model-ready: shapes of no rows and in graphs, order, keys, and records of something else."""

from typing import Any

import pytest
import tensorflow as tf

from recordmill.transforms.base.graph import Context, Statistics
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.engines.tensorflow_features import KINDS, model_features, parse, parse_spec
from recordmill.transforms.values.category_spec import Categories, Category
from recordmill.transforms.values.values_spec import Number, Numbers
from tests import hand_made

FEATURES = read_descriptions(hand_made.FEATURES)
NUMBERS: dict[str, Any] = {"kind": "numbers", "normalize": "none"}
NAMES: dict[str, Any] = {"kind": "categories", "hash_buckets": 3}
LISTS = [
    (Numbers(**NUMBERS, length=5), [5]), (Numbers(**NUMBERS, max_length=7), [7]), (Numbers(**NUMBERS), [None]),
    (Categories(**NAMES, length=3), [3]), (Categories(**NAMES, read="multi_hot"), [4]), (Categories(**NAMES), [None]),
    (Number(kind="number", normalize="none"), []), (Category(kind="category", hash_buckets=2), []),
]  # fmt: skip


@pytest.mark.parametrize(("feature", "shape"), LISTS, ids=str)
def test_no_rows_have_a_width_and_it_is_static_where_it_can_be(feature: Any, shape: list[int | None]) -> None:
    def ready(column: Any) -> Any:
        stored = KINDS[feature.kind].prepare(feature, column, Context()).store(Statistics())
        return KINDS[feature.kind].features(feature.describe({"is_label": False}), stored)[""]

    dtype = tf.float32 if feature.kind.startswith("number") else tf.string
    spec = tf.RaggedTensorSpec([None, None], dtype) if shape else tf.TensorSpec([None], dtype)
    static = tf.function(ready).get_concrete_function(spec).structured_outputs
    assert static.shape.as_list() == [None, *shape]
    none = tf.constant([], dtype)
    column = tf.RaggedTensor.from_row_lengths(none, tf.constant([], tf.int64)) if shape else none
    assert ready(column).shape == [0, *(width or 0 for width in shape)]


@pytest.mark.parametrize("rows", [None, 0, 4])
def test_the_number_of_rows_is_static_where_it_can_be(rows: int | None) -> None:
    run = tf.function(lambda s: parse(FEATURES, s, with_key=True), input_signature=[tf.TensorSpec([rows], tf.string)])
    shapes = {name: list(spec.shape) for name, spec in run.get_concrete_function().structured_outputs.items()}
    assert shapes["image"] == [rows, hand_made.HEIGHT, hand_made.WIDTH, 3]
    assert shapes["text"] == [rows, 3]
    assert {tuple(shape) for name, shape in shapes.items() if name not in ("image", "text")} == {(rows,)}
    if rows == 0:
        assert {name: list(each.shape) for name, each in run(tf.constant([], tf.string)).items()} == shapes


def test_the_key_is_parsed_where_it_is_asked_for_and_what_is_not_described_left_out() -> None:
    assert list(parse_spec(FEATURES)) == list(hand_made.FEATURES)
    assert list(parse_spec(FEATURES, with_key=True)) == [*hand_made.FEATURES, "key"]
    stored = {"note": tf.constant([b"x"]), "count": tf.constant([1]), "price": tf.constant([0.5])}
    described = {name: hand_made.FEATURES[name] for name in ("price", "note")}
    assert list(model_features(read_descriptions(described), stored)) == ["price", "note"]


@pytest.mark.parametrize("record", [b"no Example", b""], ids=["no Example", "no features"])
def test_a_record_that_is_not_what_was_stored_is_an_error(record: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="parse|required"):
        parse({"price": FEATURES["price"]}, tf.constant([record]))
