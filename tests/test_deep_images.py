"""Images of more than 8 bits, or other than 1 or 3 channels: every number of a file reaches both engines."""

import io
from typing import Any

import imagecodecs
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture

from recordmill import augment
from recordmill.pipeline.build.images.transcode import MissingPluginError, decodable, decoding_of, require
from recordmill.pipeline.build.summaries import numbers as numbers_module
from recordmill.pipeline.dataset.profile import pixel_moments
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.transforms.images import image_graph as graph
from recordmill.transforms.images.augment.chain import apply, check, check_deep, lanes, parameters
from recordmill.transforms.images.decode import decode_planes
from recordmill.transforms.images.image_facts import loss_words, losses
from recordmill.transforms.images.image_header import ImageError
from recordmill.transforms.images.image_read import ImageReader
from recordmill.transforms.images.image_spec import Image
from recordmill.transforms.images.image_stored import PixelOptions
from recordmill.transforms.images.pixels import stretched
from tests.messages import assert_names, raises
from tests.tables import npy

FLOAT = {"dtype": "float32", "channels": 1}


def numbers(dtype: str, height: int, width: int, bands: int, seed: int = 0) -> np.ndarray:
    """Random numbers of every size; of floats, any finite bits."""
    bits = np.random.default_rng(seed).integers(0, 256, (height, width, bands, np.dtype(dtype).itemsize), np.uint8)
    found = bits.view(dtype)[..., 0]
    return np.where(np.isfinite(found), found, found.dtype.type(0))


def tiff(pixels: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, pixels, metadata=None, **{"photometric": "minisblack", **options})
    return file.getvalue()


def png(pixels: np.ndarray) -> bytes:
    return imagecodecs.png_encode(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))


def feature(**options: Any) -> Image:
    return Image(kind="image", **{"normalize": "none", "fit": "none", **options})


def stored(data: bytes, image: Image) -> bytes:
    ready = decodable(data, decoding_of(image))
    return bytes(graph.stored_image(tf.constant(ready), image)[""].numpy())


def read_by_both(data: bytes, image: Image) -> tuple[np.ndarray, np.ndarray]:
    """Returns the image of a file as NumPy and as TensorFlow read it."""
    record, description = stored(data, image), image.describe({})
    in_tensorflow = graph.features(description, {"": tf.constant([record])})[""].numpy()[0]
    return ImageReader("image", description).images([record])[""][0], in_tensorflow


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    same_kind = one.dtype == other.dtype and one.shape == other.shape
    return same_kind and np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def test_zero_for_white_is_turned_as_for_8_bits() -> None:
    deep, eight = (feature(channels=1, dtype=dtype) for dtype in ("uint16", "uint8"))
    pixels = numbers("uint16", 4, 5, 1)
    white, black = tiff(pixels[..., 0], photometric="miniswhite"), tiff(65535 - pixels[..., 0])
    for image in (deep, eight):
        assert all(map(same_bits, read_by_both(white, image), read_by_both(black, image)))
    assert same_bits(read_by_both(white, deep)[0], 65535 - pixels)


LAYOUTS: list[dict[str, Any]] = [
    {},
    {"planarconfig": "separate"},
    {"compression": "lzw"},
    {"compression": "zlib", "predictor": True},
    {"compression": "packbits"},
    {"compression": "zstd", "planarconfig": "separate"},
    {"byteorder": ">"},
    {"byteorder": ">", "compression": "lzw", "predictor": True},
    {"bigtiff": True, "tile": (16, 16), "compression": "zlib"},
    {"rowsperstrip": 1},
]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["uint8", "uint16", "float32"]),
    st.sampled_from([1, 2, 3, 4, 7, 13, 16]),
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from(LAYOUTS),
    st.sampled_from(["png", "raw"]),
    st.integers(0, 1 << 30),
)
def test_every_number_of_a_tiff_reaches_both_engines(dtype, bands, height, width, layout, store, seed):
    expected = numbers(dtype, height, width, bands, seed)
    layout = {name: each for name, each in layout.items() if name != "planarconfig" or bands > 1}
    as_laid = np.moveaxis(expected, -1, 0) if "planarconfig" in layout else expected
    data = tiff(
        as_laid if bands > 1 else expected[..., 0], **{"planarconfig": "contig" if bands > 1 else None, **layout}
    )
    held = tifffile.imread(io.BytesIO(data))
    assert same_bits(np.moveaxis(held, 0, -1) if "planarconfig" in layout else held.reshape(expected.shape), expected)
    sides = {"size": (height, width), "fit": "pad"} if store == "raw" else {}
    image = feature(dtype=dtype, channels=bands, bands=list(range(1, bands + 1)), store=store, **sides)
    for read in read_by_both(data, image):
        assert same_bits(read, expected)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(["uint8", "uint16"]), st.integers(1, 4), st.integers(1, 20), st.integers(1, 20), st.integers(0))
def test_every_number_of_a_png_reaches_both_engines(dtype, bands, height, width, seed):
    expected = numbers(dtype, height, width, bands, seed)
    for read in read_by_both(png(expected), feature(dtype=dtype, channels=bands, bands=list(range(1, bands + 1)))):
        assert same_bits(read, expected)


def test_a_grey_png_of_16_bits_passes_unchanged():
    data = png(numbers("uint16", 5, 7, 1))
    options = decoding_of(feature(dtype="uint16", channels=1))
    assert decodable(data, options) is data
    assert same_bits(decode_planes(data, "uint16", 1)[..., 0], np.asarray(Picture.open(io.BytesIO(data))))


@pytest.mark.parametrize("kind", ["int8", "int16", "float16", "float64"])
@pytest.mark.parametrize("form", [tiff, npy])
def test_signed_and_other_floats_are_read_as_float32(form, kind):
    held = np.array([[-100, 0, 27], [1, 2, -3]]).astype(kind)
    for read in read_by_both(form(held), feature(**FLOAT)):
        assert same_bits(read[..., 0], held.astype(np.float32))


@pytest.mark.parametrize(("value", "is_loss"), [("-9999", True), ("0", False)])
def test_a_nodata_value_but_0_is_a_loss(value, is_loss):
    tagged = tiff(np.zeros((4, 4), np.float32), extratags=[(42113, "s", 0, value, False)])
    for options in (PixelOptions(), PixelOptions(pixel="float32", channels=1)):
        assert ("nodata values" in losses(tagged, "TIFF", options)) == is_loss
    [(what, remedy)] = loss_words({"nodata values": 3})
    assert_names(f"{what} {remedy}", "3", "nodata", "such as 0")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_planes(orientation):
    held = numbers("uint16", 4, 6, 2)
    turned = held if orientation < 5 else np.swapaxes(held, 0, 1)
    turned = turned[:: -1 if orientation in (3, 4, 7, 8) else 1]
    turned = turned[:, :: -1 if orientation in (2, 3, 6, 7) else 1]
    data = tiff(held, planarconfig="contig", extratags=[(274, 3, 1, orientation, True)])
    for read in read_by_both(data, feature(dtype="uint16", channels=2)):
        assert same_bits(read, turned)


@pytest.mark.parametrize("fit", ["pad", "stretch", "crop"])
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_halved_images_are_means_in_their_own_depth(dtype, fit):
    held = (numbers("uint16", 8, 8, 4) // 4 * 4).astype(dtype)
    means = held.reshape(4, 2, 4, 2, 4).astype(np.float64).mean((1, 3))
    expected = np.rint(means).astype(dtype) if dtype == "uint16" else means.astype(dtype)
    for read in read_by_both(tiff(held, planarconfig="contig"), feature(dtype=dtype, channels=4, size=4, fit=fit)):
        assert same_bits(read, expected)


GREY = {"dtype": "uint16", "channels": 1}
PAGES = io.BytesIO()
tifffile.imwrite(PAGES, np.zeros((2, 4, 4), np.uint16), photometric="minisblack")


@pytest.mark.parametrize(
    ("data", "options", "facts"),
    [
        (png(numbers("uint8", 4, 4, 1)), GREY, ("uint8", "uint16", "`dtype: uint8`")),
        (tiff(np.zeros((4, 4), np.int16)), GREY, ("uint16", "`dtype: float32`")),
        *(
            (form(np.full((4, 4), odd, np.float32)), FLOAT, ("finite", "such as 0"))
            for odd in (np.nan, np.inf)
            for form in (tiff, npy)
        ),
        (tiff(np.zeros((4, 4), np.uint32)), GREY, ("uint32", "convert")),
        (tiff(np.zeros((4, 4), np.complex64)), GREY, ("complex64", "convert")),
        (tiff(np.zeros((4, 4), np.float32)), GREY, ("float32", "`dtype: float32`")),
        (tiff(np.zeros((4, 4, 5), np.uint16), planarconfig="contig"), GREY, ("5 bands", "`bands`")),
        (tiff(np.zeros((4, 4, 2), np.uint16), planarconfig="contig"), {**GREY, "bands": [3]}, ("2 bands", "[3]")),
        (tiff(np.zeros((4, 4), np.uint8), compression="jpeg"), {**GREY, "dtype": "float32"}, ("compression 7",)),
        (PAGES.getvalue(), GREY, ("several pages",)),
    ],
)
def test_what_would_lose_numbers_is_a_reject(data, options, facts):
    with raises(ImageError, *facts) as error:
        decodable(data, decoding_of(feature(**options)))
    assert error.value.reason == "unsupported_format"


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"dtype": "uint16", "normalize": "imagenet"}, ("imagenet", "`mean` and `std`")),
        ({"channels": 4, "normalize": "clip"}, ("clip", "4")),
        ({"dtype": "uint16", "store": "jpeg"}, ("jpeg", "png")),
        ({"dtype": "uint16", "store": "original"}, ("original", "png")),
        ({"dtype": "float32", "normalize": "zero_one"}, ("range",)),
        ({"dtype": "float32", "normalize": "dataset"}, ("mean",)),
        ({"dtype": "uint16", "background": (1, 2, 3)}, ("uint16",)),
        ({"dtype": "uint16", "background": 65_536}, ("65536",)),
        ({"range": (0, 9)}, ("uint16",)),
        ({"dtype": "uint16", "range": (9, 9)}, ("[9.0, 9.0]",)),
        ({"dtype": "uint16", "range": (0, 9)}, ("zero_one",)),
        ({"dtype": "uint16", "channels": 1, "normalize": {"mean": [0.5], "std": [0.2]}}, ("65,535", "0.2")),
        ({"dtype": "uint16", "channels": 2, "bands": [1]}, ("1 bands", "2")),
    ],
)
def test_a_spec_refuses_what_deep_images_lack(options, facts):
    with raises(Exception, *facts):
        feature(**options)


MOVES = [augment.RandomFlip(1.0, 1.0), augment.RandomRotation90(p=1.0), augment.CenterCrop(6)]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_movements_of_whole_pixels_keep_every_number(dtype):
    pixels = numbers(dtype, 8, 8, 13)
    draws = np.full((1, lanes(MOVES)), 0.99)  # turned thrice
    moved, _ = apply(pixels, None, MOVES, parameters(MOVES, draws)[0])
    assert same_bits(moved, np.rot90(pixels[::-1, ::-1], 3)[1:7, 1:7])


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
@pytest.mark.parametrize("change", [augment.Resize(4), augment.RandomAffine(scale=(2.0, 2.0))])
def test_scaled_movements_stay_in_their_depth(dtype, change):
    pixels = np.full((8, 8, 5), 40_001, dtype)
    moved, _ = apply(pixels, None, [change], parameters([change], np.full((1, change.lanes), 0.5))[0])
    assert moved.dtype == dtype
    assert np.unique(moved).tolist() == [40_001]


@pytest.mark.parametrize(
    "change", [augment.ColorJitter(0.1), augment.RandAugment(), augment.RandomApply([augment.Invert()])]
)
def test_changes_of_colours_are_refused(change):
    with raises(ValueError, "colours", "function"):
        check_deep([augment.RandomFlip(), change])


def test_a_user_function_gets_and_returns_the_pixels_type():
    [change] = check([lambda pixels, rng: pixels + 1])
    check_deep([change])
    assert change.apply(np.full((2, 2, 2), 500, np.uint16), [1, 2]).tolist() == [[[501, 501]] * 2] * 2


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
@pytest.mark.parametrize("store", ["png", "raw"])
def test_bfloat16_is_float32_rounded(dtype, store):
    data = tiff(numbers("uint16", 4, 4, 2).astype(dtype), planarconfig="contig")
    image = feature(dtype=dtype, channels=2, size=4, fit="pad", store=store, normalize="zero_one", range=(0, 4095))
    record, description = stored(data, image), image.describe({})
    read = [ImageReader("image", description, kind).images([record])[""] for kind in ("float32", "bfloat16")]
    assert np.array_equal(read[0].astype(ml_dtypes.bfloat16), read[1])


def test_a_missing_image_is_zeros():
    image = feature(**GREY, size=3, fit="pad", optional=True)
    assert ImageReader("image", image.describe({})).images([b""])[""].tolist() == [[[[0]] * 3] * 3]


def test_sums_of_squares_exceed_64_bits():
    total, squares = np.full((1, 2), 65_535 << 30), np.full((1, 2), (65_535**2 << 30) + 7)
    sums = (each[0] for each in numbers_module._halved(total, squares))
    table = numbers_module._pixel_table("x", 0, 1, 1 << 30, *sums)
    whole = numbers_module.add_up([table] * 4, numbers_module.KEYS, dict.fromkeys(numbers_module.PIXEL_SUMS, "sum"))
    found = pixel_moments(whole.sort_by("channel").to_pylist(), 2)
    assert (found["mean"], found["variance"]) == ([65_535.0] * 2, [7 / (1 << 30)] * 2)


def test_percentiles_are_stretched():
    pixels = np.arange(1_000, dtype=np.uint16).reshape(10, 100, 1) * 60
    assert [stretched(pixels).min(), np.median(stretched(pixels)), stretched(pixels).max()] == [0, 127.5, 255]
    assert stretched(np.full((2, 2, 5), np.nan, np.float32)).tolist() == [[[0, 0, 0]] * 2] * 2


@pytest.mark.parametrize(
    ("data", "package"),
    [(tiff(np.zeros((2, 2), np.uint16)), "tifffile"), (png(numbers("uint16", 2, 2, 3)), "imagecodecs")],
)
def test_without_its_package_a_file_names_the_extra(data, package, monkeypatch):
    require.cache_clear()
    monkeypatch.setattr("recordmill.pipeline.build.images.transcode.find_spec", lambda name: None)
    with raises(MissingPluginError, "recordmill[deep]", package):
        decodable(data, decoding_of(feature(dtype="uint16")))


def test_init_reads_16_bits_as_such(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(20):  # 12 bits in 16
        (tmp_path / f"data/{number}.png").write_bytes(png(numbers("uint16", 6, 5, 1, number) >> 4))
    (tmp_path / "data/colour.png").write_bytes(png(numbers("uint8", 6, 5, 3)))
    text = starter(str(tmp_path / "data"), LocalFiles())
    assert_names(text, "dtype: uint16", "channels: 1", "normalize: none", "1 unsupported_format")
    assert "cut to 8" not in text
