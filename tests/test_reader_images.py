"""The NumPy decoder and resizer against TensorFlow's: every format, type and turn, and where images go."""

import itertools
import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.augment import CenterCrop, Grayscale, RandomErasing, RandomFlip, Resize, apply
from recordmill.transforms.base.buffers import BatchMemory
from recordmill.transforms.base.stored import RowError
from recordmill.transforms.images import decode as numpy_decode
from recordmill.transforms.images import decode_graph as image_decode
from recordmill.transforms.images import image_rules
from recordmill.transforms.images.augment.chain import Augment
from recordmill.transforms.images.decode import DecodeError, decode, decode_original, jpeg
from recordmill.transforms.images.image_read import ImageReader
from recordmill.transforms.images.image_stored import ImageDescription
from recordmill.transforms.images.pixels import placed, resize
from recordmill.transforms.images.properties_graph import orientation
from tests.messages import raises
from tests.pictures import PIXELS, RANDOM, animated, bmp, chunk, options, saved, turned
from tests.test_image_decode import EVERY_RGBA, TYPES, png_of_type

SMOOTH = np.clip(np.cumsum(np.cumsum(RANDOM.normal(0, 3, (47, 66, 3)), 0), 1) / 6 + 128, 0, 255).astype(np.uint8)
NOISE = RANDOM.integers(0, 256, (37, 53, 3)).astype(np.uint8)
PHOTO = np.kron(SMOOTH[:36, :48], np.ones((12, 12, 1))).astype(np.uint8)  # 432 x 576


@pytest.fixture
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pillow":
        monkeypatch.setattr(numpy_decode, "simplejpeg", None)


def check_original(data: bytes) -> None:
    """An original is decoded as TensorFlow does, in colours and in grey."""
    turn = int(graph("orientation")(data))
    for channels in (3, 1):
        found = decode_original(memoryview(data), options(channels=channels).pixel_options, turn)
        np.testing.assert_array_equal(found, graph("decode", channels)(data).numpy(), strict=True)


@cache
def graph(what: str, channels: int = 3) -> Any:
    """TensorFlow's way of decoding, made once: eager calls would rebuild its graphs."""
    signature = [tf.TensorSpec([], tf.string)]
    asked = options(channels=channels).pixel_options
    way = orientation if what == "orientation" else lambda data: image_decode.decode(data, asked)
    return tf.function(way, input_signature=signature, autograph=False)


JPEGS = [
    (pixels, quality, {"subsampling": subsampling, "progressive": progressive})
    for pixels, quality in ((SMOOTH, 95), (NOISE, 60), (NOISE[:1, :1], 95), (NOISE[:5, :2], 10))
    for subsampling, progressive in itertools.product((0, 1, 2), (False, True))
]


@pytest.mark.first(24)
@pytest.mark.parametrize("backend", ["simplejpeg", "pillow"], indirect=True)
@pytest.mark.parametrize(("pixels", "quality", "keys"), JPEGS)
def test_jpegs_are_decoded_bit_for_bit(pixels: np.ndarray, quality: int, keys: dict[str, Any], backend: None) -> None:
    data = saved(pixels, quality=quality, **keys)
    check_original(data)
    stored = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE").numpy()
    for out in (None, np.empty(pixels.shape, np.uint8)):
        found = decode(memoryview(data), 3, out)
        np.testing.assert_array_equal(found, stored, strict=True)
        assert out is None or found is out or numpy_decode.simplejpeg is None


@pytest.mark.parametrize("backend", ["simplejpeg", "pillow"], indirect=True)
def test_odd_jpegs(backend: None) -> None:
    check_original(saved(NOISE[..., 0]))
    check_original(saved(Image.fromarray(NOISE).convert("CMYK")))
    check_original(saved(SMOOTH) + b"something behind its end")
    check_original(saved(SMOOTH).replace(b"\xff\xdb", b"\0\0\xff\xdb", 1))  # of which libjpeg warns


@pytest.mark.parametrize("backend", ["simplejpeg", "pillow"], indirect=True)
@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
@pytest.mark.parametrize("channels", [3, 1])
def test_a_jpeg_at_a_part_of_its_size(ratio: int, channels: int, backend: None) -> None:
    data = saved(PHOTO)
    expected = image_decode.libjpeg(tf.constant(data), channels, ratio).numpy()
    np.testing.assert_array_equal(jpeg(data, channels, ratio=ratio), expected, strict=True)


@pytest.mark.parametrize("backend", ["simplejpeg", "pillow"], indirect=True)
@pytest.mark.parametrize("turn", [1, 6])
@pytest.mark.parametrize(("keys", "sides"), [
    ({"size": (36, 48), "fit": "pad"}, [(108, 144), (72, 54)]),
    ({"size": (18, 18), "fit": "crop"}, [(54, 72), (72, 54)]),
    ({"size": (27, 36), "fit": "stretch"}, [(54, 72), (144, 108)]),
    ({"size": (200, 200), "fit": "crop"}, [(432, 576), (576, 432)]),
    ({"size": None, "shorter_side": 27}, [(54, 72), (72, 54)]),
    ({"size": (36, 48), "fit": "pad", "dct_scaling": False}, [(432, 576), (576, 432)]),
    ({"size": (36, 48), "fit": "pad", "resize": "bilinear"}, [(432, 576), (576, 432)]),
], ids=str)  # fmt: skip
def test_a_large_jpeg_is_decoded_at_the_part_that_the_graph_chooses(
    keys: dict[str, Any], sides: list[tuple[int, int]], turn: int, backend: None
) -> None:
    asked = options(**keys).pixel_options
    found = decode_original(turned("JPEG", turn, PHOTO), asked, turn).shape[:2]
    shape, orientation = tf.constant([*PHOTO.shape]), tf.constant(turn)
    if asked.dct_scaling and asked.resize == "auto":
        place = int(image_decode._reduction(shape, orientation, asked))
        assert found == tuple(side // image_decode.RATIOS[place] for side in PHOTO.shape[:2][:: -1 if turn == 6 else 1])
    assert found == sides[turn == 6]


@pytest.mark.first(12)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("turn", [6, 8, 3, 1, 2, 4, 5, 7])
def test_originals_are_turned_upright(form: str, turn: int) -> None:
    check_original(turned(form, turn))


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize(("colour", "depth"), TYPES)
def test_every_type_of_png(colour: int, depth: int, transparent: bool) -> None:
    _, data = png_of_type(colour, depth, transparent)
    if (colour, depth, transparent) == (2, 16, True):
        with raises(DecodeError, "TensorFlow"):
            decode_original(data, options().pixel_options, 1)
    else:
        check_original(data)


@pytest.mark.parametrize("data", [
    saved(SMOOTH, "BMP"),
    bmp(RANDOM.integers(0, 256, 12 * 5, np.uint8).tobytes(), -5, 4, 24),
    animated("PNG"),
    saved(SMOOTH, "WEBP", lossless=False, quality=60),
    saved(EVERY_RGBA, "WEBP"),
    saved(EVERY_RGBA, "WEBP", lossless=False, quality=60),
    saved(EVERY_RGBA, "PNG"),
    *(saved(Image.fromarray(PIXELS).convert(mode), "PNG") for mode in ("1", "L", "LA", "P", "RGB", "RGBA")),
], ids=lambda data: f"{data[:4]!r}{len(data)}")  # fmt: skip
def test_other_formats(data: bytes) -> None:
    check_original(data)


@pytest.mark.parametrize("backend", ["simplejpeg", "pillow"], indirect=True)
@pytest.mark.parametrize("data", [
    saved(SMOOTH)[:500],
    saved(SMOOTH)[:50],
    b"\xff\xd8\xff",
    saved(SMOOTH, "PNG")[:500],
    saved(SMOOTH, "WEBP")[:500],
    saved(SMOOTH, "BMP")[:500],
    saved(SMOOTH, "GIF"),
    b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 9, 9, 9, 9, 9)),
    b"",
    b"no image",
], ids=lambda data: f"{data[:4]!r}{len(data)}")  # fmt: skip
def test_a_damaged_image_is_an_error(data: bytes, backend: None) -> None:
    with pytest.raises(DecodeError, match="damaged|neither JPEG nor PNG"):
        decode(data, 3)
    with raises(DecodeError, "damaged"):
        decode_original(data, options().pixel_options, 1)


# Sizes


SIDES = st.integers(0, 400) | st.sampled_from([1, 2, 16_000])
SIZES = st.tuples(st.integers(1, 90), st.integers(1, 90))


WAYS = st.sampled_from(["pad", "crop", "stretch", "none", "crop to", "scale to"])


@settings(max_examples=40, deadline=None)
@given(sides=st.tuples(SIDES, SIDES), size=SIZES, shorter=st.integers(90, 500), way=WAYS)
def test_a_image_goes_where_the_graph_puts_it(
    sides: tuple[int, int], size: tuple[int, int], shorter: int, way: str
) -> None:
    keys: dict[str, Any] = {
        "none": {"size": None, "fit": "none"},
        "scale to": {"size": None, "shorter_side": shorter},
        "crop to": {"size": size, "fit": "crop", "shorter_side": shorter},
    }.get(way, {"size": size, "fit": way})
    asked = options(**keys).pixel_options
    expected = image_rules.placement(tf.constant(sides, tf.int64), asked, tf)
    assert placed(sides, asked) == tuple(tuple(pair.numpy().tolist()) for pair in expected)


METHODS = ["auto", "area", "nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"]


def check_resized(method: str, antialias: bool) -> None:
    """Pixels differ from the graph's by one level at most; those of `nearest` do not."""
    for sides in ((1, 1), (1, 40), (33, 47), (8, 8), (7, 100)):
        for keys in ({"size": (8, 8)}, {"size": (50, 31), "fit": "stretch"}, {"size": (13, 13), "fit": "crop"}):
            for channels in (1, 3) if sides == (33, 47) else (3,):
                asked = options(resize=method, antialias=antialias, channels=channels, **keys).pixel_options
                pixels = RANDOM.integers(0, 256, (*sides, channels)).astype(np.uint8)
                expected, found = image_decode.resize(tf.constant(pixels), asked).numpy(), resize(pixels, asked)
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
                assert np.abs(found.astype(int) - expected).max() <= (method != "nearest")


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_within_one_level(method: str, antialias: bool) -> None:
    check_resized(method, antialias)


@pytest.mark.usefixtures("without_opencv")
@pytest.mark.parametrize("method", ["auto", "area", "bilinear"])
def test_without_opencv_too(method: str) -> None:
    check_resized(method, antialias=False)


# Batches


def description(store: str, shape: list[int | None], dtype: str = "float32", **keys: Any) -> ImageDescription:
    scale = {"offset": [0.5] * shape[2], "scale": [1 / 57] * shape[2]}
    given = {"stored": "bytes", "encoding": store, "shape": shape, "dtype": dtype, **scale, **keys}
    return ImageDescription.from_json(given)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(("store", "shape"), [("png", [18, 27, 3]), ("raw", [18, 27, 3]), ("png", [None, None, 3])])
def test_images_are_augmented_before_they_are_normalized(store: str, shape: list[int | None], dtype: str) -> None:
    rolled = [PIXELS, np.roll(PIXELS, 3, 0)]
    data = [pixels.tobytes() if store == "raw" else saved(pixels, "PNG") for pixels in rolled]
    changes, parameters = (CenterCrop((9, 11)), RandomFlip()), np.array([[1.0, 0.0], [0.0, 1.0]])
    plain = description(store, shape, dtype)
    found = ImageReader("x", plain, None, Augment(changes, parameters), empty=BatchMemory().empty).images(data)
    expected = [apply(pixels, None, changes, row)[0] for pixels, row in zip(rolled, parameters, strict=True)]
    whole = ImageReader("x", description("raw", [9, 11, 3], dtype)).images([pixels.tobytes() for pixels in expected])
    np.testing.assert_array_equal(found[""], whole[""], strict=True)
    assert ("shape" in found) == (shape[0] is None)
    assert "shape" not in found or found["shape"].tolist() == [[9, 11]] * 2


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
@pytest.mark.parametrize("store", ["png", "raw"])
def test_the_channels_change_places_after_augmentations(store: str, dtype: str) -> None:
    data = [PIXELS.tobytes() if store == "raw" else saved(PIXELS, "PNG")]
    changes, parameters = (Grayscale(), RandomErasing(1, (0.4, 0.4), fill=(250, 20, 3))), np.full((1, 7), 0.5)
    augment = Augment(changes, changes[1].draw(parameters))
    for changed in (augment, None):
        both = [description(store, [18, 27, 3], "float32", channel_order=order) for order in ("rgb", "bgr")]
        rgb, bgr = (ImageReader("x", each, dtype, changed).images(data)[""] for each in both)
        assert (rgb != bgr).any()
        np.testing.assert_array_equal(bgr, rgb[..., ::-1])


def test_images_that_an_augmentation_brings_to_one_size_may_be_missing() -> None:
    described = description("png", [None, None, 3], "uint8", optional=True)
    augment = Augment((Resize((4, 4)),), np.zeros((2, 0)))
    found = ImageReader("x", described, None, augment).images([b"", saved(PIXELS, "PNG")])
    assert not found[""][0].any()
    assert found[""][1].any()
    assert found["shape"].tolist() == [[0, 0], [4, 4]]


@pytest.mark.parametrize("augment", [None, Augment((RandomFlip(),), np.zeros((3, 2)))], ids=["plain", "augmented"])
@pytest.mark.parametrize(("bad", "facts"), [
    (saved(SMOOTH)[:300], ("'x'", "damaged")),
    (saved(PIXELS[:9]), ("'x'", "[9, 27, 3]", "[18, 27, 3]")),
    (saved(SMOOTH), ("'x'", "[47, 66, 3]", "[18, 27, 3]")),
    (b"GIF89a", ("'x'", "neither JPEG nor PNG", "b'GIF89a'")),
    (b"", ("'x'", "neither JPEG nor PNG", "b''")),
], ids=["cut", "smaller", "larger", "no image", "nothing"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_an_image_unlike_its_description_is_an_error_of_its_row(
    bad: bytes, facts: tuple[str, ...], dtype: str, augment: Augment | None
) -> None:
    reader = ImageReader("x", description("jpeg", [18, 27, 3]), dtype, augment)
    with raises(RowError, *facts) as raised:
        reader.images([saved(), memoryview(bad), saved()])
    assert raised.value.row == 1
