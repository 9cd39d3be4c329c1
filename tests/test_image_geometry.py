"""Placement of an image and its pixels, for every fit and every method."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture

from recordmill.transforms.contract.image_rules import placement, upright
from recordmill.transforms.contract.kinds.image import MAX_SIDE
from recordmill.transforms.tensorflow.image_decode import resize
from tests.pictures import PIXELS, options


def area(pixels, size):
    return np.round(tf.image.resize(pixels, size, method="area")).astype(np.uint8)


def bilinear(pixels, size):
    return np.round(tf.image.resize(pixels, size, method="bilinear")).astype(np.uint8)


def resized(pixels, **keys):
    return resize(tf.constant(pixels), options(**keys)).numpy()


@pytest.mark.parametrize(
    ("source", "shorter", "scaled"),
    [
        ((18, 27), 6, (6, 9)),
        ((27, 18), 12, (18, 12)),
        ((18, 27), 18, (18, 27)),
        ((18, 25), 9, (9, 13)),
        ((1, 27), 4, (4, 108)),
    ],
)
def test_the_shorter_side_is_as_long_as_asked_and_the_shape_is_kept(source, shorter, scaled):
    pixels = np.rot90(PIXELS) if source[0] > 18 else PIXELS[: source[0], : source[1]]
    method = area if np.prod(scaled) <= np.prod(source) else bilinear
    expected = pixels if scaled == source else method(pixels, scaled)
    np.testing.assert_array_equal(resized(pixels, size=None, shorter_side=shorter), expected)


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
    together = placement(tf.constant(sides, tf.int64), options(**keys), tf)
    alone = [placement(tf.constant(each, tf.int64), options(**keys), tf) for each in sides]
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
        assert (placement(tf.constant([0, 0], tf.int64), options(**keys), tf).output > 0).numpy().all()


def test_a_lying_image_has_its_sides_swapped():
    sides = tf.constant([[2, 3]] * 8)
    np.testing.assert_array_equal(upright(sides, tf.range(1, 9), tf), [[2, 3]] * 4 + [[3, 2]] * 4)
    np.testing.assert_array_equal(upright(sides[0], tf.constant(6), tf), [3, 2])


# Methods


PILLOW = {
    "nearest": Picture.Resampling.NEAREST,
    "bilinear": Picture.Resampling.BILINEAR,
    "bicubic": Picture.Resampling.BICUBIC,
    "lanczos3": Picture.Resampling.LANCZOS,
}


@pytest.mark.parametrize("size", [(6, 9), (7, 8), (31, 41)])
@pytest.mark.parametrize("method", PILLOW)
def test_a_method_is_pillows_within_one_level(method, size):
    floats = [
        np.asarray(Picture.fromarray(PIXELS[..., channel].astype(np.float32)).resize(size[::-1], PILLOW[method]))
        for channel in range(3)
    ]
    expected = np.clip(
        np.stack(floats, -1), 0, 255
    )  # beyond a sharp edge, a kernel gives less than 0 and more than 255
    got = resized(PIXELS, size=size, fit="stretch", resize=method).astype(float)
    assert np.abs(got - expected).max() < 1


def test_a_sharp_edge_stays_sharp():
    edge = np.repeat(np.uint8([0, 255]), 16)[None, :, None] * np.ones((8, 1, 3), np.uint8)
    got = resized(edge, size=(8, 40), fit="stretch", resize="lanczos3")
    assert set(got[:, :10].ravel()) == {0}
    assert set(got[:, 30:].ravel()) == {255}
