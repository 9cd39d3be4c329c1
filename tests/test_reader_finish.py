"""The NumPy `finish`: types of images, order, what moves with an image, and rows that are not what was stored."""

from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from recordmill.augment import RandomFlip
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.transforms.base import arrays as array
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import FinishOptions, Ragged, RowError, stored_features
from recordmill.transforms.engines.numpy_features import finish
from recordmill.transforms.images.augment.chain import Augment, check
from tests.descriptions import whole
from tests.hand_made import encoded
from tests.messages import raises

DTYPES = {"bytes": object, "int64": np.int64, "float32": np.float32}
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (4, 5, 7, 3)).astype(np.uint8)
IMAGE = {
    "kind": "image", "stored": "bytes", "shape": [5, 7, 3], "dtype": "float32",
    "offset": [3.3, 0.1, 127.5], "scale": [1 / 57.1, 1 / 255, 1 / 127.5],
}  # fmt: skip
VARYING = {"length": "varying", "max_length": None}
TAGS = {"kind": "categories", "stored": "int64"}


def described(features: Mapping[str, Any]) -> dict[str, Description]:
    """Descriptions, made whole."""
    return read_descriptions({name: whole(of) for name, of in features.items()})


def finished(features: Mapping[str, Any], *given: Any, **options: Any) -> dict[str, Any]:
    return finish(described(features), *given, **options)


def columns(features: Mapping[str, Any], rows: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Stored values of rows as the parser gives them."""
    found: dict[str, Any] = {}
    for name, stored in stored_features(described(features)).items():
        if stored.shape is None:
            splits = np.cumsum([0, *(len(row) for row in rows[name])])
            values = [value for row in rows[name] for value in row]
            found[name] = Ragged(_values(values, stored.dtype), splits)
        elif stored.shape == ():
            found[name] = _values(rows[name], stored.dtype)
        else:
            found[name] = np.array(rows[name], DTYPES[stored.dtype]).reshape(-1, *stored.shape)
    return found


def _values(values: Sequence[Any], dtype: str) -> Any:
    return [memoryview(value) for value in values] if dtype == "bytes" else np.array(values, DTYPES[dtype])


@pytest.fixture(params=["with OpenCV", "without OpenCV"])
def _opencv(request: pytest.FixtureRequest) -> None:
    if request.param == "without OpenCV":
        request.getfixturevalue("without_opencv")


@pytest.mark.usefixtures("_opencv")
@pytest.mark.parametrize("described", ["uint8", "float32"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
def test_the_dtype_of_images(dtype: str, described: str) -> None:
    every = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 16, 16, 3)
    description = {**IMAGE, "shape": [16, 16, 3], "encoding": "raw", "dtype": described}
    ready = finished({"x": description}, {"x": [every.tobytes()] * 2}, FinishOptions(dtype=dtype))["x"]
    scaled = (tf.cast(every, tf.float32) - tf.constant(IMAGE["offset"])) * tf.constant(IMAGE["scale"])
    expected = every if dtype == "uint8" else tf.cast(scaled, dtype).numpy()
    assert ready.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    np.testing.assert_array_equal(ready, np.concatenate([expected] * 2))


@pytest.mark.usefixtures("_opencv")
def test_bfloat16_of_images_of_their_own_sizes() -> None:
    images = [encoded(pixels, "png") for pixels in (PIXELS[0], PIXELS[0][:, :1].copy())]
    stored = columns({"x": {**IMAGE, "encoding": "png"}}, {"x": images})
    features = {"x": {**IMAGE, "encoding": "png", "shape": [None, None, 3]}}
    exact, rounded = (finished(features, stored, FinishOptions(dtype=dtype))["x"] for dtype in ("float32", "bfloat16"))
    np.testing.assert_array_equal(rounded, exact.astype(ml_dtypes.bfloat16))


def test_without_its_package_bfloat16_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array.importlib, "import_module", MagicMock(side_effect=ModuleNotFoundError))
    with pytest.raises(DatasetError, match="pip install ml_dtypes"):
        finished({"x": {**IMAGE, "encoding": "raw"}}, {"x": []}, FinishOptions(dtype="bfloat16"))


def test_keys_come_last_and_what_is_not_described_is_left_out() -> None:
    stored = {"note": [memoryview(b"n")], "count": np.array([1]), "key": [memoryview(b"row")], "price": np.array([1.0])}
    features = {"price": {"kind": "number", "stored": "float32"}, "note": {"kind": "raw", "stored": "bytes"}}
    ready = finished(features, stored, FinishOptions())
    assert list(ready) == ["price", "note", "key"]
    assert (ready["note"].tolist(), ready["key"].tolist()) == ([b"n"], [b"row"])


def test_boxes_move_with_their_image_and_others_stay() -> None:
    features = {"boxes": {"kind": "boxes", "image": "x", "stored": "float32", **VARYING},
        "more": {"kind": "boxes", "image": "x", "stored": "float32", **VARYING},
        "others": {"kind": "boxes", "image": "y", "stored": "float32", **VARYING},
        "x": {**IMAGE, "encoding": "raw", "dtype": "uint8"}}  # fmt: skip
    box, other = [0.0, 0.25, 0.5, 0.5], [0.0, 0.0, 1.0, 0.125]
    rows = {"boxes": [box + other, []], "more": [other, box], "others": [box, box]}
    stored = columns(features, {**rows, "x": [pixels.tobytes() for pixels in PIXELS[:2]]})
    changes = check([RandomFlip()])
    augment = {"x": Augment(changes, np.array([[1.0, 0.0], [0.0, 0.0]]))}
    ready = finished(features, stored, FinishOptions(), augment=augment)
    np.testing.assert_array_equal(ready["x"], [PIXELS[0, :, ::-1], PIXELS[1]])
    assert ready["boxes"].tolist() == [[[0, 0.5, 0.5, 0.75], [0, 0.875, 1, 1]], [[0] * 4] * 2]
    assert ready["more"].tolist() == [[[0, 0.875, 1, 1]], [box]]
    assert ready["others"].tolist() == [[box], [box]]
    assert stored["boxes"].values.tolist() == box + other  # what was read is left alone


@pytest.mark.parametrize(("description", "rows", "row", "facts"), [
    ({"kind": "boxes", "image": "y"}, {"x": [[0] * 4, [0] * 3]}, 1, ("'x'", "3 numbers")),
    ({**TAGS, "read": "multi_hot", "vocabulary_size": 2}, {"x": [[1], [], [0, 2]]}, 2, ("'x'", "id 2", "of 2")),
    ({**IMAGE, "encoding": "raw"}, {"x": [PIXELS[0].tobytes(), b"abc"]}, 1, ("'x'", "3 bytes", "105")),
], ids=["boxes", "multi_hot", "raw"])  # fmt: skip
def test_a_row_that_is_not_what_was_stored_is_named(
    description: dict[str, Any], rows: dict[str, list[Any]], row: int, facts: tuple[str, ...]
) -> None:
    features = {"x": {"stored": "float32", **description}}
    with raises(RowError, *facts) as raised:
        finished(features, columns(features, rows), FinishOptions())
    assert raised.value.row == row
