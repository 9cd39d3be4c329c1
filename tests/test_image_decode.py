"""Decoding in the graph against Pillow and NumPy: every format and type, upright, on the background, in its place."""

import io
import itertools
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture

from recordmill.pipeline.build.worker.batch import RowBatch, early_ends
from recordmill.transforms.base.graph import Context, Statistics
from recordmill.transforms.base.stored import part_name
from recordmill.transforms.engines.tensorflow_features import KINDS
from recordmill.transforms.images.decode import ends_early
from recordmill.transforms.images.decode_graph import decode, resize
from recordmill.transforms.images.image_graph import prepare
from recordmill.transforms.images.image_header import PNG
from recordmill.transforms.images.image_rules import placement
from recordmill.transforms.images.image_spec import ImageSequence
from recordmill.transforms.images.image_stored import MAX_SIDE
from tests.messages import raises
from tests.pictures import (
    PIXELS,
    RANDOM,
    animated,
    bmp,
    chunk,
    composited,
    luma,
    opened,
    options,
    png,
    psnr,
    saved,
    turned,
)


def decoded(data: bytes, **keys) -> np.ndarray:
    return decode(tf.constant(data), options(**keys).pixel_options).numpy()


@pytest.mark.parametrize(("data", "mode"), [
    (saved(), "RGB"),
    (saved(quality=30, progressive=True, subsampling=0), "RGB"),
    (saved(PIXELS[..., 0]), "RGB"),
    (saved(PIXELS[..., 0]), "L"),
    (saved(form="PNG"), "RGB"),
    (animated("PNG"), "RGB"),
    (saved(form="WEBP"), "RGB"),
    (saved(form="WEBP"), "L"),
    (saved(form="WEBP", lossless=False, quality=60), "RGB"),
    (saved(form="BMP"), "RGB"),
    (saved(form="BMP"), "L"),
    (bmp(RANDOM.integers(0, 256, 12 * 5, np.uint8).tobytes(), -5, 4, 24), "RGB"),
    (bmp(RANDOM.integers(0, 256, 12 * 5, np.uint8).tobytes(), 5, 3, 24, head=124), "RGB"),
])  # fmt: skip
def test_it_is_what_pillow_decodes(data, mode):
    np.testing.assert_array_equal(decoded(data, channels=len(mode)), opened(data, mode))


def test_a_grey_jpeg_is_the_luma_it_stores():
    pillow_image = Picture.open(io.BytesIO(saved()))
    pillow_image.draft("L", None)
    np.testing.assert_array_equal(decoded(saved(), channels=1)[..., 0], np.asarray(pillow_image))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_ends_early_is_found(mode, progressive):
    data = saved(Picture.fromarray(np.tile(PIXELS, (9, 9, 1))).convert(mode), "JPEG", progressive=progressive)
    assert [ends_early(each) for each in (data, data[: len(data) * 6 // 10] + b"\xff\xd9")] == [False, True]


def test_neither_restarts_nor_odd_bytes_hide_an_early_end():
    data = saved(NOISE, restart_marker_blocks=1)
    scan, restart, end = data.find(b"\xff\xda"), data.find(b"\xff\xd3"), b"\xff\xd9"
    odd = data[:scan] + b"\0" + data[scan:]  # libjpeg warns of it, and then of nothing else
    zeros = data[: scan + 11] + bytes(3) + data[scan + 14 :]  # as some cameras write
    early = [data[:restart] + end, *(each[: restart - 5] + end for each in (odd, zeros))]
    assert [ends_early(each) for each in (data, odd, zeros, *early)] == [False] * 3 + [True] * 3


NOISE = np.random.default_rng(3).integers(0, 256, (64, 64, 3), np.uint8)


def early_and_whole() -> tuple[list[bytes], list[bytes]]:
    """Returns JPEGs without their last block and some before it, but with an end mark, and the whole ones."""
    whole = []
    sides, turns, samplings = [(48, 48), (33, 49), (49, 33), (40, 64)], itertools.cycle(range(1, 9)), (0, 1, 2)
    ways = [{}, {"progressive": True}, {"restart_marker_blocks": 1}]
    for (height, width), sampling, way in itertools.product(sides, samplings, ways):
        exif = Picture.Exif()
        exif[0x0112] = next(turns)
        whole.append(saved(NOISE[:height, :width], subsampling=sampling, exif=exif, **way))
    whole.append(saved(NOISE[..., 0]))
    whole.append(saved(Picture.fromarray(NOISE).convert("CMYK"), "JPEG"))
    parts, scans = itertools.cycle((40, 60, 80)), [data.rfind(b"\xff\xda") + 14 for data in whole]
    ends = [scan + (len(data) - scan) * next(parts) // 100 for data, scan in zip(whole, scans, strict=True)]
    return [data[:end] + b"\xff\xd9" for data, end in zip(whole, ends, strict=True)], whole


@pytest.mark.parametrize(
    "keys", [{}, {"store": "original"}, {"channels": 1}, {"store": "png", "optional": True}], ids=str
)
def test_jpegs_that_end_before_their_last_block_are_counted(keys):
    early, whole = early_and_whole()
    files = [*early, *whole, saved(form="PNG")]
    parts = prepare(options(**keys), tf.constant(files), Context()).store(Statistics())
    stored = {part_name("photo", part): each for part, each in parts.items()}
    batch = RowBatch(pa.table({}), {"photo": files}, {}, {}, 0)
    expected = {("losses", "photo an early end"): len(early)}
    assert early_ends(batch, stored) == expected
    assert early_ends(batch, {}) == expected  # a user's function leaves no hint


def test_those_of_sequences_are_counted():
    early, whole = early_and_whole()
    rows = [early[:5], [], [*whole, *early[5:]]]
    options = ImageSequence(kind="image_sequence", size=(8, 8))
    parts = KINDS["image_sequence"].prepare(options, tf.ragged.constant(rows), Context()).store(Statistics())
    batch = RowBatch(pa.table({}), {"photos": rows}, {}, {}, 0)
    found = early_ends(batch, {part_name("photos", part): each for part, each in parts.items()})
    assert found == {("losses", "photos an early end"): len(early)}


def test_a_cmyk_jpeg_is_ink_times_black_and_its_grey_the_luma_of_that():
    data = saved(Picture.fromarray(PIXELS).convert("CMYK"))
    inks = 255 - opened(data, "CMYK").astype(int)
    rgb = decoded(data)
    np.testing.assert_array_equal(rgb, inks[..., :3] * inks[..., 3:] // 255)
    np.testing.assert_array_equal(decoded(data, channels=1), luma(rgb))


# PNG


SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
TYPES = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8), (4, 8), (4, 16)]
TYPES += [(6, 8), (6, 16)]
PALETTE = RANDOM.integers(0, 256, (256, 3))
PALETTE_ALPHA = RANDOM.integers(0, 256, 256)


def png_of_type(colour, depth, transparent):
    """Returns random samples and their PNG."""
    samples = RANDOM.integers(0, 2**depth, (5, 11, SAMPLES[colour]))
    chunks = [(b"PLTE", PALETTE[: 2**depth].astype(np.uint8).tobytes())] if colour == 3 else []
    if transparent and colour < 4:
        clear = struct.pack(f">{SAMPLES[colour]}H", *samples[0, 0])
        alphas = PALETTE_ALPHA[: 2**depth].astype(np.uint8).tobytes()
        chunks.append((b"tRNS", alphas if colour == 3 else clear))
    return samples, png(samples, depth, colour, *chunks)


def rgba_of(samples, depth, colour, transparent):
    """Returns the samples' colours [h, w, 3] and alpha [h, w] in 8 bits, by the PNG specification."""
    to_8 = samples * (255 // (2**depth - 1)) if depth < 8 else samples >> (depth - 8)
    if colour == 3:
        index = samples[..., 0]
        return PALETTE[index], PALETTE_ALPHA[index] if transparent else np.full(index.shape, 255)
    if colour in (4, 6):
        return np.broadcast_to(to_8[..., :-1], (*samples.shape[:2], 3)), to_8[..., -1]
    clear = (samples == samples[0, 0]).all(-1) & transparent
    return np.broadcast_to(to_8, (*samples.shape[:2], 3)), np.where(clear, 0, 255)


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize(("colour", "depth"), TYPES)
def test_every_type_of_png_lies_on_the_background(colour, depth, transparent):
    samples, data = png_of_type(colour, depth, transparent)
    expected = composited(*rgba_of(samples, depth, colour, transparent))
    np.testing.assert_array_equal(decoded(data), expected)
    np.testing.assert_array_equal(decoded(data, channels=1), luma(expected))


EVERY_COLOUR, EVERY_ALPHA = np.meshgrid(np.arange(256), np.arange(256))
EVERY_RGBA = np.stack([EVERY_COLOUR, EVERY_COLOUR, EVERY_COLOUR, EVERY_ALPHA], -1).astype(np.uint8)


@pytest.mark.parametrize(("form", "keys"), [("PNG", {}), ("WEBP", {}), ("WEBP", {"lossless": False})])
def test_every_colour_and_alpha_is_composited_exactly(form, keys):
    data = saved(EVERY_RGBA, form, **keys)
    rgba = opened(data, "RGBA") if keys else EVERY_RGBA
    np.testing.assert_array_equal(decoded(data), composited(rgba[..., :3], rgba[..., 3]))


@pytest.mark.parametrize("text", [b"a\0tRNS", b"a\0eXIf"])
@pytest.mark.parametrize(("colour", "depth"), [(0, 1), (2, 8), (3, 4)])
def test_a_chunks_name_inside_text_changes_nothing(colour, depth, text):
    samples = RANDOM.integers(0, 2**depth, (5, 11, SAMPLES[colour]))
    palette = [(b"PLTE", PALETTE[: 2**depth].astype(np.uint8).tobytes())] if colour == 3 else []
    plain = png(samples, depth, colour, *palette)
    np.testing.assert_array_equal(decoded(png(samples, depth, colour, *palette, (b"tEXt", text))), decoded(plain))


# Bytes that are no image


@cache
def graph(channels: int) -> Callable[[tf.Tensor], tf.Tensor]:
    keys, context = options(channels=channels), Context()
    return tf.function(lambda column: prepare(keys, column, context).store(Statistics())[""])


@pytest.mark.first(16)
@pytest.mark.parametrize(("data", "fact"), [
    (saved()[:-400], "Invalid JPEG data"),
    (saved()[:100], "Invalid JPEG data"),
    (saved(form="PNG")[:-60], "Invalid PNG data"),
    (PNG, "Invalid PNG"),
    (PNG + chunk(b"IHDR", bytes(13)), "Invalid PNG"),
    (saved(form="GIF"), "empty"),
    (saved(form="TIFF"), "empty"),
    (saved(form="WEBP")[:-60], "WebP"),
    (animated("WEBP"), "empty"),
    (saved(form="BMP")[:-60], "size should match"),
    (saved(PIXELS[..., 0], "BMP"), "empty"),
    (saved(Picture.fromarray(PIXELS).convert("RGBA"), "BMP"), "empty"),
    (bmp(bytes(84 * 18), 18, 27, 24, compression=3), "empty"),
    (b"BM", "empty"),
    (b"RIFF", "empty"),
    (b"", "empty"),
])  # fmt: skip
@pytest.mark.parametrize("channels", [1, 3])
def test_what_cannot_be_decoded_is_an_error_of_the_graph(data, fact, channels):
    with raises(tf.errors.InvalidArgumentError, fact):
        graph(channels)(tf.constant([saved(), data]))


# Reduced photos


def photo(height: int, width: int) -> np.ndarray:
    """Makes clouds of colour, as in a photo."""
    small = Picture.fromarray(np.random.default_rng(1).integers(0, 256, (12, 16, 3), np.uint8))
    return np.asarray(small.resize((width, height), Picture.Resampling.BICUBIC))


@pytest.mark.first(15)
@pytest.mark.parametrize(("sides", "keys", "ratio"), [
    ((512, 768), {"size": (64, 64)}, 4),
    ((512, 768), {"size": (128, 192)}, 2),
    ((512, 768), {"size": (32, 48), "fit": "stretch", "resize": "area"}, 8),
    ((512, 768), {"size": (32, 32), "fit": "crop"}, 8),
    ((512, 768), {"size": (64, 64), "fit": "crop", "shorter_side": 80}, 2),
    ((512, 768), {"size": None, "shorter_side": 64}, 4),
    ((512, 768), {"size": (64, 64), "channels": 1}, 4),
    ((512, 768), {"size": (60, 61), "fit": "crop"}, 1),  # the box is no whole number of reduced pixels
    ((512, 770), {"size": (64, 64)}, 2),
    ((511, 768), {"size": (64, 64)}, 1),
    ((512, 768), {"size": (200, 200), "fit": "stretch"}, 1),
    ((512, 768), {"size": (64, 64), "resize": "bilinear"}, 1),
    ((512, 768), {"size": (64, 64), "dct_scaling": False}, 1),
    ((512, 768), {"size": None, "fit": "none"}, 1),
    ((128, 248), {"size": (8, 8)}, 1),
])  # fmt: skip
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_photo_is_reduced_where_nobody_sees_it(sides, keys, ratio, orientation):
    keys = options(**keys).pixel_options
    pixels = photo(*sides) if orientation == 1 else np.rot90(photo(*sides))
    data = tf.constant(turned("JPEG", orientation, pixels))
    reduced = decode(data, keys)
    assert tuple(reduced.shape[:2]) == (sides[0] // ratio, sides[1] // ratio)
    full = resize(decode(data, replace(keys, dct_scaling=False)), keys)
    assert psnr(resize(reduced, keys), full) >= 40


def bilinear(pixels, size):
    return np.round(tf.image.resize(pixels, size, method="bilinear")).astype(np.uint8)


def resized(pixels, **keys):
    return resize(tf.constant(pixels), options(**keys).pixel_options).numpy()


def test_a_strip_is_never_scaled_to_millions_of_pixels():
    strip = np.broadcast_to(np.arange(9_000)[None, :, None] % 256, (1, 9_000, 3)).astype(np.uint8)
    assert resized(strip, size=None, shorter_side=8).shape == (2, MAX_SIDE, 3)
    got = resized(strip, size=4, fit="crop", shorter_side=4)
    np.testing.assert_array_equal(got, bilinear(strip[:, 4400:4600], (4, 800))[:, 398:402])


SIDES = st.tuples(st.integers(1, 40), st.integers(1, 40))
FITS = ["pad", "crop", "stretch"]


@given(SIDES, SIDES, st.sampled_from(FITS), st.sampled_from([1, 3]), st.integers(0, 20) | st.none())
def test_any_image_fits_any_size(source, size, fit, channels, more):
    colour = np.uint8([9, 99, 199][:channels])
    shorter = {"shorter_side": max(size) + more} if fit == "crop" and more is not None else {}
    got = resized(np.broadcast_to(colour, (*source, channels)), size=size, fit=fit, channels=channels, **shorter)
    assert got.shape == (*size, channels)
    is_image = (got == colour).all(-1)
    rows, columns = is_image.any(1).sum(), is_image.any(0).sum()
    assert is_image.sum() == rows * columns
    assert (rows, columns) == size if fit != "pad" else rows == size[0] or columns == size[1]


WAYS = [{"size": (7, 5), "fit": fit} for fit in FITS]
WAYS += [{"size": None, "fit": "none"}, {"size": None, "shorter_side": 9}]
WAYS += [{"size": (7, 5), "fit": "crop", "shorter_side": 9}]


@settings(max_examples=50, deadline=None)
@given(st.lists(SIDES, min_size=1, max_size=4), st.sampled_from(WAYS))
def test_a_batch_goes_where_each_image_goes(sides, keys):
    together = placement(tf.constant(sides, tf.int64), options(**keys).pixel_options, tf)
    alone = [placement(tf.constant(each, tf.int64), options(**keys).pixel_options, tf) for each in sides]
    for field in together._fields:
        np.testing.assert_array_equal(getattr(together, field), [getattr(each, field) for each in alone])
    start, box, scaled, offset, output = (np.array(each) for each in together)
    assert (start >= 0).all()
    assert (start + box <= sides).all()
    inside = (offset >= 0) & (offset + scaled <= output)
    outside = (offset <= 0) & (offset + scaled >= output)
    assert (inside | outside).all()


def test_no_image_has_a_place_too():
    for keys in WAYS:
        assert (placement(tf.constant([0, 0], tf.int64), options(**keys).pixel_options, tf).output > 0).numpy().all()
