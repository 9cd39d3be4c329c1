"""Images that only Pillow decodes, and odd JPEGs, that libjpeg-turbo does: their pixels follow the rules."""

import base64
import io
import logging
import os
import struct
from typing import Any

import cv2
import numpy as np
import PIL
import pillow_heif
import pytest
import tensorflow as tf
from PIL import Image as Picture
from PIL import ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from recordmill.pipeline.build.images import transcode
from recordmill.pipeline.build.images.perceptual_hash import small_pixels
from recordmill.pipeline.build.images.transcode import (
    LEAST_SIDE,
    MissingPluginError,
    UndecodableError,
    as_jpeg,
    decodable,
    decoding_of,
    interval,
    require,
)
from recordmill.pipeline.sources.files import is_machine_fault
from recordmill.transforms.images import decode as image_decode
from recordmill.transforms.images.decode import DecodeError, decode_original, inks, jpeg
from recordmill.transforms.images.decode_graph import decode
from recordmill.transforms.images.image_graph import geometry
from recordmill.transforms.images.image_header import ImageError
from tests.messages import raises
from tests.pictures import PIXELS, RANDOM, animated, bmp, composited, opened, options, photo, saved, turned
from tests.profiles import P3, in_srgb, press

LOSSLESS_JPEG = base64.b85decode(
    "|JeWT01iQ9Z(?NtWB>pF0095P01*fP1ONpCQV{@05dcCF0RO}Q7XSeP0RaF20000000000000CA2MGV#01N|C07n2q00961"
    "=ll-`V;IIUjAIzf%ge?wjAIzaF^s&tyki)~F^ppv%gf8gF^ppv#xacl*#"
)
LOSSLESS_PIXELS = np.arange(60, dtype=np.uint8).reshape(4, 5, 3) * 4
GREY = RANDOM.integers(0, 65_536, (5, 7)).astype(np.uint16)
ALPHA = Picture.fromarray(PIXELS).convert("RGBA")
ALPHA.putalpha(Picture.fromarray(PIXELS[..., 1]))


def decoded(data: bytes, **keys) -> np.ndarray:
    """Returns the graph's pixels, for a build, and for a client with a compressed PNG."""
    limits, wanted = decoding_of(options(**keys)), options(**keys).pixel_options
    way = lambda ready: decode(tf.constant(ready), wanted).numpy()  # noqa: E731
    pixels = way(decodable(data, limits | {"compress": False}))
    np.testing.assert_array_equal(pixels, way(decodable(data, limits)))
    return pixels


def tiff(rows: bytes, height: int, width: int, order: str = "<", **more: int) -> bytes:
    """Makes a TIFF of one strip, with tags by number, such as `t258=16`."""
    tags = {256: width, 257: height, 259: 1, 262: 1, 273: 0, 277: 1, 278: height, 279: len(rows)}
    tags |= {int(name[1:]): value for name, value in more.items()}
    tags[273] = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(struct.pack(order + "HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    mark = {"<": b"II*\0", ">": b"MM\0*"}[order]
    return mark + struct.pack(order + "IH", 8, len(tags)) + entries + bytes(4) + rows


@pytest.mark.parametrize(
    "data",
    [saved(), saved(progressive=True), saved(form="PNG"), animated("PNG"), saved(form="WEBP"), saved(form="BMP")],
)
def test_what_the_graph_takes_stays_as_it_is(data):
    assert decodable(data, decoding_of(options())) is data


@pytest.mark.parametrize(
    ("data", "mode"),
    [
        (saved(form="GIF"), "RGB"),
        (saved(PIXELS[..., 0], "GIF"), "L"),
        (animated("GIF"), "RGB"),
        (animated("WEBP"), "RGB"),
        (saved(form="BMP") + b"\0\0", "RGB"),
        (saved(PIXELS[..., 0], "BMP"), "L"),
        (saved(Picture.fromarray(PIXELS).quantize(16), "BMP"), "RGB"),
        (saved(Picture.fromarray(PIXELS).convert("1"), "BMP"), "RGB"),
        (bmp(RANDOM.integers(0, 256, 4 * 27 * 18, np.uint8).tobytes(), 18, 27, 32), "RGB"),
        (bmp(RANDOM.integers(0, 256, 56 * 18, np.uint8).tobytes(), 18, 27, 16), "RGB"),
        (saved(form="TIFF"), "RGB"),
        (saved(form="TIFF", compression="tiff_lzw"), "RGB"),
        (saved(form="TIFF", compression="jpeg"), "RGB"),
        (saved(PIXELS[..., 0], "TIFF"), "L"),
        (saved(Picture.fromarray(PIXELS).convert("1"), "TIFF", compression="group4"), "RGB"),
        (saved(Picture.fromarray(PIXELS).quantize(16), "TIFF"), "RGB"),
        (saved(form="AVIF"), "RGB"),
        (saved(form="AVIF", quality=40, subsampling="4:2:0"), "RGB"),
        (saved(PIXELS[..., 0], "AVIF"), "L"),
        (animated("AVIF"), "RGB"),
        (saved(form="HEIF"), "RGB"),
        (saved(form="HEIF", quality=40, chroma=420), "RGB"),
        (saved(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8)), "HEIF", tile_size=64), "RGB"),
        (saved(PIXELS[..., 0], "HEIF"), "L"),
        (animated("HEIF"), "RGB"),
    ],
)
def test_opaque_images_are_what_pillow_decodes(data, mode):
    np.testing.assert_array_equal(decoded(data, channels=len(mode)), opened(data, mode))


def test_pixels_that_spell_chunks_are_pixels():
    """The PNG holds them verbatim."""
    words = np.frombuffer(b"IHDReXIftRNSIDATIENDsRGB" * 1_000, np.uint8).reshape(80, 100, 3)
    words = words ^ np.arange(80, dtype=np.uint8)[:, None, None] // 40
    data = saved(words, "TIFF")
    np.testing.assert_array_equal(decoded(data), words)
    ready = decodable(data, {"max_pixels": 10_000, "compress": False})
    assert b"IHDReXIftRNS" in ready
    np.testing.assert_array_equal(small_pixels(ready, 10_000), small_pixels(data, 10_000))


@pytest.mark.parametrize("is_12_bits", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_10_and_12_bits_of_heif_become_8(channels, is_12_bits, monkeypatch):
    monkeypatch.setattr(pillow_heif.options, "SAVE_HDR_TO_12_BIT", is_12_bits)
    samples = np.kron(RANDOM.integers(0, 65_536, (6, 9, channels)), np.ones((4, 4, 1))).astype(np.uint16)
    file = io.BytesIO()
    mode = {1: "I;16", 3: "RGB;16"}[channels]
    pillow_heif.from_bytes(mode, (36, 24), samples.tobytes()).save(file, quality=-1, chroma=444)
    assert pillow_heif.open_heif(file).info["bit_depth"] == (12 if is_12_bits else 10)
    assert np.abs(decoded(file.getvalue(), channels=channels).astype(int) - (samples >> 8)).max() <= 1


@pytest.mark.parametrize("depth", [10, 12])
def test_10_and_12_bits_of_avif_become_8(depth):
    samples = np.kron(RANDOM.integers(0, 1 << depth, (6, 9, 3)), np.ones((4, 4, 1))).astype(np.uint16)
    _, data = cv2.imencode(".avif", samples, [cv2.IMWRITE_AVIF_DEPTH, depth, cv2.IMWRITE_AVIF_QUALITY, 100])
    assert np.abs(decoded(data.tobytes()).astype(int) - (samples[..., ::-1] >> (depth - 8))).max() <= 3


@pytest.mark.parametrize(
    "data", [saved(ALPHA, "TIFF"), saved(ALPHA.convert("LA"), "TIFF"), saved(ALPHA, "AVIF"), saved(ALPHA, "HEIF")]
)
def test_alpha_lies_on_the_background(data):
    rgba = opened(data, "RGBA")
    assert 0 < rgba[..., 3].min() < 255
    np.testing.assert_array_equal(decoded(data), composited(rgba[..., :3], rgba[..., 3]))


def gif(frame: tuple[int, int, int, int], screen: tuple[int, int], *, clear: bool) -> bytes:
    """Makes a GIF of one frame (left, top, width, height) of colour 1, with colour 0 or 1 transparent."""
    palette = bytes([255, 0, 0, 0, 255, 0])
    control = b"\x21\xf9\x04\x01\0\0" + bytes([clear, 0])
    indices = b"\x2c" + struct.pack("<HHHH", *frame) + b"\0\x02"
    pixels, code = frame[2] * frame[3], [4]  # each code of 3 bits: clear, 1, clear, 1, …, end
    code = [part for _ in range(pixels) for part in (4, 1)] + [5]
    bits = sum(value << (3 * place) for place, value in enumerate(code))
    data = bits.to_bytes((3 * len(code) + 7) // 8, "little")[:255]
    head = b"GIF89a" + struct.pack("<HH", *screen) + b"\x80\0\0" + palette
    return head + control + indices + bytes([len(data)]) + data + b"\0;"


def test_transparent_pixels_of_a_gif_lie_on_the_background():
    keys = options()
    np.testing.assert_array_equal(decoded(gif((0, 0, 2, 2), (2, 2), clear=True)), [[keys.background] * 2] * 2)
    got = decoded(gif((1, 0, 1, 2), (3, 2), clear=False))
    np.testing.assert_array_equal(got, [[keys.background, (0, 255, 0), keys.background]] * 2)


def test_only_the_first_frame_is_decoded():
    one = saved(form="GIF")
    frame = one[one.index(b",") : -1]
    many = one[:-1] + frame * 100_000 + one[-1:]
    np.testing.assert_array_equal(decoded(many), decoded(one))


def test_cmyk_is_ink_times_black():
    data = saved(Picture.fromarray(PIXELS).convert("CMYK"), "TIFF")
    inks = 255 - opened(data, "CMYK").astype(int)
    np.testing.assert_array_equal(decoded(data), inks[..., :3] * inks[..., 3:] // 255)


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_low_bits_of_16_are_left_out(order):
    rows = GREY.astype(order + "u2").tobytes()
    np.testing.assert_array_equal(decoded(tiff(rows, 5, 7, order, t258=16))[..., 0], GREY >> 8)


def test_16_bits_may_be_white_at_0():
    data = tiff(GREY.tobytes(), 5, 7, t258=16, t262=0)
    np.testing.assert_array_equal(decoded(data)[..., 0], 255 - (GREY >> 8))


def test_the_low_bits_of_12_are_left_out():
    rows = b"".join(int.to_bytes(value << 12 | value ^ 0xFFF, 3, "big") for value in (0x123, 0xFED))
    np.testing.assert_array_equal(decoded(tiff(rows, 2, 2, t258=12))[..., 0], [[0x12, 0xED], [0xFE, 0x01]])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["AVIF", "HEIF"])
def test_avif_and_heif_are_turned_upright_once(form, orientation):
    upright = ImageOps.exif_transpose(Picture.open(io.BytesIO(turned("PNG", orientation))))
    assert np.abs(decoded(turned(form, orientation)).astype(int) - np.asarray(upright)).max() <= 3


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_is_turned_upright_by_the_graph(orientation):
    data = turned("TIFF", orientation)
    expected = np.asarray(ImageOps.exif_transpose(Picture.open(io.BytesIO(data))))
    np.testing.assert_array_equal(decoded(data), expected)
    sides = geometry(tf.constant([decodable(data, decoding_of(options()) | {"compress": False})]))
    np.testing.assert_array_equal(sides, [[*expected.shape[:2], orientation]])


@pytest.mark.parametrize(
    ("data", "reason", "facts"),
    [
        (b"no picture", "unsupported_format", ("no image",)),
        (saved(np.zeros((50, 50), np.uint8), "PNG"), "too_many_pixels", ("50 x 50 = 2500",)),
        (saved(np.zeros((50, 50), np.uint8), "TIFF"), "too_many_pixels", ("50 x 50 = 2500",)),
        (gif((0, 0, 60, 60), (2, 2), clear=False), "too_many_pixels", ("60 x 60 = 3600",)),
        (tiff(bytes(4), 2, 2, t258=8, t322=60_000, t323=60_000), "too_many_pixels", ("60000 x 60000",)),
        (
            saved(np.zeros((5, 5), np.float32), "TIFF"),
            "unsupported_format",
            ("32 bits of floating point", "1 bands", "`dtype`"),
        ),
        (tiff(bytes(4), 2, 2, t258=8, t339=2), "unsupported_format", ("8 bits with a sign", "1 bands", "`dtype`")),
        (saved(np.zeros((5, 5), np.int32), "TIFF"), "unsupported_format", ("32 bits with a sign", "`dtype`")),
        (saved(Picture.new("LAB", (5, 5)), "TIFF"), "unsupported_format", ("mode LAB",)),
        (saved(form="GIF")[:40], "undecodable_image", ("GIF",)),
        (tiff(bytes(20), 5, 7, t258=8), "undecodable_image", ("TIFF",)),
        (tiff(bytes(4), 2, 2, t258=8, t259=77), "undecodable_image", ("TIFF",)),
        (animated("WEBP")[:80], "undecodable_image", ("WebP",)),
        (bmp(bytes(9), 18, 27, 24, compression=5), "undecodable_image", ("BMP",)),
        (LOSSLESS_JPEG[:-30], "undecodable_image", ("JPEG",)),
        (saved(form="AVIF")[:-30], "undecodable_image", ("AVIF",)),
        (saved(np.zeros((50, 50), np.uint8), "AVIF"), "too_many_pixels", ("50 x 50 = 2500",)),
        (saved(np.zeros((50, 50), np.uint8), "HEIF"), "too_many_pixels", ("64 x 64 = 4096",)),
    ],
)
def test_what_is_bad_is_named(data, reason, facts):
    with raises(ImageError, *facts) as error:
        decodable(data, decoding_of(options(max_pixels=1_000)))
    assert error.value.reason == reason


def test_without_its_plugin_a_format_names_the_extra(monkeypatch):
    require.cache_clear()
    monkeypatch.setattr("recordmill.pipeline.build.images.transcode.find_spec", lambda package: None)
    with raises(MissingPluginError, 'pip install "recordmill[heif]"', "pillow_heif") as error:
        decodable(saved(form="HEIF"), decoding_of(options()))
    assert is_machine_fault(error.value)  # no row is rejected
    assert len(decodable(saved(form="AVIF"), decoding_of(options()))) > 0


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
    marker = data[place : place + 15] + bytes([transform]) if transform is not None else b""
    return data[:place] + marker + data[place + 16 :]


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
    np.testing.assert_array_equal(
        decode_original(data, options().pixel_options, 1), paper[..., :3] * paper[..., 3:] // 255
    )
    ready = np.asarray(Picture.open(io.BytesIO(decodable(data, MAX_PIXELS))))
    picture = Picture.merge("CMYK", [*map(Picture.fromarray, np.moveaxis(seen, -1, 0))])
    np.testing.assert_array_equal(ready, in_srgb(picture, press()))


@pytest.mark.usefixtures("without_pillows_decoder")
def test_lossless_jpegs_too() -> None:
    np.testing.assert_array_equal(opened(decodable(LOSSLESS_JPEG, MAX_PIXELS)), LOSSLESS_PIXELS)


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
            decode_original(saved(form="PNG"), options().pixel_options, 1)
    assert [("12.3.0" in line, "pillow>=13" in line) for line in caplog.messages] == [(True, True)] * warned
    image_decode.warn_of_old_pillow.cache_clear()


@pytest.mark.parametrize("has_files", [True, False])
def test_jpegs_of_one_file_in_memory_are_those_of_pillow(has_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(transcode, "_files", transcode._MemoryFiles())
    for width, height in ((120, 100), (8, 8), (60, 40)):  # a shorter file after a longer one
        pixels = RANDOM.integers(0, 256, (height, width, 3)).astype(np.uint8)
        made = as_jpeg(b"P6 %05d %05d 255 " % (width, height) + pixels.tobytes(), options(quality=90, chroma="4:4:4"))
        blocks = interval(width, 8) if min(width, height) >= LEAST_SIDE else 0
        ways = {"quality": 90, "subsampling": "4:4:4", "dpi": (300, 300), "restart_marker_blocks": blocks}
        file = io.BytesIO()
        Picture.fromarray(pixels).save(file, "JPEG", **ways)
        assert made == file.getvalue()
