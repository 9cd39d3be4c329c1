"""Images as kinds, one and several: options, stored parts, and the reader's results."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.spec.model import SpecError, parse_spec
from recordmill.transforms.base.graph import Context, Statistics
from recordmill.transforms.engines.tensorflow_features import KINDS
from recordmill.transforms.images import image_graph as image
from recordmill.transforms.images.image_spec import Image, ImageSequence
from recordmill.transforms.images.image_stored import ImageDescription
from tests.messages import raises
from tests.pictures import BACKGROUND, PIXELS, options, saved, turned

CONTEXT = Context()


def described(statistics=None, **keys):
    normalize = keys.pop("normalize", "none")
    feature = Image(kind="image", **{"background": BACKGROUND, "size": (8, 8), "normalize": normalize, **keys})
    return feature.describe(statistics or {})


def stored_parts(files, **keys):
    return image.prepare(options(**keys), tf.constant(files, tf.string), CONTEXT).store(Statistics())


def store(files, **keys):
    return stored_parts(files, **keys)[""]


def read(stored, statistics=None, **keys):
    return image.features(described(statistics, **keys), {"": stored})[""]


# Options


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ("", ("image.size:", "`fit: none`")),
        ("fit: crop", ("image.size:",)),
        ("size: [8]", ("image.size",)),
        ("size: 0", ("image.size:", "1 or more", "`0`")),
        ("size: [4, 16385]", ("image.size.1:", "16384 or less", "`16385`")),
        ("size: 4.5", ("image.size:", "whole number", "4.5")),
        ("size: 4, fit: none", ("image.fit:", "`none`", "`size`")),
        ("fit: none, store: raw", ("image.store:", "`raw`", "`size`", "`png`")),
        ("shorter_side: 4, fit: crop", ("image.size:",)),
        ("shorter_side: 4, store: raw", ("image.store:", "`raw`", "`size`")),
        ("size: [4, 6], shorter_side: 8", ("image.fit:", "`shorter_side`", "`fit: crop`", "`pad`")),
        ("size: [4, 6], shorter_side: 5, fit: crop", ("image.shorter_side:", "6 or more", "`5`")),
        ("size: 4, resize: lanczos", ("image.resize:", "'auto', 'area', ")),
        ("size: 4, normalize: imagenet, channels: 1", ("image.normalize:", "`imagenet`", "3 channels")),
        ("size: 4, normalize: clip, channels: 1", ("image.normalize:", "`clip`", "3 channels")),
        ("size: 4, normalize: caffe, channels: 1", ("image.normalize:", "`caffe`", "3 channels")),
        ("size: 4, normalize: unit", ("image.normalize:", "'zero_one', ")),
        ("size: 4, normalize: {mean: [1]}", ("image.normalize.std:",)),
        ("size: 4, normalize: {mean: [1], std: [1]}", ("image.normalize.mean:", "list of 3", "[1.0]")),
        ("size: 4, normalize: {mean: [0, 0, 0], std: [1]}", ("image.normalize.std:", "list of 3")),
        ("size: 4, normalize: {mean: [0, .nan, 0], std: [1, 1, 0]}", ("image.normalize.mean.1:", "finite", "`.nan`")),
        ("size: 4, normalize: {mean: [0], std: [1], max: 3}", ("image.normalize:", "`max`", "mean, std")),
    ],
)
def test_a_wrong_option_is_named(keys, facts):
    spec = "name: a\nsource:\n  format: jsonl\n  path: a.jsonl\nfeatures:\n  image: {kind: image, "
    with raises(SpecError, "dataset.yaml:6: features.", *facts):
        parse_spec(spec + keys + "}\n")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"size": [10, 20], "store": "raw"}, 600),
        ({"size": 10, "store": "raw", "channels": 1}, 100),
        ({"shorter_side": 48}, 48 * 64 * 3 * 0.35),
        ({"fit": "none", "store": "png"}, 480 * 640 * 3 * 0.6),
    ],
)
def test_the_bytes_are_guessed(keys, expected):
    assert Image(kind="image", **keys).expected_bytes == pytest.approx(expected)


# Stored and read


FILES = [saved(), saved(form="PNG"), saved(PIXELS[::2])]


def test_the_manifest_leaves_rgb_out():
    assert "channel_order" not in described(normalize="clip").to_json()
    json = described(normalize="caffe").to_json()
    assert json["channel_order"] == "bgr"
    assert ImageDescription.from_json(json) == described(normalize="caffe")
    with raises(DatasetError, "`channel_order`", "'hsv'", "dataset.json", "rgb, bgr"):
        ImageDescription.from_json({**json, "channel_order": "hsv"})
    with raises(DatasetError, "`dtype`", "'M8[25s/0]'", "dataset.json", "float32"):  # it would end NumPy's parser
        ImageDescription.from_json({**json, "dtype": "M8[25s/0]"})


@pytest.mark.first(1)
@pytest.mark.parametrize("how", ["auto", "jpeg", "png", "raw", "original"])
def test_no_rows_are_no_images(how):
    stored = stored_parts([], store=how)
    assert stored[""].shape == [0]
    assert stored[""].dtype == tf.string
    finished = tf.function(lambda parts: image.features(described(store=how, normalize="zero_one"), parts)[""])
    assert finished(stored).shape == [0, 8, 8, 3]


@pytest.mark.parametrize(
    "keys",
    [
        {"store": "auto", "fit": "pad"},
        pytest.param({"store": "raw", "fit": "crop", "resize": "lanczos3"}, marks=pytest.mark.nightly),
        pytest.param({"store": "original", "fit": "stretch", "resize": "bicubic"}, marks=pytest.mark.nightly),
    ],
)
def test_any_batch_gives_the_same_bytes_in_a_data_set_and_eagerly(keys):
    files, expected = tf.data.Dataset.from_tensor_slices(FILES), stored_parts(FILES, **keys)
    ready = image.features(described(**keys), expected)[""]
    prepared = tf.function(
        lambda rows: image.prepare(options(**keys), rows, CONTEXT).store(Statistics()), autograph=False
    )
    finished = tf.function(
        lambda parts: image.features(described(**keys), parts)[""], autograph=False, reduce_retracing=True
    )
    prepared.get_concrete_function(tf.TensorSpec([None], tf.string))
    for size in (1, 3):
        stored = files.batch(size).map(prepared).unbatch()
        assert [one[""] for one in stored.as_numpy_iterator()] == list(expected[""].numpy())
        np.testing.assert_array_equal(list(stored.batch(size).map(finished).unbatch()), ready)


@pytest.mark.parametrize("how", ["png", "raw"])
def test_a_stored_image_of_another_size_is_an_error(how):
    stored = store(FILES[:1], store=how, size=(8, 9))
    with pytest.raises(tf.errors.InvalidArgumentError):
        read(stored, store=how)


# Sizes of their own


@pytest.mark.first(1)
@pytest.mark.parametrize("how", ["auto", "original"])
def test_no_rows_have_no_size(how):
    keys = {"size": None, "fit": "none", "store": how}
    ready = tf.function(lambda parts: image.features(described(**keys), parts))(stored_parts([], **keys))
    assert (ready[""].shape, ready["shape"].shape) == ([0, 0, 0, 3], [0, 2])


# Originals


def test_an_original_that_cannot_be_decoded_is_an_error_when_it_is_stored():
    graph = tf.function(lambda files: image.prepare(options(store="original"), files, CONTEXT).store(Statistics()))
    with raises(tf.errors.InvalidArgumentError, "Invalid JPEG data"):
        graph(tf.constant([saved()[:-400]]))


# Geometry and statistics


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "BMP"])
@pytest.mark.parametrize("lossless", [True, False])
def test_the_upright_sides_are_read_from_the_header(form, lossless):
    if form == "BMP":
        files, expected = [saved(form="BMP"), saved(PIXELS[:, :5], form="BMP")], [[18, 27, 1], [18, 5, 1]]
    else:
        keys = {"lossless": lossless} if form == "WEBP" else {}
        files = [saved(form=form, **keys), turned(form, 3), turned(form, 8)]
        expected = [[18, 27, 1], [18, 27, 3], [27, 18, 8]]
    prepared = image.prepare(options(), tf.constant([*files, b""]), CONTEXT)
    np.testing.assert_array_equal(prepared.geometry(), [*expected, [0, 0, 1]])


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([b"\x89PNG\r\n\x1a\n", b"RIFF", b"BM", b""]), st.binary(max_size=60))
def test_the_sides_of_anything_are_no_error(start, data):
    assert image.geometry(tf.constant([start + data])).shape == (1, 3)


@pytest.mark.first(1)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("keys", [{"size": (300, 300)}, {"size": None, "shorter_side": 30}])
def test_pixel_sums_are_exact(channels, keys):
    files = [*FILES, saved(np.full((90, 90, 3), 255, np.uint8))]
    keys = options(channels=channels, **keys)
    count, sums, squares = tf.function(image.pixel_sums)(tf.constant(files), keys)
    pixels = [image._pixels(file, keys).numpy().astype(np.int64) for file in tf.constant(files)]
    assert list(count.numpy()) == [each[..., 0].size for each in pixels]
    np.testing.assert_array_equal(sums, [each.sum((0, 1)) for each in pixels])
    np.testing.assert_array_equal(squares, [(each**2).sum((0, 1)) for each in pixels])


def test_no_rows_and_missing_images_have_no_sums():
    count, sums, squares = image.pixel_sums(tf.constant([], tf.string), options())
    assert (count.shape, sums.shape, squares.shape) == ([0], [0, 3], [0, 3])
    count, sums, squares = image.pixel_sums(tf.constant([b""]), options(optional=True))
    assert (count[0], *sums[0], *squares[0]) == (0,) * 7


def test_the_graph_of_images_is_traced_once():
    store = lambda rows: image.prepare(options(quality=93), rows, CONTEXT).store(Statistics())  # noqa: E731
    for _ in range(2):
        tf.function(store, [tf.TensorSpec([None], tf.string)], autograph=False).get_concrete_function()
    assert image._graph(options(quality=93)).experimental_get_tracing_count() == 1


def sequence(**keys: Any) -> ImageSequence:
    return ImageSequence(kind="image_sequence", **{"size": (6, 8), **keys})


SEQUENCE = KINDS["image_sequence"]


def ragged(lists: list[list[bytes]]) -> tf.RaggedTensor:
    lengths = tf.constant([len(one) for one in lists], tf.int64)
    return tf.RaggedTensor.from_row_lengths(tf.constant(sum(lists, []), tf.string), lengths)


def stored_lists(options: ImageSequence, lists: list[list[bytes]]) -> tf.RaggedTensor:
    context = Context()
    return SEQUENCE.prepare(options, ragged(lists), context).store(Statistics())[""]


def test_what_is_cut_off_is_not_decoded() -> None:
    broken = [[FILES[0], b"\x89PNG broken"]]
    assert stored_lists(sequence(max_length=1), broken).to_list() == stored_lists(sequence(), [FILES[:1]]).to_list()
    with pytest.raises(tf.errors.InvalidArgumentError):
        stored_lists(sequence(), broken)


@pytest.mark.first(3)
@pytest.mark.parametrize("how", ["auto", "raw"])
@pytest.mark.parametrize(("rows", "max_length", "shape"), [(0, None, [0, 0]), (1, None, [1, 0]), (1, 3, [1, 3])])
def test_no_images(rows: int, max_length: int | None, shape: list[int], how: str) -> None:
    options = sequence(max_length=max_length, store=how)
    description = options.describe({})
    ready = tf.function(lambda stored: SEQUENCE.features(description, {"": stored})[""])
    assert ready(stored_lists(options, [[]] * rows)).shape == [*shape, 6, 8, 3]
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
        sequence(**keys)
    assert error.value.error_count() == 1
