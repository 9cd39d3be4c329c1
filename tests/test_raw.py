"""Raw values and lists, stored unchanged."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.raw import Raw
from recordmill.transforms.contract.kinds.raw import RawDescription
from recordmill.transforms.tensorflow import features
from recordmill.transforms.tensorflow.features import parse_spec
from recordmill.transforms.tensorflow.kind import DTYPES, Context, Statistics
from tests.messages import raises
from tests.running import BOTH_WAYS, Run

VALUES: list[Any] = [
    ("bytes", [b"a", b"", b"\xff"], b"", ColumnType.TEXT),
    ("int64", [1, -(1 << 63), 7], 0, ColumnType.INTEGER),
    ("float32", [0.5, -0.0, float("nan")], 0.0, ColumnType.NUMBER),
]


def read(column: Any, **given: Any) -> dict[str, tf.Tensor]:
    feature = Raw(kind="raw", **given)
    stored = features.prepare_raw(feature.options(), column, Context()).store(Statistics())
    return dict(features.raw_features(feature.describe({}), stored))


@BOTH_WAYS
@pytest.mark.parametrize(("type_", "values", "padding", "column"), VALUES)
def test_a_value_is_itself(type_: str, values: list[Any], padding: Any, column: ColumnType, run: Run) -> None:
    parts = run(lambda raw_column: read(raw_column, type=type_), tf.constant(values, DTYPES[type_]))
    assert list(parts) == [""]
    np.testing.assert_array_equal(parts[""], values)
    assert Raw(kind="raw", type=type_, optional=True).raw_column() == Column(column, optional=True)


@BOTH_WAYS
@pytest.mark.parametrize(("type_", "values", "padding", "column"), VALUES)
def test_a_list_is_padded(type_: str, values: list[Any], padding: Any, column: ColumnType, run: Run) -> None:
    rows = tf.RaggedTensor.from_row_lengths(tf.constant(values, DTYPES[type_]), tf.constant([0, 2, 1], tf.int64))
    first, second, third = values
    full = [[padding, padding], [first, second], [third, padding]]
    for given, width, lengths in (({}, 2, [0, 2, 1]), ({"max_length": 1}, 1, [0, 1, 1]), ({"length": 2}, 2, None)):
        parts = run(lambda column, given=given: read(column, type=type_, many=True, **given), rows)
        np.testing.assert_array_equal(parts[""], [row[:width] for row in full])
        assert (parts["length"].numpy().tolist() if "length" in parts else None) == lengths
    assert Raw(kind="raw", type=type_, many=True, length=2).raw_column() == Column(column, many=True, length=2)


def test_what_a_row_lacks_is_empty_zero_not_a_number_or_no_values() -> None:
    fills = [Raw(kind="raw", type=type_).fill for type_, *_ in VALUES]
    assert str(fills) == "[b'', 0, nan]"
    assert Raw(kind="raw", many=True).fill == []


def test_no_field_of_a_description_is_filled_by_an_equal_name_alone() -> None:
    with raises(TypeError, "RawDescription.optional", "take it"):
        Raw(kind="raw")._describe(RawDescription, "max_length", stored="int64", length=None)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("type_", "values", "padding", "column"), VALUES)
def test_the_description_tells_what_is_stored(type_: str, values: Any, padding: Any, column: Any, many: bool) -> None:
    feature = Raw(kind="raw", type=type_, many=many)
    lengths = {"length": "varying", "max_length": None} if many else {}
    assert feature.describe({}).to_json() == {"kind": "raw", "stored": type_, **lengths}
    kind = tf.io.RaggedFeature if many else tf.io.FixedLenFeature
    assert isinstance(parse_spec({"x": feature.describe({})})["x"], kind)
    tfds = feature.describe({}).tfds()
    scalar = tfds["sequence"]["feature"] if many else tfds
    assert scalar["tensor"]["dtype"] == DTYPES[type_].name
    assert feature.read_parts() == (("length",) if many else ())


@pytest.mark.parametrize("option", [{"length": 2}, {"max_length": 2}, {"separator": ";"}])
def test_options_of_lists_need_lists(option: dict[str, Any]) -> None:
    with raises(ValidationError, f"`{next(iter(option))}`", "`many: true`"):
        Raw(kind="raw", **option)
