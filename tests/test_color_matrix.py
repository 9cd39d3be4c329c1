"""Colours: the maps follow their formulas, and every library rounds them like integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.augment import ColorJitter, apply
from recordmill.transforms.numpy.augment import chain as augment
from recordmill.transforms.numpy.augment.colors import LUMA, QUARTER_TURN, SAME_COLORS, color_numbers
from tests.test_augment import ALMOST_1, _library, drawn, image, uniforms, with_each_library  # noqa: F401 - a fixture


def matrix(row: np.ndarray) -> np.ndarray:
    return row[2:].reshape(3, 3)


def jitter(brightness: float = 1, contrast: float = 1, saturation: float = 1, hue: float = 0) -> np.ndarray:
    return color_numbers(*(np.array([each], float) for each in (brightness, contrast, saturation, hue)))[0]


def test_colour_maps_are_what_their_formulas_say() -> None:
    np.testing.assert_array_equal(jitter(), SAME_COLORS)
    np.testing.assert_array_equal(matrix(jitter(brightness=1.5)), 1.5 * np.eye(3))
    assert jitter(brightness=1.5, contrast=0.5)[:2].tolist() == [0.75, 0.75]
    np.testing.assert_allclose(matrix(jitter(saturation=0)), np.tile(LUMA, (3, 1)), atol=1e-3)
    np.testing.assert_allclose(QUARTER_TURN @ QUARTER_TURN, np.tile(LUMA, (3, 1)) - np.eye(3), atol=1e-12)
    np.testing.assert_allclose(LUMA @ QUARTER_TURN, 0, atol=1e-12)
    # The known matrix of a turn by 90 degrees in YIQ.
    known = [[0.131, 0.257, 0.611], [0.627, 0.552, -0.178], [-0.949, 1.636, 0.317]]
    np.testing.assert_allclose(matrix(jitter(hue=0.25)), known, atol=4e-3)
    np.testing.assert_allclose(matrix(jitter(hue=-0.5)), matrix(jitter(hue=0.5)))


@given(st.tuples(st.floats(0, 2), st.floats(0, 2), st.floats(0, 2), st.floats(-0.5, 0.5)))
def test_greys_stay_grey_and_sums_are_exact(factors: tuple[float, float, float, float]) -> None:
    row = jitter(*factors)
    np.testing.assert_array_equal(matrix(row).sum(1), row[0])
    np.testing.assert_array_equal(row * 1024, np.rint(row * 1024))
    assert 255 * (np.abs(matrix(row)).sum(1).max() + abs(row[1])) < 2**14  # 24 bits hold 1/1024 of it


@with_each_library
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", [(1, 1), (1, 17), (16, 16), (31, 33)])
def test_colours_are_rounded_as_whole_numbers_are(shape: tuple[int, int], channels: int) -> None:
    before = image(*shape, channels)
    chain = [ColorJitter(1, 1, 1, 0.5)]
    rows = augment.parameters(chain, np.concatenate([uniforms(30, 4), np.full((1, 4), ALMOST_1), np.zeros((1, 4))]))
    light = before.astype(np.int64).sum((0, 1))
    total = light[0] if channels == 1 else (19595 * light[0] + 38470 * light[1] + 7471 * light[2] + 32768) // 65536
    mean = np.floor(total / before[..., 0].size + 0.5)
    for row in rows:
        units = (row * 1024).astype(np.int64)
        maps = units[:1].reshape(1, 1) if channels == 1 else matrix(units)
        expected = np.clip((before.astype(np.int64) @ maps.T + units[1] * int(mean) + 512) >> 10, 0, 255)
        np.testing.assert_array_equal(apply(before, None, chain, row)[0], expected)


@with_each_library
def test_each_colour_does_what_it_is_called() -> None:
    before = image(8, 8)
    spread = {}
    for name, factors in {
        "low": (0.5, 0, 0, 0),
        "flat": (0, 1, 0, 0),
        "grey": (0, 0, 1, 0),
        "hue": (0, 0, 0, 0.5),
    }.items():
        spread[name] = apply(before, None, [ColorJitter(*factors)], drawn(ColorJitter(*factors), 0, 0, 0, 0))[0]
    np.testing.assert_array_equal(spread["low"], (before.astype(int) + 1) // 2)
    assert len(np.unique(spread["flat"])) == 1
    assert (spread["grey"] == spread["grey"][..., :1]).all()
    assert abs(spread["grey"][..., 0] - before @ LUMA).max() <= 1
    assert (spread["hue"] != before).any()
