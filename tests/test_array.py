"""Arrays: options, equal results of both engines, and an end-to-end build."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.forecast.forecast import Forecast, forecast
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.spec.model import load_spec
from recordmill.transforms.base.arrays import DTYPES, ArrayDescription, ArrayLayout, numpy_dtype
from recordmill.transforms.base.kinds import read_description
from recordmill.transforms.base.stored import FinishOptions, RowError
from recordmill.transforms.engines.numpy_features import finish
from recordmill.transforms.engines.tensorflow_features import model_features
from recordmill.transforms.values.values_spec import Array
from tests.messages import raises


def described(dtype: str, *shape: int | None, **more: Any) -> ArrayDescription:
    return ArrayDescription(dtype=dtype, shape=shape, **more)


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"shape": [2, None]}, ("`shape`", "[2, None]")),
        ({"shape": [2], "max_length": 3}, ("`max_length`", "`shape`")),
        ({"shape": [1 << 14, 1 << 12], "dtype": "int32"}, ("64 MiB", "int32 [16384, 4096]", "268,435,456")),
        ({"shape": []}, ("at least 1",)),
        ({"shape": [0]}, ("equal to 1",)),
        ({"shape": [2], "dtype": "float64"}, ("'uint8', 'int16', 'int32'",)),
    ],
)
def test_a_shape_that_no_array_has_is_refused(given: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        Array(kind="array", **given)


@pytest.mark.parametrize("changed", [{"dtype": "object"}, {"shape": [2, None]}, {"shape": []}, {"shape": [0]}])
def test_a_damaged_description_is_refused(changed: dict[str, Any]) -> None:
    with raises(DatasetError, "dataset.json", next(iter(changed))):
        read_description({"kind": "array", "stored": "bytes", "dtype": "int16", "shape": [2], **changed})


def read(description: ArrayDescription, cells: list[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a batch's arrays from NumPy and from TensorFlow."""
    ours = finish({"x": description}, {"x": [memoryview(cell) for cell in cells]}, FinishOptions())
    theirs = model_features({"x": description}, {"x": tf.constant(cells, tf.string, shape=[len(cells)])})
    return dict(ours), {name: tensor.numpy() for name, tensor in theirs.items()}


@given(
    st.sampled_from(DTYPES), st.lists(st.integers(1, 3), max_size=3), st.booleans(), st.none() | st.integers(1, 4),
    st.lists(st.integers(0, 4), max_size=5), st.randoms(),
)  # fmt: skip
def test_both_engines_give_the_arrays_that_were_encoded(
    dtype: str, inner: list[int], ragged: bool, most: int | None, counts: list[int], random: Any
) -> None:
    shape = (None, *inner) if ragged else (2, *inner)
    layout = ArrayLayout(dtype, shape)
    sides = [(count if ragged else 2, *inner) for count in counts]
    arrays = [np.array(random.choices(range(100), k=int(np.prod(side)))).reshape(side) for side in sides]
    description = described(dtype, *shape, max_length=most if ragged else None)
    ours, theirs = read(description, [layout.encode(array) for array in arrays])
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert values.dtype == theirs[name].dtype
        np.testing.assert_array_equal(values, theirs[name], strict=True)
    assert ours["x"].dtype == layout.numpy
    for row, array in enumerate(arrays):
        kept = array[: ours["x"].shape[1]] if ragged else array
        np.testing.assert_array_equal(ours["x"][row][: len(kept)].astype(np.float64), kept)
        assert not ours["x"][row][len(kept) :].astype(bool).any()
    assert ours.get("x_length", np.array([])).tolist() == (counts if ragged else [])


@pytest.mark.parametrize(("shape", "bad"), [((2, 2), b"\0" * 9), ((None, 2), b"\0" * 9), ((2, 2), b"")])
def test_an_array_of_another_size_names_its_row(shape: tuple[int | None, ...], bad: bytes) -> None:
    description = described("int16", *shape)
    with raises(RowError, "'x'", f"{len(bad)} bytes") as error:
        finish({"x": description}, {"x": [b"\0" * 8, bad]}, FinishOptions())
    assert error.value.row == 1
    assert description.fault(b"\0" * 8) is None
    with pytest.raises(tf.errors.InvalidArgumentError):
        model_features({"x": described("int16", 2, 2)}, {"x": tf.constant([bad or b"\0", bad])})


@pytest.mark.parametrize("name", ["M8[25s/0]", "x" * 10_000, "O", "(1000000,1000000)f4"])
def test_a_foreign_dtype_is_not_parsed_by_numpy(name: str) -> None:
    with raises(DatasetError, "none of", "float32"):
        numpy_dtype(name)


def test_a_plan_shows_no_bytes_of_arrays(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"a": [row / 7] * 3}) + "\n" for row in range(9)))
    (tmp_path / "dataset.yaml").write_text(
        "name: d\nsource: {format: jsonl, path: rows.jsonl}\nfeatures: {a: {kind: array, dtype: float32, shape: [3]}}\n"
    )
    planned = forecast(load_spec(str(tmp_path / "dataset.yaml")), LocalFiles())
    assert isinstance(planned, Forecast)
    assert planned.columns[0].examples == ()
