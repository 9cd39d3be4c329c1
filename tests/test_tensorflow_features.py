"""Stored to model-ready: the same values eagerly, inside `Dataset.map` and inside a SavedModel."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.tensorflow.features import model_features, parse, parse_spec
from tests import hand_made

ROWS = [3, 0, 5, 1]
FEATURES = read_descriptions(hand_made.FEATURES)
ENCODINGS = [("png", "float32"), ("jpeg", "float32"), ("raw", "float32"), ("png", "uint8"), ("raw", "uint8")]


def records(features: dict[str, Any], rows: list[int]) -> tf.Tensor:
    return tf.constant([hand_made.serialized(row, features) for row in rows], tf.string, [len(rows)])


def eagerly(run: Callable[[tf.Tensor], Any], serialized: tf.Tensor, folder: Path) -> Any:
    return run(serialized)


def in_dataset(run: Callable[[tf.Tensor], Any], serialized: tf.Tensor, folder: Path) -> Any:
    return next(iter(tf.data.Dataset.from_tensors(serialized).map(run)))


def in_saved_model(run: Callable[[tf.Tensor], Any], serialized: tf.Tensor, folder: Path) -> Any:
    module = tf.Module()
    module.run = tf.function(run, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(folder))
    return tf.saved_model.load(str(folder)).run(serialized)


WAYS = [eagerly, in_dataset, in_saved_model]


@pytest.mark.parametrize("way", WAYS)
def test_every_kind_comes_out_as_its_row_says(way: Callable[..., Any], tmp_path: Path) -> None:
    ready = way(lambda s: parse(FEATURES, s, with_key=True), records(hand_made.FEATURES, ROWS), tmp_path)
    rows = [hand_made.row(number) for number in ROWS]
    pixels = np.stack([row["image"] for row in rows]).astype(np.float32)
    scaled = (pixels - np.float32([0, 1, 2])) * np.float32(hand_made.SCALE)
    np.testing.assert_array_equal(ready["image"], scaled)
    np.testing.assert_array_equal(ready["text"], [[5, 2, 3], [0, 0, 0], [3, 0, 0], [3, 0, 0]])
    for name in ("key", "category", "colour", "price", "weight", "count", "note"):
        np.testing.assert_array_equal(ready[name], [row[name] for row in rows])
    dtypes = {name: ready[name].dtype.name for name in ready if name not in ("key", "note")}
    assert {name for name, dtype in dtypes.items() if dtype == "int64"} == {"text", "category", "colour", "count"}
    assert {name for name, dtype in dtypes.items() if dtype == "float32"} == {"image", "price", "weight"}


@pytest.mark.first(8)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("encoding", "dtype"), ENCODINGS)
def test_images_of_every_encoding(encoding: str, dtype: str, way: Callable[..., Any], tmp_path: Path) -> None:
    features = {"image": hand_made.image(encoding, dtype)}
    ready = way(lambda s: parse(read_descriptions(features), s), records(features, ROWS), tmp_path)["image"]
    pixels = np.stack([hand_made.row(number)["image"] for number in ROWS])
    if encoding == "jpeg":
        stored = [hand_made.encoded(one, "jpeg") for one in pixels]
        pixels = np.stack([tf.io.decode_jpeg(one, dct_method="INTEGER_ACCURATE") for one in stored])
    scaled = (pixels.astype(np.float32) - np.float32([0, 1, 2])) * np.float32(hand_made.SCALE)
    np.testing.assert_array_equal(ready, pixels if dtype == "uint8" else scaled)
    assert ready.dtype.name == dtype


@pytest.mark.parametrize(("max_length", "expected"), [(None, [[0, 0], [4, 5]]), (3, [[0, 0, 0], [4, 5, 0]])])
def test_texts_are_padded_to_the_limit_or_the_longest(max_length: int | None, expected: list[list[int]]) -> None:
    features = {"text": hand_made.text(max_length)}
    np.testing.assert_array_equal(parse(read_descriptions(features), records(features, [0, 2]))["text"], expected)


@pytest.mark.parametrize(("encoding", "dtype"), ENCODINGS)
def test_no_rows_give_tensors_of_no_rows(encoding: str, dtype: str) -> None:
    features = {**hand_made.FEATURES, "image": hand_made.image(encoding, dtype)}
    ready = parse(read_descriptions(features), records(features, []), with_key=True)
    assert ready["image"].shape == (0, hand_made.HEIGHT, hand_made.WIDTH, 3)
    assert ready["text"].shape == (0, 3)
    assert {tensor.shape for name, tensor in ready.items() if name not in ("image", "text")} == {(0,)}


@pytest.mark.parametrize("rows", [None, 4])
def test_the_number_of_rows_is_static_where_it_can_be(rows: int | None) -> None:
    run = tf.function(lambda s: parse(FEATURES, s), input_signature=[tf.TensorSpec([rows], tf.string)])
    shapes = {name: list(spec.shape) for name, spec in run.get_concrete_function().structured_outputs.items()}
    assert shapes["image"] == [rows, hand_made.HEIGHT, hand_made.WIDTH, 3]
    assert shapes["text"] == [rows, 3]
    assert shapes["category"] == [rows]


def test_finish_keeps_the_order_and_leaves_out_what_is_not_described() -> None:
    stored = {"note": tf.constant([b"x"]), "count": tf.constant([1]), "price": tf.constant([0.5])}
    described = {name: hand_made.FEATURES[name] for name in ("price", "note")}
    assert list(model_features(read_descriptions(described), stored)) == ["price", "note"]


def test_the_key_is_parsed_only_where_it_is_asked_for() -> None:
    assert list(parse_spec(FEATURES)) == list(hand_made.FEATURES)
    assert list(parse_spec(FEATURES, with_key=True)) == [*hand_made.FEATURES, "key"]


@pytest.mark.parametrize("record", [b"no Example", b""], ids=["no Example", "no features"])
def test_a_record_that_is_not_what_was_stored_is_an_error(record: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="parse|required"):
        parse({"price": FEATURES["price"]}, tf.constant([record]))
