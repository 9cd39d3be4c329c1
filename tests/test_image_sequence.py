"""Image sequences: items as single images, lists cut, padded and read."""

import io
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Picture
from pydantic import ValidationError

from recordmill.pipeline.spec.features.image import ImageSequence
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
