"""Several names a row: ids in order, padded or multi-hot."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.category import Categories
from recordmill.transforms.contract.kinds.category import CategoriesDescription
from recordmill.transforms.tensorflow.features import KINDS
from recordmill.transforms.tensorflow.kind import Context, Prepared, Statistics
from tests.messages import raises
from tests.running import BOTH_WAYS, Run, lookup_of

NAMES = tf.constant(["b", "new", "a", "b", "c", "newer"])
ROWS = tf.RaggedTensor.from_row_lengths(NAMES, tf.constant([4, 0, 1, 1], tf.int64))
FOUND = Statistics(lookup=lookup_of("a", "b", "c"))


def prepared(rows: tf.RaggedTensor, is_label: bool = False, **given: Any) -> Prepared:
    options = Categories(kind="categories", **given).options(is_label=is_label)
    return KINDS["categories"].prepare(options, rows, Context())


def described(is_label: bool = False, **given: Any) -> CategoriesDescription:
    return Categories(kind="categories", **given).describe({"is_label": is_label, "vocabulary": "v", "words": 3})


def read(rows: tf.RaggedTensor, **given: Any) -> dict[str, tf.Tensor]:
    return dict(KINDS["categories"].features(described(**given), prepared(rows, **given).store(FOUND)))


IDS: list[Any] = [
    ({}, [[3, 1, 2, 3], [0] * 4, [4, 0, 0, 0], [1, 0, 0, 0]], [4, 0, 1, 1]),
    ({"max_length": 2}, [[3, 1], [0, 0], [4, 0], [1, 0]], [2, 0, 1, 1]),
    ({"length": 4}, [[3, 1, 2, 3], [0] * 4, [4, 0, 0, 0], [1, 0, 0, 0]], None),
    ({"oov_buckets": 6}, [[8, 4, 7, 8], [0] * 4, [9, 0, 0, 0], [3, 0, 0, 0]], [4, 0, 1, 1]),
    ({"hash_buckets": 9}, [[2, 1, 4, 2], [0] * 4, [8, 0, 0, 0], [9, 0, 0, 0]], [4, 0, 1, 1]),
    ({"is_label": True, "read": "ids"}, [[1, -1, 0, 1], [-1] * 4, [2, -1, -1, -1], [-1] * 4], [4, 0, 1, 1]),
]


@BOTH_WAYS
@pytest.mark.parametrize(("given", "ids", "lengths"), IDS)
def test_ids_are_padded(given: dict[str, Any], ids: Any, lengths: list[int] | None, run: Run) -> None:
    parts = run(lambda rows: read(rows, **given), ROWS)
    assert (parts[""].dtype, parts[""].numpy().tolist()) == (tf.int64, ids)
    assert (parts["length"].numpy().tolist() if "length" in parts else None) == lengths


@BOTH_WAYS
@pytest.mark.parametrize(
    ("given", "places"),
    [
        ({"is_label": True}, [[0, 1], [], [2], []]),
        ({"read": "multi_hot"}, [[1, 2, 3], [], [4], [1]]),
        ({"read": "multi_hot", "hash_buckets": 9}, [[1, 2, 4], [], [8], [9]]),
    ],
)
def test_multi_hot_is_1_where_the_row_has_the_name(given: dict[str, Any], places: list[list[int]], run: Run) -> None:
    parts = run(lambda rows: read(rows, **given), ROWS)
    size = described(**given).vocabulary_size
    expected = [[float(place in row) for place in range(size)] for row in places]
    assert (list(parts), parts[""].dtype) == ([""], tf.float32)
    np.testing.assert_array_equal(parts[""], expected)


@pytest.mark.parametrize("given", [{}, {"is_label": True}, {"read": "multi_hot"}, {"length": 3}])
def test_no_rows_keep_their_width(given: dict[str, Any]) -> None:
    width = {"is_label": 3, "read": 5, "length": 3}
    assert read(ROWS[:0], **given)[""].shape == [0, next((width[name] for name in given), 0)]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, "b new a b c newer"),
        ({"max_length": 1}, "b c newer"),
        ({"is_label": True}, "b new a b c newer"),
        ({"classes": ["a"]}, None),
        ({"hash_buckets": 3}, None),
    ],
)
def test_what_is_stored_is_counted(given: Any, names: str | None) -> None:
    tokens = prepared(ROWS, **given).tokens
    assert (None if tokens is None else b" ".join(tokens().numpy().tolist()).decode()) == names


def test_the_description_tells_the_ids_and_how_they_are_read() -> None:
    ids = {"vocabulary": "v", "vocabulary_size": 5, "unknown_id": 1, "first_id": 2, "oov_buckets": 1, "padding_id": 0}
    lengths = {"length": "varying", "max_length": 7}
    stored = {"kind": "categories", "stored": "int64"}
    assert described(max_length=7).to_json() == {**stored, **lengths, "read": "ids", **ids}
    label = {"vocabulary": "v", "vocabulary_size": 3, "unknown_id": None, "first_id": 0, "padding_id": -1}
    assert described(True, max_length=7).to_json() == {**stored, **lengths, "read": "multi_hot", **label}
    hashed = {"vocabulary_size": 4, "hash_buckets": 3, "padding_id": 0}
    shown = described(hash_buckets=3, length=7).to_json()
    assert shown == {**stored, "length": 7, "max_length": None, "read": "ids", **hashed}


def test_the_column_is_a_list_of_names() -> None:
    feature = Categories(kind="categories", separator="|", optional=True)
    assert feature.raw_column() == Column(ColumnType.CATEGORY, many=True, optional=True, separator="|")
    assert (feature.fill, feature.analyzed, feature.read_parts()) == ([], True, ("length",))
    assert Categories(kind="categories", read="multi_hot").read_parts() == ()
    assert described().tfds()["sequence"]["feature"]["tensor"]["dtype"] == "int64"


@pytest.mark.parametrize(
    ("given", "facts"),
    [({"oov_buckets": 0}, ("equal to 1",)), ({"hash_buckets": 2, "oov_buckets": 2}, ("unknown",)),
     ({"cross": ["a", "b"]}, ("cross", "Extra")), ({"length": 1, "max_length": 1}, ("`length`", "`max_length`"))],
)  # fmt: skip
def test_options_that_make_no_sense_are_told(given: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        Categories(kind="categories", **given)
    with raises(ValueError, "label", "`classes`"):
        Categories(kind="categories", oov_buckets=3).check_label()
