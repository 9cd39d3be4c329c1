"""Operations, colours and mixtures: against Pillow, their formulas, definitions and papers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from recordmill.augment import (
    Augmentation,
    AutoContrast,
    ColorJitter,
    Equalize,
    GaussianBlur,
    Grayscale,
    Invert,
    Posterize,
    RandAugment,
    RandomAffine,
    RandomApply,
    RandomErasing,
    RandomFlip,
    RandomRotation,
    RandomSharpness,
    Solarize,
    TrivialAugmentWide,
    Views,
    apply,
)
from recordmill.transforms.base.stored import Ragged
from recordmill.transforms.images import opencv
from recordmill.transforms.images.augment import chain, policies
from recordmill.transforms.images.augment.affine import affine_numbers
from recordmill.transforms.images.augment.colors import LUMA, QUARTER_TURN, SAME_COLORS, color_numbers
from recordmill.transforms.images.augment.regularization import BatchAugmentation, CutMix, MixUp, symmetric_beta
from tests.messages import raises
from tests.test_augment import ALMOST_1, _library, drawn, grey, image, rectangle, uniforms, with_each_library  # noqa: F401 - a fixture

SHAPES = [(1, 1, 3), (1, 1, 1), (1, 7, 3), (7, 1, 1), (2, 9, 3), (33, 20, 1), (40, 61, 3)]


def samples(shape: tuple[int, int, int]) -> list[np.ndarray]:
    """Noise, few levels, a ramp, and a single level."""
    noise = image(*shape)
    ramp = np.linspace(30, 190, math.prod(shape)).astype(np.uint8).reshape(shape)
    return [noise, noise // 60 * 50, ramp, np.full(shape, 77, np.uint8), noise | 255]


def pillow(pixels: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Applies a change of Pillow's, which does not know images [height, width, 1]."""
    result = np.asarray(change(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)))
    return result.reshape(*result.shape[:2], -1)


def changed(pixels: np.ndarray, change: Augmentation, values: Any = None) -> np.ndarray:
    values = chain.parameters([change], uniforms(1, change.lanes))[0] if values is None else values
    return apply(pixels, None, [change], values)[0]


EXACT: list[tuple[Augmentation, Callable[[Image.Image], Image.Image]]] = [
    (AutoContrast(), ImageOps.autocontrast),
    (Equalize(), ImageOps.equalize),
    (Invert(), ImageOps.invert),
    *((Posterize(bits), lambda each, bits=bits: ImageOps.posterize(each, bits)) for bits in range(1, 9)),
    *((Solarize(level), lambda each, level=level: ImageOps.solarize(each, level)) for level in (0, 1, 99.5, 128, 256)),
    (Grayscale(), lambda each: ImageOps.grayscale(each).convert(each.mode)),
]


@with_each_library
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("change", "known"), EXACT, ids=lambda each: str(each) if isinstance(each, Augmentation) else ""
)
def test_levels_are_pillows(change: Augmentation, known: Any, shape: tuple[int, int, int]) -> None:
    for pixels in samples(shape):
        np.testing.assert_array_equal(changed(pixels, change), pillow(pixels, known))


def test_many_pixels_are_counted_exactly() -> None:
    pixels = np.zeros((1 << 12, 1 << 12, 1), np.uint8)
    pixels[0, 0] = 200
    pixels[1, :3] = 100
    with_opencv = changed(pixels, Equalize())
    np.testing.assert_array_equal(without_opencv(lambda: changed(pixels, Equalize())), with_opencv)
    np.testing.assert_array_equal(with_opencv, pillow(pixels, ImageOps.equalize))


@with_each_library
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [0.0, 0.25, 1.0, 1.5, 1.9])
def test_factors_differ_from_pillows_by_a_level(shape: tuple[int, int, int], factor: float) -> None:
    """Pillow truncates instead of rounding, and takes the mean of rounded luma."""
    one, none = np.ones(1), np.zeros(1)
    numbers = {
        ImageEnhance.Brightness: (color_numbers(factor * one, one, one, none), 1),
        ImageEnhance.Color: (color_numbers(one, one, factor * one, none), 1),
        ImageEnhance.Contrast: (color_numbers(one, factor * one, one, none), 2),
    }
    for pixels in samples(shape):
        sharp = pillow(pixels, lambda each: ImageEnhance.Sharpness(each).enhance(factor)).astype(int)
        ours = changed(pixels, RandomSharpness(), [round(factor * 1024) / 1024])
        assert np.abs(ours - sharp).max() <= 1
        for known, (values, levels) in numbers.items():
            if pixels.shape[2] == 3 or known is not ImageEnhance.Color:
                expected = pillow(pixels, lambda each, known=known: known(each).enhance(factor)).astype(int)
                assert np.abs(changed(pixels, ColorJitter(), values[0]) - expected).max() <= levels, known


@with_each_library
@pytest.mark.parametrize("shape", SHAPES)
def test_smoothing_is_pillows(shape: tuple[int, int, int]) -> None:
    for pixels in samples(shape):
        expected = pillow(pixels, lambda each: each.filter(ImageFilter.SMOOTH)) if min(shape[:2]) > 2 else pixels
        np.testing.assert_array_equal(changed(pixels, RandomSharpness(), [0.0]), expected)


def exactly_blurred(pixels: np.ndarray, kernel: int, sigma: float) -> np.ndarray:
    """Blurs in float64 by definition."""
    offsets = np.arange(kernel) - kernel // 2
    taps = np.exp(-0.5 * (offsets / sigma) ** 2)
    taps /= taps.sum()
    result = pixels.astype(np.float64)
    for axis in (0, 1):
        reach = [(kernel // 2, kernel // 2) if each == axis else (0, 0) for each in range(3)]
        around, side = np.pad(result, reach, "reflect"), pixels.shape[axis]
        result = sum(tap * around.take(range(start, start + side), axis) for start, tap in enumerate(taps))
    return result


@with_each_library
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("kernel", "sigma"), [(1, 2.0), (3, 0.1), (3, 9.0), (5, 1.0), (23, 2.0), (23, 0.7), (99, 50.0)]
)
def test_blur_is_a_gaussian(shape: tuple[int, int, int], kernel: int, sigma: float) -> None:
    change = GaussianBlur(kernel, (sigma, sigma))
    values = change.draw(np.zeros((1, 1)))[0]
    assert values[0] + 2 * values[1:].sum() == 1
    for pixels in samples(shape):
        assert np.abs(changed(pixels, change) - exactly_blurred(pixels, kernel, sigma)).max() <= 1


def test_deviations_are_spread_over_their_range_and_no_tap_is_negative() -> None:
    narrow, wide = GaussianBlur(5, (0.5, 2.0)).draw(np.array([[0.0], [1.0]]))
    for values, sigma in ((narrow, 0.5), (wide, 2.0)):
        taps = np.exp(-0.5 * (np.arange(-2, 3) / sigma) ** 2)
        np.testing.assert_allclose(values, (taps / taps.sum())[2:], atol=6e-4)
    spread = np.geomspace(1e-5, 1, 4000)[:, np.newaxis]
    for kernel in range(1, 100, 2):
        taps = GaussianBlur(kernel, (0.01, 1000.0)).draw(spread)
        assert taps.min() >= 0
        np.testing.assert_array_equal(2 * taps.sum(1) - taps[:, 0], 1)


@with_each_library
@pytest.mark.parametrize("taps", [[-0.5, 0.75], [2.0, -0.5]], ids=["below", "above"])
def test_levels_end_at_black_and_white(taps: list[float]) -> None:
    line = np.zeros((1, 5, 1), np.uint8)
    line[0, 2] = 255
    expected = np.clip(255 * np.array([0, taps[1], taps[0], taps[1], 0]), 0, 255).round()
    np.testing.assert_array_equal(GaussianBlur(3).apply(line, taps)[0, :, 0], expected)


MOVES = [RandomRotation(180), RandomRotation(60, "crop"), RandomAffine(90, (0.3, 0.2), (0.4, 2.0), 30, fill=9)]
WITH_MOVES = [*MOVES, RandAugment(4, 30), TrivialAugmentWide(), RandomApply(MOVES, 0.8)]
sides = st.integers(1, 24)


def without_opencv(function: Callable[[], np.ndarray]) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opencv, "cv2", None)
        return function()


@given(st.integers(0, 2**32), sides, sides, st.sampled_from([1, 3]), st.sampled_from([*WITH_MOVES, GaussianBlur(7)]))
def test_both_libraries_give_the_same(seed: int, height: int, width: int, channels: int, change: Augmentation) -> None:
    pixels = image(height, width, channels, seed)
    pixels.flags.writeable = False
    values = chain.parameters([change], uniforms(1, change.lanes, seed))[0].tolist()
    with_opencv = apply(pixels, None, [change], values)[0]
    assert with_opencv.shape == pixels.shape
    np.testing.assert_array_equal(with_opencv, without_opencv(lambda: apply(pixels, None, [change], values)[0]))
    inside = pixels.copy()
    np.testing.assert_array_equal(change.apply(inside, values, inside), change.apply(pixels, values))
    mask = apply(pixels, None, [change], values, mask=True)[0]
    assert set(np.unique(mask)) <= {0, *np.unique(pixels)}


@with_each_library
def test_quarter_turns_and_shifts_move_whole_pixels() -> None:
    pixels = image(9, 9)
    for quarters in range(-2, 3):
        turned = changed(pixels, RandomRotation((90 * quarters, 90 * quarters)))
        np.testing.assert_array_equal(turned, np.rot90(pixels, quarters))
    small = grey([1, 2, 3], [4, 5, 6])
    right = affine_numbers(np.ones(1), 0, 0, 1, pixels=(1.9, -1))[0]
    np.testing.assert_array_equal(changed(small, RandomAffine(fill=9), right), grey([9, 4, 5], [9, 9, 9]))
    np.testing.assert_array_equal(apply(small, None, [RandomAffine(fill=9)], right, mask=True)[0][0, :, 0], [0, 4, 5])


@with_each_library
@pytest.mark.parametrize("degrees", [-150, -30, 7, 45, 90])
def test_rotation_is_pillows(degrees: float) -> None:
    """Equal to a level inside the image; at its edge Pillow ignores the fill."""
    ramp = np.add.outer(np.arange(60), 2 * np.arange(90)).astype(np.uint8)[..., np.newaxis]
    ours = changed(ramp, RandomRotation((degrees, degrees), fill=255)).astype(int)
    way = Image.Resampling.BILINEAR
    inside = pillow(np.full_like(ramp, 255), lambda each: each.rotate(degrees, way))
    inner = pillow(inside, lambda each: each.filter(ImageFilter.MinFilter(5))) == 255
    expected = pillow(ramp, lambda each: each.rotate(degrees, way))
    assert inner.mean() > 0.2
    middle = np.s_[3:-3, 3:-3]
    assert np.abs(ours - expected)[middle][inner[middle]].max() <= 1
    outer = pillow(inside, lambda each: each.filter(ImageFilter.MaxFilter(5))) == 0
    assert (ours[outer] == 255).all()


@with_each_library
@pytest.mark.parametrize("shape", [(60, 60, 3), (40, 90, 1), (90, 40, 3)])
def test_a_cropped_rotation_shows_no_fill(shape: tuple[int, int, int]) -> None:
    pixels = np.full(shape, 200, np.uint8)
    for degrees in range(-180, 181, 15):
        result = changed(pixels, RandomRotation((degrees, degrees), "crop"))
        # At the corners a pixel's centre lies within half a pixel of the edge, where the fill has a share.
        assert (result[2:-2, 2:-2] == 200).all(), degrees
    assert (changed(pixels, RandomRotation((30, 30))) == 0).any()


@given(st.integers(0, 2**32), st.sampled_from(WITH_MOVES))
def test_boxes_hold_the_moved_pixels(seed: int, change: Augmentation) -> None:
    """The pixels of a white rectangle on black lie in the moved box, within half a pixel a step."""
    rng = np.random.default_rng(seed)
    mask, box = rectangle(rng, 20, 40)
    values = chain.parameters([change], rng.random((1, change.lanes)))[0]
    after, boxes = apply(mask, box, [change], values, mask=True)
    assert boxes is not None
    rows = np.argwhere(after[..., 0])
    if len(rows):
        y0, x0, y1, x1 = boxes[0] * np.tile(mask.shape[:2], 2)
        rounded = 0.6 * (1 if isinstance(change, TrivialAugmentWide | RandomRotation | RandomAffine) else 4) - 0.5
        assert y0 <= rows[:, 0].min() + 0.5 + rounded
        assert x0 <= rows[:, 1].min() + 0.5 + rounded
        assert y1 >= rows[:, 0].max() + 0.5 - rounded
        assert x1 >= rows[:, 1].max() + 0.5 - rounded


@with_each_library
def test_erasing_fills_its_share() -> None:
    pixels = np.zeros((200, 100, 3), np.uint8)
    change = RandomErasing(0.5, (0.1, 0.1), (0.5, 0.5), fill=(10, 20, 30))
    erased = [apply(pixels, None, [change], row)[0] for row in chain.parameters([change], uniforms(60, 7))]
    filled = [(each == [10, 20, 30]).all(2) for each in erased]
    assert 15 <= sum(each.any() for each in filled) <= 45
    for each in filled:
        if each.any():
            rows, columns = np.flatnonzero(each.any(1)), np.flatnonzero(each.any(0))
            assert (len(rows), len(columns)) == (63, 32)  # 2,000 pixels, half as wide as high
            assert each[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    noise = RandomErasing(1, (1, 1), (1, 1), fill="random")
    first, again, other = (changed(image(50, 50), noise, [*row]) for row in noise.draw(uniforms(2, 7))[[0, 0, 1]])
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9
    assert 115 < first.mean() < 140
    assert changed(image(5, 5, 1), RandomErasing(1, (1, 1), (1, 1), fill=(255, 0, 0))).ravel().tolist() == [76] * 25


NAMES = (
    "Identity ShearX ShearY TranslateX TranslateY Rotate Brightness Color Contrast Sharpness Posterize Solarize "
    "AutoContrast Equalize"
).split()


def strengths(policy: RandAugment | TrivialAugmentWide) -> dict[str, np.ndarray]:
    return dict(zip(NAMES, (each.strengths for each in policies.operations(policy)), strict=True))


def test_the_spaces_are_those_of_torchvision() -> None:
    """From `_augmentation_space` of torchvision 0.20's `RandAugment` and `TrivialAugmentWide`, with 31 bins."""
    rand, wide = strengths(RandAugment()), strengths(TrivialAugmentWide())
    last = {"ShearX": 0.3, "Rotate": 30, "Brightness": 0.9, "Color": 0.9, "Contrast": 0.9, "Sharpness": 0.9}
    for name, most in last.items():
        np.testing.assert_allclose(rand[name], np.linspace(0, most, 31), atol=1e-12)
    for name, most in {**dict.fromkeys(last, 0.99), "Rotate": 135}.items():
        np.testing.assert_allclose(wide[name], np.linspace(0, most, 31), atol=1e-12)
    for each in (rand, wide):
        np.testing.assert_allclose(each["Solarize"], np.linspace(255, 0, 31), atol=1e-12)
    assert rand["Posterize"].tolist() == [*[8] * 4, *[7] * 8, *[6] * 7, *[5] * 8, *[4] * 4]
    assert wide["Posterize"].tolist() == [8 - round(k / 5) for k in range(31)]
    pixels = np.zeros((331, 331, 1), np.uint8)
    pixels[0, 0] = 255
    for policy, moved in ((RandAugment(1, 30), 150), (TrivialAugmentWide(), 32)):
        values = policy.chosen(np.full(1, 3.5 / 14), np.full(1, 30.0), np.full(1, 0.9))[0]
        assert np.argwhere(changed(pixels, policy, values)[..., 0]).tolist() == [[0, moved]]


def test_shear_keeps_the_upper_left_corner() -> None:
    """As in torchvision, which has `center=[0, 0]`."""
    pixels = np.zeros((40, 60, 1), np.uint8)
    pixels[:, 30] = 255
    policy = RandAugment(1, 30)
    sheared = changed(pixels, policy, policy.chosen(np.full(1, 1.5 / 14), np.full(1, 30.0), np.zeros(1))[0])
    middle = (sheared[..., 0] * (np.arange(60) + 0.5)).sum(1) / sheared[..., 0].sum(1)
    np.testing.assert_allclose(middle, 30.5 + 0.3 * (np.arange(40) + 0.5), atol=0.1)


@pytest.mark.parametrize(("policy", "number"), [(RandAugment(3), 3), (TrivialAugmentWide(), 1)])
def test_operations_are_chosen_alike(policy: RandAugment | TrivialAugmentWide, number: int) -> None:
    drawn = policy.draw(uniforms(14_000, policy.lanes)).reshape(-1, number, policies.WIDTH)
    for each in range(number):
        counts = np.bincount(drawn[:, each, 0].astype(int), minlength=14)
        assert np.abs(counts - 1000).max() < 130
    rotated = drawn[drawn[..., 0] == 5]
    assert 0.4 < (rotated[:, 3] < 0).mean() < 0.6
    if number == 1:
        bits = np.bincount(drawn[drawn[..., 0] == 10][:, 1].astype(int), minlength=9)
        assert (bits[2:] > 0).all()
        assert len(np.unique(rotated[:, 1])) == 31
    else:
        assert len(np.unique(rotated[:, 1])) == 1


@with_each_library
def test_a_group_is_made_or_left_out() -> None:
    pixels, box = image(6, 8), np.array([[0, 0, 0.5, 0.25]], np.float32)
    change = RandomApply([RandomFlip(1), Invert(), lambda each, rng: each // 2], 0.3)
    rows = chain.parameters([change], uniforms(400, change.lanes))
    results = [apply(pixels, box, [change], row) for row in rows]
    made = [not np.array_equal(result, pixels) for result, _ in results]
    assert 0.2 < np.mean(made) < 0.4
    for acted, (result, boxes) in zip(made, results, strict=True):
        np.testing.assert_array_equal(result, (255 - pixels[:, ::-1]) // 2 if acted else pixels)
        np.testing.assert_array_equal(boxes, [[0, 0.75, 0.5, 1]] if acted else box)
    flipped = next(row for row, acted in zip(rows, made, strict=True) if acted)
    np.testing.assert_array_equal(apply(pixels, None, [change], flipped, mask=True)[0], pixels[:, ::-1])


@with_each_library
def test_views_have_draws_of_their_own() -> None:
    pixels = image(6, 8)
    change = Views([RandomFlip()], 3)
    values = chain.parameters([change], uniforms(30, change.lanes))
    views = np.stack([apply(pixels, None, [change], row)[0] for row in values]).reshape(30, 3, 6, 8, 3)
    flipped = (views == pixels[:, ::-1]).all((2, 3, 4))
    assert ((views == pixels).all((2, 3, 4)) ^ flipped).all()
    assert len({tuple(each) for each in flipped.tolist()}) == 8
    assert change.output_shape((None, 8, 3)) == (None, 8, 3)
    np.testing.assert_array_equal(
        apply(pixels, None, [change], values[0], mask=True)[0].reshape(views[0].shape), views[0]
    )
    with raises(ValueError, "Views", "boxes", "features=[…]"):
        apply(pixels, np.zeros((1, 4), np.float32), [change], values[0])


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
    changes = [ColorJitter(1, 1, 1, 0.5)]
    rows = chain.parameters(changes, np.concatenate([uniforms(30, 4), np.full((1, 4), ALMOST_1), np.zeros((1, 4))]))
    light = before.astype(np.int64).sum((0, 1))
    total = light[0] if channels == 1 else (19595 * light[0] + 38470 * light[1] + 7471 * light[2] + 32768) // 65536
    mean = np.floor(total / before[..., 0].size + 0.5)
    for row in rows:
        units = (row * 1024).astype(np.int64)
        maps = units[:1].reshape(1, 1) if channels == 1 else matrix(units)
        expected = np.clip((before.astype(np.int64) @ maps.T + units[1] * int(mean) + 512) >> 10, 0, 255)
        np.testing.assert_array_equal(apply(before, None, changes, row)[0], expected)


@with_each_library
def test_each_colour_does_what_it_is_called() -> None:
    before = image(8, 8)
    spread, given = {}, {"low": (0.5, 0, 0, 0), "flat": (0, 1, 0, 0), "grey": (0, 0, 1, 0), "hue": (0, 0, 0, 0.5)}
    for name, factors in given.items():
        spread[name] = apply(before, None, [ColorJitter(*factors)], drawn(ColorJitter(*factors), 0, 0, 0, 0))[0]
    np.testing.assert_array_equal(spread["low"], (before.astype(int) + 1) // 2)
    assert len(np.unique(spread["flat"])) == 1
    assert (spread["grey"] == spread["grey"][..., :1]).all()
    assert abs(spread["grey"][..., 0] - before @ LUMA).max() <= 1
    assert (spread["hue"] != before).any()


@pytest.mark.parametrize("alpha", [0.01, 0.2, 0.5, 1.0, 4.0])
def test_shares_are_of_the_beta_distribution(alpha: float) -> None:
    shares = symmetric_beta(alpha, *uniforms(40_000, 2).T)
    known = np.random.default_rng(5).beta(alpha, alpha, 40_000)
    assert ((shares >= 0) & (shares <= 1)).all()
    grid = np.linspace(0.02, 0.98, 25)
    expected, found = (np.searchsorted(np.sort(each), grid) / len(each) for each in (known, shares))
    np.testing.assert_allclose(found, expected, atol=0.015)
    edges = symmetric_beta(alpha, np.array([0, 0, ALMOST_1]), np.array([0, 0.5, 0.25]))
    np.testing.assert_allclose(edges, [1, 0, 0.5], atol=1e-6)


@with_each_library
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_mixup_adds_neighbours(dtype: str) -> None:
    batch = np.random.default_rng(0).integers(0, 256, (5, 4, 3, 3)).astype(dtype)
    numbers = uniforms(5, 2)
    share = MixUp(1.0).draw(numbers)[:, 0]
    assert (share * 1024 == np.rint(share * 1024)).all()
    own = share[:, np.newaxis, np.newaxis, np.newaxis]
    expected = own * batch + (1 - own) * np.roll(batch, -1, 0)
    expected = np.floor(expected + 0.5) if dtype == "uint8" else expected
    features, label = MixUp(1.0, num_classes=3).apply(
        {"image": batch, "age": np.arange(5)}, np.array([0, 1, 2, -1, 0]), numbers
    )
    np.testing.assert_allclose(features["image"], expected, rtol=1e-6)
    np.testing.assert_array_equal(features["age"], np.arange(5))
    ones = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]])
    np.testing.assert_allclose(
        label, share[:, np.newaxis] * ones + (1 - share[:, np.newaxis]) * np.roll(ones, -1, 0), rtol=1e-6
    )
    assert label is not None
    assert label.dtype == np.float32


def test_cutmix_shares_labels_by_pixels() -> None:
    batch = np.zeros((6, 2, 8, 10, 1), np.uint8) + np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1, 1)
    features, label = CutMix(num_classes=6).apply({"film": batch.copy()}, np.arange(6), uniforms(6, 4))
    assert label is not None
    for row, film in enumerate(features["film"]):
        assert set(np.unique(film)) <= {row, (row + 1) % 6}
        np.testing.assert_allclose(label[row, row], (film == row).mean(), rtol=1e-6)
    np.testing.assert_allclose(label.sum(1), 1, rtol=1e-6)
    window = CutMix().window([1.0, 0.5, 0.5], 8, 10)
    assert window == (0, 0, 8, 10)
    assert CutMix().window([0.5, 0.0, ALMOST_1], 8, 10) == (0, 7, 2, 3)


def test_which_features_and_labels_are_mixed() -> None:
    features = {"image": image(4, 4).reshape(1, 4, 4, 3).repeat(2, 0), "boxes": np.ones((2, 3, 4), np.float32)}
    assert MixUp().mixed({name: each.ndim for name, each in features.items()}) == ["image"]
    assert MixUp(images=("boxes",)).mixed({"image": 4, "boxes": 3}) == ["boxes"]
    ragged = {"text": Ragged(np.arange(2), np.array([0, 2, 2]))}
    unlabelled, nothing = MixUp().apply({**features, **ragged}, None, uniforms(2, 2))
    assert nothing is None
    assert unlabelled["boxes"] is features["boxes"]
    _, several = MixUp().apply(features, np.float32([[1, 0], [1, 1]]), uniforms(2, 2))
    assert several is not None
    assert several[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("mixture", "label", "facts"),
    [
        (MixUp(), np.arange(2), ("MixUp", "int64 [2]", "num_classes")),
        (MixUp(num_classes=3), np.zeros((2, 3), np.int64), ("int64 [2, 3]", "multi-hot")),
        (MixUp(num_classes=3, images=("photo",)), np.arange(2), ("['photo']", "of: image")),
        (MixUp(num_classes=3, images=("price",)), np.arange(2), ("['price']", "of: image")),
        (CutMix(num_classes=3, images=("grid",)), np.arange(2), ("['grid']", "of: image")),
        (MixUp(), np.array([b"cat", b"dog"], object), ("object [2]", "num_classes")),
        (MixUp(), Ragged(np.arange(2), np.array([0, 2, 2])), ("int64 [2]", "num_classes")),
    ],
)
def test_what_cannot_be_mixed(mixture: BatchAugmentation, label: Any, facts: tuple[str, ...]) -> None:
    text = Ragged(np.arange(2), np.array([0, 2, 2]))
    others = {"price": np.zeros(2, np.float32), "grid": np.zeros((2, 4, 3), np.float32), "text": text}
    with raises(ValueError, *facts):
        mixture.apply({"image": np.zeros((2, 4, 4, 3), np.uint8), **others}, label, uniforms(2, mixture.lanes))
