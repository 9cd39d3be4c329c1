"""Odd JPEGs do not choose their decoder: the pixels are libjpeg-turbo's, without Pillow."""

import io
import logging
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image as Picture
from PIL import ImageCms
from PIL.JpegImagePlugin import JpegImageFile

from recordmill.pipeline.build.images.transcode import UndecodableError, decodable
from recordmill.transforms.numpy import image_decode
from recordmill.transforms.numpy.image_decode import DecodeError, decode_original, inks, jpeg
from tests.messages import raises
from tests.pictures import RANDOM, options, photo, saved
from tests.profiles import P3, press
from tests.test_image_transcode import LOSSLESS_JPEG, LOSSLESS_PIXELS

MAX_PIXELS = {"max_pixels": 1_000_000}
SIDES = (96, 96)
PHOTO = photo(1, SIDES)
INKS = Picture.merge("CMYK", [*photo(2, SIDES).split(), photo(3, SIDES).split()[0]])
STRAY = bytes(range(1, 40))


def sampled(*factors: int) -> bytes:
    """Makes a JPEG of noise with other subsampling in its frame; all decoders agree on its pixels."""
    data = bytearray(saved(RANDOM.integers(0, 256, (96, 96, 3), np.uint8), subsampling=0, icc_profile=P3))
    frame = data.index(b"\xff\xc0")
    data[frame + 11 : frame + 18 : 3] = bytes(factors)
    return bytes(data)


def adobe(data: bytes, transform: int | None) -> bytes:
    """Makes a CMYK JPEG with another transform in Adobe's marker: 2 is YCCK; None: without the marker."""
    place = data.index(b"\xff\xee\0\x0eAdobe")
    return (
        data[:place]
        + (data[place : place + 15] + bytes([transform]) if transform is not None else b"")
        + data[place + 16 :]
    )


PLAIN = saved(PHOTO, icc_profile=P3)
ODD = {
    "plain": PLAIN,
    "progressive": saved(PHOTO, icc_profile=P3, progressive=True),
    "grey": saved(PHOTO.convert("L"), icc_profile=P3),
    "stray bytes before a table": PLAIN.replace(b"\xff\xdb", STRAY + b"\xff\xdb", 1),
    "zeros before a table": PLAIN.replace(b"\xff\xc4", bytes(4) + b"\xff\xc4", 1),
    "stray bytes before the end": PLAIN[:-2] + STRAY + PLAIN[-2:],
    "stray bytes before a scan's end": saved(PHOTO, icc_profile=P3, restart_marker_blocks=4).replace(
        b"\xff\xd3", STRAY + b"\xff\xd3"
    ),
    "bytes behind the end": PLAIN + STRAY,
    "a piece of a profile twice": PLAIN.replace(b"\xff\xdb", b"\xff\xe2\0\x11ICC_PROFILE\0\1\1?\xff\xdb", 1),
    "three by one": sampled(0x31, 0x11, 0x11),
    "half of the first two": sampled(0x21, 0x21, 0x11),
    "two by four": sampled(0x24, 0x11, 0x11),
    "one by four": sampled(0x14, 0x11, 0x11),
    "more of chroma": sampled(0x11, 0x22, 0x22),
}


def by_pillow(data: bytes, mode: str, ratio: int = 1) -> np.ndarray:
    picture = Picture.open(io.BytesIO(data))
    picture.draft(mode, (picture.width // ratio, picture.height // ratio))
    pixels = np.asarray(picture.convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)


CASES = [
    (data, {mode: by_pillow(data, mode) for mode in ("RGB", "L")}, by_pillow(data, "RGB", 2)) for data in ODD.values()
]


def in_srgb(picture: Picture.Image, profile: bytes) -> np.ndarray:
    """Returns the picture's pixels by LittleCMS."""
    flags, intent = ImageCms.Flags.BLACKPOINTCOMPENSATION, ImageCms.Intent.RELATIVE_COLORIMETRIC
    source, goal = ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB")
    return np.asarray(ImageCms.profileToProfile(picture, source, goal, intent, "RGB", flags=flags))


@pytest.fixture
def without_pillows_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any) -> None:
        pytest.fail("Pillow decodes a JPEG")

    monkeypatch.setattr(JpegImageFile, "load", load)


@pytest.mark.usefixtures("without_pillows_decoder")
@pytest.mark.parametrize(("data", "expected", "half"), CASES, ids=[*ODD])
def test_odd_jpegs_are_decoded_by_libjpeg_turbo(data: bytes, expected: dict[str, np.ndarray], half: np.ndarray) -> None:
    for mode, pixels in expected.items():
        np.testing.assert_array_equal(jpeg(data, len(mode)), pixels, strict=True)
    np.testing.assert_array_equal(jpeg(data, 3, ratio=2), half, strict=True)
    np.testing.assert_array_equal(jpeg(memoryview(data), 3, np.empty((7, 5, 3), np.uint8)), expected["RGB"])
    ready = np.asarray(Picture.open(io.BytesIO(decodable(data, MAX_PIXELS))).convert("RGB"))
    np.testing.assert_array_equal(ready, in_srgb(Picture.fromarray(expected["RGB"]), P3))


@pytest.mark.usefixtures("without_pillows_decoder")
@pytest.mark.parametrize("name", ODD)
def test_a_jpeg_that_is_cut_off_is_refused(name: str) -> None:
    cut = ODD[name][: len(PLAIN) // 2]
    with raises(DecodeError, "cut off or damaged"):
        jpeg(cut, 3)
    with raises(UndecodableError, "JPEG"):
        decodable(cut, MAX_PIXELS)


INK = saved(INKS, icc_profile=press())
MARKED = [adobe(INK, transform) for transform in (0, 2, None)]
# Pillow takes every CMYK for Adobe's, which counts the paper; without its marker the numbers count the ink.
SEEN = [by_pillow(data, "CMYK") if b"Adobe" in data else 255 - by_pillow(data, "CMYK") for data in MARKED]


@pytest.mark.usefixtures("without_pillows_decoder")
@pytest.mark.parametrize(("data", "seen"), [*zip(MARKED, SEEN, strict=True)], ids=["CMYK", "YCCK", "no marker"])
def test_inks_are_those_of_the_marker(data: bytes, seen: np.ndarray) -> None:
    np.testing.assert_array_equal(inks(data), seen)
    paper = 255 - seen.astype(int)
    np.testing.assert_array_equal(decode_original(data, options(), 1), paper[..., :3] * paper[..., 3:] // 255)
    ready = np.asarray(Picture.open(io.BytesIO(decodable(data, MAX_PIXELS))))
    picture = Picture.merge("CMYK", [*map(Picture.fromarray, np.moveaxis(seen, -1, 0))])
    np.testing.assert_array_equal(ready, in_srgb(picture, press()))


@pytest.mark.usefixtures("without_pillows_decoder")
def test_lossless_jpegs_too() -> None:
    np.testing.assert_array_equal(
        np.asarray(Picture.open(io.BytesIO(decodable(LOSSLESS_JPEG, MAX_PIXELS)))), LOSSLESS_PIXELS
    )


@pytest.mark.usefixtures("without_opencv")
@pytest.mark.parametrize("has_simplejpeg", [True, False])
def test_pillow_decodes_to_the_same_pixels_what_nothing_else_can(
    has_simplejpeg: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_simplejpeg:
        monkeypatch.setattr(image_decode, "simplejpeg", None)
    for data, expected, half in CASES:
        np.testing.assert_array_equal(jpeg(data, 3), expected["RGB"], strict=True)
        np.testing.assert_array_equal(jpeg(data, 3, ratio=2), half, strict=True)
    for data, seen in zip(MARKED, SEEN, strict=True):
        np.testing.assert_array_equal(inks(data), seen)


@pytest.mark.parametrize(("version", "warned"), [("12.3.0", True), ("13.0.0", False), ("14.1.0", False)])
def test_an_old_pillow_is_named_once(
    version: str, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    image_decode.warn_of_old_pillow.cache_clear()
    monkeypatch.setattr(PIL, "__version__", version)
    with caplog.at_level(logging.WARNING, "recordmill"):
        for _ in range(2):
            decodable(saved(form="TIFF"), MAX_PIXELS)
            decode_original(saved(form="PNG"), options(), 1)
    assert [("12.3.0" in line, "pillow>=13" in line) for line in caplog.messages] == [(True, True)] * warned
    image_decode.warn_of_old_pillow.cache_clear()
