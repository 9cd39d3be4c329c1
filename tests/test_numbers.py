"""Lists of numbers: normalized by all values of the train split, stored ragged, read padded."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.number import Numbers
from recordmill.transforms.tensorflow.features import KINDS
from recordmill.transforms.tensorflow.kind import Context, Prepared, Statistics
from recordmill.transforms.tensorflow.number import used_statistics
from tests.messages import raises
from tests.running import BOTH_WAYS, Run

ROWS = tf.RaggedTensor.from_row_lengths(
    tf.constant([1, 2, 3, 4, 6, 8], tf.float32), tf.constant([3, 0, 1, 2], tf.int64)
)
FOUND = Statistics(
    mean=tf.constant(2.0, tf.float64), scale=tf.constant(0.5, tf.float64),
    minimum=tf.constant(1.0, tf.float64), range_scale=tf.constant(0.5, tf.float64),
    boundaries=tf.constant([3.0, 5.0], tf.float64),
)  # fmt: skip


def prepared(rows: tf.RaggedTensor, **given: Any) -> Prepared:
    options = Numbers(kind="numbers", **given).options(is_label=False)
    return KINDS["numbers"].prepare(options, rows, Context())


def ready(rows: tf.RaggedTensor, **given: Any) -> dict[str, tf.Tensor]:
    description = Numbers(kind="numbers", **given).describe({"boundaries": [3.0, 5.0]})
    return dict(KINDS["numbers"].features(description, prepared(rows, **given).store(FOUND)))


READ: list[Any] = [
    ({}, [[-0.5, 0, 0.5], [0, 0, 0], [1, 0, 0], [2, 3, 0]]),
    ({"normalize": "min_max"}, [[0, 0.5, 1], [0, 0, 0], [1.5, 0, 0], [2.5, 3.5, 0]]),
    ({"normalize": "none", "max_length": 2}, [[1, 2], [0, 0], [4, 0], [6, 8]]),
    ({"normalize": "none", "max_length": 4}, [[1, 2, 3, 0], [0] * 4, [4, 0, 0, 0], [6, 8, 0, 0]]),
    ({"normalize": "none", "clip": [None, 4]}, [[1, 2, 3], [0, 0, 0], [4, 0, 0], [4, 4, 0]]),
    ({"normalize": "none", "transform": "log1p"}, np.log1p([[1, 2, 3], [0, 0, 0], [4, 0, 0], [6, 8, 0]])),
    ({"quantiles": 3}, [[0, 0, 1], [0, 0, 0], [1, 0, 0], [2, 2, 0]]),
    ({"boundaries": [3, 8]}, [[0, 0, 1], [0, 0, 0], [1, 0, 0], [1, 2, 0]]),
    ({"normalize": "none", "length": 3}, [[1, 2, 3], [0, 0, 0], [4, 0, 0], [6, 8, 0]]),
]


@BOTH_WAYS
@pytest.mark.parametrize(("given", "expected"), READ)
def test_every_option(given: dict[str, Any], expected: Any, run: Run) -> None:
    parts = run(lambda rows: ready(rows, **given), ROWS)
    np.testing.assert_allclose(parts[""], np.float32(expected), rtol=1e-6)
    assert parts[""].dtype.name == Numbers(kind="numbers", **given).options().stored
    assert ("length" in parts) == ("length" not in given)
    longest = given.get("max_length", 3)
    if "length" in parts:
        assert parts["length"].dtype == tf.int64
        assert parts["length"].numpy().tolist() == [min(longest, length) for length in (3, 0, 1, 2)]


@pytest.mark.parametrize(
    ("given", "values", "wanted"),
    [
        ({}, [1, 2, 3, 4, 6, 8], ("mean", "variance")),
        ({"max_length": 1, "quantiles": 4}, [1, 4, 6], ("boundaries",)),
        ({"normalize": "min_max", "optional": True}, [1, 2, 3, 4, 6, 8], ("minimum", "maximum")),
        ({"normalize": "none"}, None, ()),
    ],
)
def test_what_is_stored_is_learned_from(given: Any, values: Any, wanted: tuple[str, ...]) -> None:
    one = prepared(ROWS, **given)
    assert (None if one.values is None else one.values().numpy().tolist()) == values
    assert used_statistics(Numbers(kind="numbers", **given).options()) == wanted
    assert Numbers(kind="numbers", **given).analyzed == (values is not None)


def test_the_length_is_static_where_it_is_given_and_no_rows_have_a_width_too() -> None:
    for given, width in (({"length": 5}, 5), ({"max_length": 7}, 7), ({}, None)):
        graph = tf.function(lambda rows, given=given: ready(rows, normalize="none", **given))
        spec = tf.RaggedTensorSpec([None, None], tf.float32)
        assert list(graph.get_concrete_function(spec).structured_outputs[""].shape) == [None, width]
        assert ready(ROWS[:0], normalize="none", **given)[""].shape == [0, width or 0]


def test_the_column_asks_the_source_for_the_length_and_says_how_cells_are_cut() -> None:
    feature = Numbers(kind="numbers", length=4, separator=" ", optional=True)
    assert feature.raw_column() == Column(ColumnType.NUMBER, many=True, optional=True, separator=" ", length=4)
    assert (feature.fill, feature.read_parts(), feature.parts()) == ([], (), ())
    assert Numbers(kind="numbers").read_parts() == ("length",)


def test_the_description_tells_what_is_stored() -> None:
    feature = Numbers(kind="numbers", boundaries=[1], max_length=9)
    bucket = {"stored": "int64", "normalize": "none", "boundaries": [1.0], "buckets": 2}
    assert feature.describe({}).to_json() == {"kind": "numbers", **bucket, "length": "varying", "max_length": 9}
    assert Numbers(kind="numbers", length=2).describe({}).length == 2
    assert feature.describe({}).tfds()["sequence"]["feature"]["tensor"]["dtype"] == "int64"
    assert feature.describe({}).parts()[""].dtype == "int64"


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"length": 2, "max_length": 3}, ("`length`", "`max_length`", "exclude")),
        ({"length": 0}, ("length", "equal to 1")),
        ({"separator": ""}, ("separator", "1 character")),
        ({"impute": 0}, ("impute", "Extra")),
    ],
)
def test_options_that_make_no_sense_are_told(given: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        Numbers(kind="numbers", **given)
