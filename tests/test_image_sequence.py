"""Image sequences: items as single images, lists cut, padded and read."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Picture
from pydantic import ValidationError

from recordmill.pipeline.build.worker.build_shard import encode
from recordmill.pipeline.spec.features.image import Image, ImageSequence
from recordmill.transforms.tensorflow import image
from recordmill.transforms.tensorflow.features import KINDS
from recordmill.transforms.tensorflow.kind import Context, Statistics
from tests.messages import raises


def feature(**keys: Any) -> ImageSequence:
    return ImageSequence(kind="image_sequence", **{"size": (6, 8), **keys})


def saved(seed: int, form: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (9 + seed, 14, 3), np.uint8)
    into = io.BytesIO()
    Picture.fromarray(pixels).save(into, form)
    return into.getvalue()


SEQUENCE = KINDS["image_sequence"]
FILES = [saved(0), saved(1, "JPEG"), saved(2)]
LISTS = [FILES[:2], [], FILES[2:]]


def ragged(lists: list[list[bytes]]) -> tf.RaggedTensor:
    lengths = tf.constant([len(one) for one in lists], tf.int64)
    return tf.RaggedTensor.from_row_lengths(tf.constant(sum(lists, []), tf.string), lengths)


def store(options: ImageSequence, lists: list[list[bytes]]) -> tf.RaggedTensor:
    context = Context()
    return SEQUENCE.prepare(options.options(), ragged(lists), context).store(Statistics())[""]


def one_by_one(keys: dict[str, Any], files: list[bytes], statistics: dict[str, Any]) -> tuple[list[bytes], np.ndarray]:
    """Returns the images as kind `image` stores and reads them."""
    options = Image(kind="image", **{"size": (6, 8), **keys})
    stored = image.prepare(options.options(), tf.constant(files), Context())
    parts = stored.store(Statistics())
    return parts[""].numpy().tolist(), image.features(options.describe(statistics), parts)[""].numpy()


def test_what_is_cut_off_is_not_decoded() -> None:
    broken = [[FILES[0], b"\x89PNG broken"]]
    assert store(feature(max_length=1), broken).to_list() == store(feature(), [FILES[:1]]).to_list()
    with pytest.raises(tf.errors.InvalidArgumentError):
        store(feature(), broken)


@pytest.mark.first(3)
@pytest.mark.parametrize("how", ["auto", "raw"])
@pytest.mark.parametrize(("rows", "max_length", "shape"), [(0, None, [0, 0]), (1, None, [1, 0]), (1, 3, [1, 3])])
def test_no_images(rows: int, max_length: int | None, shape: list[int], how: str) -> None:
    options = feature(max_length=max_length, store=how)
    description = options.describe({})
    ready = tf.function(lambda stored: SEQUENCE.features(description, {"": stored})[""])
    assert ready(store(options, [[]] * rows)).shape == [*shape, 6, 8, 3]
    static = ready.get_concrete_function(tf.RaggedTensorSpec([None, None], tf.string, 1, tf.int64)).output_shapes
    assert static.as_list() == [None, max_length, 6, 8, 3]


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ({"size": None}, ("size",)),
        ({"size": None, "shorter_side": 9}, ("size",)),
        ({"fit": "none"}, ("'pad', 'crop' or 'stretch'",)),
        ({"store": "original"}, ("'auto', 'jpeg', 'png' or 'raw'",)),
        ({"length": 2, "max_length": 3}, ("`length`", "`max_length`")),
    ],
)
def test_what_a_sequence_cannot_be(keys: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts) as error:
        feature(**keys)
    assert error.value.error_count() == 1


@pytest.mark.parametrize("how", ["png", "raw"])
def test_tensorflow_datasets_reads_them(tmp_path: Path, how: str) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    options = feature(store=how, normalize="none")
    kind = {"pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict"}
    of_file = {**kind, "featuresDict": {"features": {"x": options.describe({}).tfds()}}}
    (tmp_path / "features.json").write_text(json.dumps(of_file))
    theirs = tfds.features.FeaturesDict.from_config(str(tmp_path))
    _, pixels = one_by_one({"store": how, "normalize": "none"}, FILES[:2], {})
    records = encode([b"a", b"b"], {"x": store(options, LISTS[:2])})
    two, none = (theirs.deserialize_example(one)["x"] for one in records)
    np.testing.assert_array_equal(two, pixels)
    assert len(none) == 0
