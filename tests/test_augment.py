"""Augmentation by NumPy: draws, pixels, boxes and colours; with OpenCV and without."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.augment import (
    Augmentation,
    AutoContrast,
    CenterCrop,
    ColorJitter,
    CutMix,
    Equalize,
    GaussianBlur,
    Grayscale,
    Invert,
    MixUp,
    Posterize,
    RandAugment,
    RandomAffine,
    RandomApply,
    RandomCrop,
    RandomCutout,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomRotation90,
    RandomSharpness,
    Resize,
    Solarize,
    TrivialAugmentWide,
    Views,
    apply,
)
from recordmill.transforms.images import opencv
from recordmill.transforms.images.augment import chain as augment
from recordmill.transforms.images.augment import movements
from tests.messages import raises

ALMOST_1 = 1 - 2.0**-53


@pytest.fixture(params=["cv2", "numpy"])
def _library(request: pytest.FixtureRequest) -> None:
    """Runs each test with OpenCV and without."""
    if request.param == "numpy":
        request.getfixturevalue("without_opencv")
    elif opencv.cv2 is None:
        pytest.skip("OpenCV is not installed")


with_each_library = pytest.mark.usefixtures("_library")


def grey(*rows: list[int]) -> np.ndarray:
    return np.array(rows, np.uint8)[..., np.newaxis]


def image(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def drawn(change: Augmentation, *uniforms: float) -> list[float]:
    return augment.parameters([change], np.array([uniforms]))[0].tolist()


def numbers(changes: list[Augmentation]) -> int:
    return sum(change.numbers for change in changes)


def uniforms(rows: int, lanes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((rows, lanes))


SMALL = grey([1, 2, 3], [4, 5, 6])
SQUARE = grey([1, 2], [3, 4])
RIGHT, TOP, ALL = [0, 2 / 3, 1, 1], [0, 0, 0.5, 1], [0, 0, 1, 1]  # boxes
CASES: list[tuple[Augmentation, list[float], np.ndarray, list[list[int]], list[float], list[float]]] = [
    (RandomFlip(), [1, 0], SMALL, [[3, 2, 1], [6, 5, 4]], RIGHT, [0, 0, 1, 1 / 3]),
    (RandomFlip(), [0, 1], SMALL, [[4, 5, 6], [1, 2, 3]], TOP, [0.5, 0, 1, 1]),
    (RandomFlip(), [1, 1], SMALL, [[6, 5, 4], [3, 2, 1]], RIGHT, [0, 0, 1, 1 / 3]),
    (RandomFlip(), [0, 0], SMALL, [[1, 2, 3], [4, 5, 6]], RIGHT, RIGHT),
    (RandomRotation90(), [1], SQUARE, [[2, 4], [1, 3]], TOP, [0, 0, 1, 0.5]),
    (RandomRotation90(), [2], SQUARE, [[4, 3], [2, 1]], TOP, [0.5, 0, 1, 1]),
    (RandomRotation90(), [3], SQUARE, [[3, 1], [4, 2]], TOP, [0, 0.5, 1, 1]),
    (RandomRotation90(), [1], SMALL, [[6, 5, 4], [3, 2, 1]], TOP, [0.5, 0, 1, 1]),
    (CenterCrop((2, 1)), [], SMALL, [[2], [5]], ALL, ALL),
    (CenterCrop((2, 1)), [], SMALL, [[2], [5]], RIGHT, [0, 0, 0, 0]),
    (CenterCrop((4, 1)), [], SMALL, [[0], [2], [5], [0]], ALL, [0.25, 0, 0.75, 1]),
    (RandomCrop((1, 2)), [0.9, 0.0], SMALL, [[4, 5]], ALL, ALL),
    (RandomCrop((1, 2)), [0.0, 0.9], SMALL, [[2, 3]], RIGHT, [0, 0.5, 1, 1]),
    (RandomCrop((2, 2), pad=1), [0.0, 0.0], SMALL, [[0, 0], [0, 1]], ALL, [0.5, 0.5, 1, 1]),
    (RandomCrop((1, 1), pad=4), [0.0, 0.0], SMALL, [[0]], ALL, [0, 0, 0, 0]),
    (Resize((2, 6)), [], grey([0, 9, 9]), [[0, 2, 7, 9, 9, 9]] * 2, RIGHT, RIGHT),
    (RandomResizedCrop((1, 2)), [0.4, 0.8, 0.0, 0.0], SMALL, [[1, 2]], [0, 0, 0.5, 1 / 3], [0, 0, 1, 0.5]),
    (RandomCutout(1, fill=9), [0.6, 0.1], SMALL, [[1, 2, 3], [9, 5, 6]], RIGHT, RIGHT),
    (RandomCutout((5, 2)), [0.6, 0.9], SMALL, [[1, 2, 0], [4, 5, 0]], RIGHT, RIGHT),
]


@with_each_library
@pytest.mark.parametrize(("change", "values", "before", "after", "box", "moved"), CASES)
def test_pixels_and_boxes_of_small_images(
    change: Augmentation, values: list[float], before: np.ndarray, after: list[list[int]], box: Any, moved: Any
) -> None:
    kept = before.copy()
    result, boxes = apply(before, np.array([box], np.float32), [change], values)
    np.testing.assert_array_equal(result, grey(*after))
    np.testing.assert_allclose(boxes, np.array([moved], np.float32), atol=1e-6)
    assert boxes is not None
    assert boxes.dtype == np.float32
    np.testing.assert_array_equal(before, kept)
    assert augment.output_shape([change], before.shape) == result.shape


EVERY = [
    RandomFlip(1, 0.5),
    RandomResizedCrop((7, 5)),
    RandomCrop(6, pad=2),
    RandomRotation90(1),
    ColorJitter(0.4, 0.4, 0.4, 0.1),
    RandomCutout(3, fill=7),
    CenterCrop((4, 9)),
    Resize(8),
    RandomAffine(30, 0.2, (0.8, 1.2), 10, fill=(9, 8, 7)),
    GaussianBlur(5),
    RandomRotation(45, "crop"),
    RandomErasing(1, fill="random"),
    Grayscale(),
    AutoContrast(),
    RandomSharpness(),
    Equalize(),
    Invert(),
    RandAugment(3, 20),
    Posterize(3),
    Solarize(99),
    TrivialAugmentWide(),
    RandomApply([RandomFlip(1), ColorJitter(0.4)]),
    Views([RandomFlip(), RandomCutout(2)]),
]
CHAINS = [*([each] for each in EVERY), *(EVERY[start : start + 3] for start in range(len(EVERY) - 2))]
CHAINS += [EVERY, EVERY[::-1], []]


@with_each_library
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(type(each).__name__ for each in chain))
def test_results_are_written_into_any_memory(chain: list[Augmentation], channels: int) -> None:
    for row in augment.parameters(chain, uniforms(6, augment.lanes(chain))):
        before = image(9, 9, channels)[:, 1:8]
        before.flags.writeable = False
        expected, _ = apply(before, None, chain, row)
        height, width = expected.shape[:2]
        memory = np.full((height + 1, width + 2, channels), 99, np.uint8)
        result, boxes = apply(before, None, chain, row.tolist(), memory[:height, :width])
        assert boxes is None
        assert np.shares_memory(result, memory)
        np.testing.assert_array_equal(memory[:height, :width], expected)
        assert (memory[height:] == 99).all()
        assert (memory[:, width:] == 99).all()


@with_each_library
@pytest.mark.parametrize("change", EVERY)
def test_memory_of_another_shape_is_refused(change: Augmentation) -> None:
    row = drawn(change, *[0.3] * change.lanes)
    with raises(ValueError, ", 3)", "(8, 8, 1)"):
        apply(image(5, 5), None, [change], row, np.zeros((8, 8, 1), np.uint8))


sides = st.integers(1, 40)
shares = st.floats(0, 1, exclude_max=True)


@given(sides, sides, st.lists(shares, min_size=4, max_size=4), st.integers(0, 9))
def test_windows_lie_inside_of_the_image(height: int, width: int, numbers: list[float], pad: int) -> None:
    change = RandomResizedCrop(4)
    y, x, high, wide = change.window(drawn(change, *numbers), height, width)
    assert 0 <= y <= y + high <= height
    assert 0 <= x <= x + wide <= width
    assert min(high, wide) >= 1
    y, x, high, wide = RandomCrop((3, 5), pad).window(numbers[:2], height, width)
    assert (high, wide) == (3, 5)
    room = max(height + 2 * pad - 3, 0)
    assert y in range(-pad - 3, height + pad) if room == 0 else -pad <= y <= height + pad - 3
    y, x, high, wide = RandomCutout((3, 5)).window(numbers[:2], height, width)
    assert 0 <= y <= y + high <= height
    assert 0 <= x <= x + wide <= width


@pytest.mark.parametrize("side", [*range(1, 70), 127, 128, 1000, 16_384])
def test_the_largest_draw_stays_inside(side: int) -> None:
    assert RandomCrop(1).window([ALMOST_1, ALMOST_1], side, side)[:2] == (side - 1, side - 1)
    change = RandomResizedCrop(4)
    window = change.window(drawn(change, 0, 0.5, ALMOST_1, ALMOST_1), side, side)
    assert window.y + window.height == side
    assert change.window(drawn(change, ALMOST_1, 0.5, 0, 0), side, side) == (0, 0, side, side)
    assert drawn(RandomRotation90(1.0), 0, ALMOST_1) == [3]


def rectangle(rng: np.random.Generator, least: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws a white rectangle on black, which shows where its box lies."""
    height, width = rng.integers(least, most, 2)
    (top, bottom), (left, right) = (np.sort(rng.choice(side + 1, 2, replace=False)) for side in (height, width))
    pixels = np.zeros((height, width, 1), np.uint8)
    pixels[top:bottom, left:right] = 255
    return pixels, np.array([[top / height, left / width, bottom / height, right / width]], np.float32)


@given(st.integers(0, 2**32), st.sampled_from(CHAINS[:-1]))
def test_boxes_lie_where_their_pixels_do(seed: int, chain: list[Augmentation]) -> None:
    """Scaling, colours and cutouts are excluded."""
    moving = [change for change in chain if isinstance(change, RandomFlip | RandomCrop | RandomRotation90 | CenterCrop)]
    rng = np.random.default_rng(seed)
    before, box = rectangle(rng, 3, 12)
    after, boxes = apply(before, box, moving, augment.parameters(moving, rng.random((1, augment.lanes(moving))))[0])
    assert boxes is not None
    places = np.argwhere(after[..., 0])
    found = np.concatenate([places.min(0), places.max(0) + 1]) if len(places) else np.zeros(4)
    np.testing.assert_allclose(boxes[0], found / np.tile(after.shape[:2], 2), atol=1e-6)


def test_boxes_keep_their_places_and_are_cut() -> None:
    boxes = np.array([[0, 0, 0.2, 0.2], [0.4, 0.4, 0.6, 2.0], [0, 0, 0, 0], [0.3, 0.3, 0.3, 0.9]], np.float32)
    _, moved = apply(image(10, 10), boxes, [CenterCrop(5)], [])
    third = np.float32([0, 0, 0, 0])
    np.testing.assert_allclose(moved, [third, [0.4, 0.4, 0.8, 1], third, third], atol=1e-6)
    turned = [CenterCrop(5), RandomRotation((30, 30))]
    numbers_of = augment.parameters(turned, np.zeros((1, 1)))[0]
    _, lost = apply(image(10, 10), np.array([[0.4, 0, 0.6, 0.1]], np.float32), turned, numbers_of)
    assert lost is not None
    assert not lost.any(), "no line at the edge, which a turn would widen"
    for chain in ([CenterCrop(5)], [], [RandomFlip()]):
        _, none = apply(image(10, 10), np.zeros((0, 4), np.float32), chain, [1.0, 0.0][: numbers(chain)])
        assert none is not None
        assert (none.shape, none.dtype) == ((0, 4), np.float32)


def exactly_scaled(before: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Interpolates between half-pixel centres by definition, in float64, without rounding."""
    for axis, side in enumerate(size):
        centres = np.clip((np.arange(side) + 0.5) * before.shape[axis] / side - 0.5, 0, before.shape[axis] - 1)
        first = np.floor(centres).astype(int)
        second = np.minimum(first + 1, before.shape[axis] - 1)
        share = np.expand_dims(centres - first, [each for each in range(3) if each != axis])
        before = before.take(first, axis) * (1 - share) + before.take(second, axis) * share
    return before


SIZES = [(1, 1), (1, 9), (9, 1), (7, 7), (13, 22), (64, 48)]


@with_each_library
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("before", SIZES)
def test_scaling_is_bilinear(before: tuple[int, int], size: tuple[int, int], channels: int) -> None:
    source = image(*before, channels)
    result = movements.resize(source, size)
    assert result.shape == (*size, channels)
    assert np.abs(result - exactly_scaled(source, size)).max() <= 1


def test_a_mask_moves_and_keeps_its_values() -> None:
    chain = [RandomResizedCrop(20), RandomFlip(1), RandomRotation90(1), RandomCutout(9), ColorJitter(0.5), Resize(33)]
    mask = np.random.default_rng(1).choice(np.array([3, 200], np.uint8), (40, 30, 1))
    values = augment.parameters(chain, uniforms(20, augment.lanes(chain)))
    for row in values:
        result, _ = apply(mask, None, chain, row, mask=True)
        assert set(np.unique(result)) <= {3, 200}
    first = apply(mask, None, [RandomFlip()], [1.0, 0.0], mask=True)[0]
    np.testing.assert_array_equal(first, mask[:, ::-1])
    np.testing.assert_array_equal(movements.nearest(grey([1, 2, 3]), (2, 6)), grey(*[[1, 1, 2, 2, 3, 3]] * 2))
    np.testing.assert_array_equal(movements.nearest(grey([1, 2, 3, 4, 5]), (1, 3)), grey([1, 3, 5]))


def noisy(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    pixels[0] = 0
    return pixels ^ rng.integers(0, 256, pixels.shape, np.uint8)


def test_a_function_of_the_users_has_a_generator_of_its_own() -> None:
    chain = augment.check([noisy, RandomFlip()])
    rows = augment.parameters(chain, uniforms(2, augment.lanes(chain)))
    before = image(5, 4)
    kept = before.copy()
    first, again, other = (apply(before, None, chain, row, np.empty_like(before))[0] for row in rows[[0, 0, 1]])
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(before, kept)


@pytest.mark.parametrize(
    ("function", "facts"),
    [
        (lambda pixels, rng: pixels[:1], ("<lambda>", "uint8 [1, 4, 3]", "uint8 [5, 4, 3]")),
        (lambda pixels, rng: pixels / 255, ("float64 [5, 4, 3]",)),
        (lambda pixels, rng: None, ("None", "uint8 [5, 4, 3]")),
    ],
)
def test_a_function_that_gives_something_else_is_refused(function: Any, facts: tuple[str, ...]) -> None:
    with raises(ValueError, *facts):
        apply(image(5, 4), None, augment.check([function]), [1, 2])


WRONG: list[tuple[Any, tuple[str, ...]]] = [
    (lambda: RandomFlip(1.5), ("RandomFlip(horizontal=1.5, vertical=0.0)", "horizontal", "0 to 1")),
    (lambda: RandomFlip(vertical=-0.1), ("): vertical", "-0.1;")),
    (lambda: RandomResizedCrop(0), ("RandomResizedCrop(size=0, ", "pixels", "224", "(192, 256)")),
    (lambda: RandomResizedCrop(8, area=(0.5, 0.4)), ("): area", "(0.08, 1)")),
    (lambda: RandomResizedCrop(8, aspect=(1, float("inf"))), ("): aspect", "(0.75, 1.33)")),
    (lambda: RandomResizedCrop(8, area=0.5), ("): area", "0.5;", "two numbers", "(0.08, 1)")),  # type: ignore[arg-type]
    (lambda: Resize((224, 0)), ("Resize(size=(224, 0))", "pixels", "(192, 256)")),
    (lambda: CenterCrop((1, 2, 3)), ("CenterCrop(size=(1, 2, 3))", "pixels")),  # type: ignore[arg-type]
    (lambda: RandomCrop(8, pad=-1), ("): pad", "pixels")),
    (lambda: ColorJitter(hue=0.6), ("): hue", "0.6;", "0 to 0.5")),
    (lambda: RandomCutout(8, fill=256), ("): fill", "256;", "0 to 255", "red, green, blue")),
    (lambda: RandomErasing(fill="noise"), ("): fill", "'noise';", "0 to 255")),  # type: ignore[arg-type]
    (lambda: RandomRotation(181), ("): degrees", "181;", "0 to 180", "-180 to 180")),
    (lambda: RandomRotation((20, 10)), ("): degrees", "(20, 10);", "0 to 180")),
    (lambda: RandomRotation("9"), ("): degrees", "'9';", "two numbers", "(-10, 10)", "10")),  # type: ignore[arg-type]
    (lambda: RandomAffine(10, scale=1.2), ("): scale", "1.2;", "two numbers", "(0.9, 1.1)")),  # type: ignore[arg-type]
    (lambda: RandomAffine(translate=(0.1, 0.2, 0.3)), ("): translate", "(0.1, 0.2, 0.3);", "two numbers")),  # type: ignore[arg-type]
    (lambda: RandomAffine(shear=("a", 1)), ("): shear", "('a', 1);", "two numbers")),  # type: ignore[arg-type]
    (lambda: RandomRotation(9, "cut"), ("): corners", "'cut';", "'fill' or 'crop'")),  # type: ignore[arg-type]
    (lambda: RandomRotation(9, fill=(1, 2, 256)), ("): fill", "(1, 2, 256);", "0 to 255")),
    (lambda: RandomAffine(shear=46), ("): shear", "46;", "0 to 45")),
    (lambda: RandomAffine(translate=(0, 2)), ("): translate", "(0, 2);", "0 to 1")),
    (lambda: RandomAffine(scale=(0.01, 1)), ("): scale", "0.1 to 10")),
    (lambda: GaussianBlur(4), ("): kernel", "4;", "odd", "1 to 99")),
    (lambda: GaussianBlur(5, (0, 1)), ("): sigma", "(0.1, 2.0)")),
    (lambda: RandomSharpness(1.5), ("): factor", "1.5;", "two numbers", "(0.5, 1.5)")),  # type: ignore[arg-type]
    (lambda: Posterize(0), ("): bits", "0;", "1 to 8")),
    (lambda: Solarize(257), ("): threshold", "257;", "0 to 256")),
    (lambda: RandAugment(0), ("): num_ops", "0;", "2")),
    (lambda: RandAugment(magnitude=31), ("): magnitude", "31;", "0 to 30")),
    (lambda: TrivialAugmentWide(1), ("): bins", "1;", "2 or more")),
    (lambda: RandomApply([Resize(4)]), ("RandomApply", "Resize(size=4)", "size")),
    (lambda: RandomApply([], 2), ("): p", "2;", "0 to 1")),
    (lambda: Views([], 0), ("): count", "0;", "2")),
    (lambda: MixUp(0), ("): alpha", "0;", "positive")),
    (lambda: CutMix(num_classes=0), ("): num_classes", "0;")),
    (lambda: augment.check(RandomFlip()), ("augment", "RandomFlip(horizontal", "list")),  # type: ignore[arg-type]
    (lambda: augment.check([RandomFlip]), ("class RandomFlip", "RandomFlip(...)")),
    (lambda: augment.check([0.5]), ("augment", "0.5;", "RandomFlip()", "(pixels, rng)")),
    (lambda: augment.parameters([RandomFlip()], np.zeros((2, 3))), ("(2, 3)", "[rows, 2]")),
]


@pytest.mark.parametrize(("make", "facts"), WRONG)
def test_wrong_options_are_refused(make: Any, facts: tuple[str, ...]) -> None:
    with raises(ValueError, *facts):
        make()


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (GaussianBlur(5, 1.5), GaussianBlur(5, (1.5, 1.5))),
        (RandomRotation([-10, 20]), RandomRotation((-10, 20))),  # type: ignore[arg-type]
        (RandomAffine(10, translate=[0.1, 0.2]), RandomAffine(10, translate=(0.1, 0.2))),  # type: ignore[arg-type]
        (RandomAffine(np.float32(10), scale=[0.5, 2]), RandomAffine(10.0, scale=(0.5, 2))),  # type: ignore[arg-type]
    ],
)
def test_a_list_is_a_pair_and_one_number_a_range(given: Augmentation, same: Augmentation) -> None:
    row = uniforms(8, given.lanes)
    np.testing.assert_array_equal(given.draw(row), same.draw(row))


OPTIONS = [
    (RandomFlip(0), RandomFlip(1)),
    (RandomFlip(), RandomFlip(vertical=1)),
    (RandomRotation90(0), RandomRotation90()),
    (RandomResizedCrop(9), RandomResizedCrop((9, 8))),
    (RandomResizedCrop(9), RandomResizedCrop(9, area=(0.9, 1))),
    (RandomResizedCrop(9), RandomResizedCrop(9, aspect=(1, 1))),
    (RandomCrop(9), RandomCrop((8, 9))),
    *((RandomCrop(9), RandomCrop(9, pad=pad)) for pad in (3, np.int64(3))),
    (CenterCrop(9), CenterCrop((9, 10))),
    (Resize(9), Resize((9, 10))),
    (RandomCutout(4), RandomCutout((4, 5))),
    (RandomCutout(4), RandomCutout(4, fill=77)),
    (RandomErasing(1), RandomErasing(0)),
    (RandomErasing(1), RandomErasing(1, area=(0.5, 0.5))),
    (RandomErasing(1), RandomErasing(1, aspect=(1, 1))),
    (RandomErasing(1), RandomErasing(1, fill=(1, 2, 3))),
    (RandomErasing(1), RandomErasing(1, fill="random")),
    (RandomRotation(30), RandomRotation((20, 30))),
    (RandomRotation(30), RandomRotation(30, "crop")),
    (RandomRotation(30), RandomRotation(30, fill=9)),
    *((RandomAffine(), RandomAffine(**{name: 0.4})) for name in ("translate", "shear")),
    (RandomAffine(), RandomAffine(40)),
    (RandomAffine(), RandomAffine(scale=(0.5, 0.6))),
    (RandomAffine(40), RandomAffine(40, fill=9)),
    (GaussianBlur(3), GaussianBlur(5)),
    (GaussianBlur(3), GaussianBlur(3, (2, 4))),
    (RandomSharpness(), RandomSharpness((1, 1))),
    (Posterize(1), Posterize(2)),
    (Solarize(), Solarize(99)),
    (RandAugment(), RandAugment(1)),
    (RandAugment(), RandAugment(magnitude=30)),
    (RandAugment(), RandAugment(bins=11)),
    (RandAugment(), RandAugment(fill=9)),
    (TrivialAugmentWide(), TrivialAugmentWide(5)),
    (TrivialAugmentWide(), TrivialAugmentWide(fill=9)),
    (RandomApply([Invert()], 0), RandomApply([Invert()], 1)),
    (RandomApply([Invert()], 1), RandomApply([Invert(), Solarize(9)], 1)),
    (Views([RandomFlip()], 1), Views([RandomFlip(0)], 1)),
    *((ColorJitter(), ColorJitter(**{name: 0.4})) for name in ("brightness", "contrast", "saturation", "hue")),
]


@pytest.mark.parametrize(("one", "other"), OPTIONS)
def test_every_option_changes_the_result(one: Augmentation, other: Augmentation) -> None:
    before, draws = image(20, 20), uniforms(50, max(one.lanes, other.lanes))
    results = [
        [apply(before, None, [change], row)[0] for row in augment.parameters([change], draws[:, : change.lanes])]
        for change in (one, other)
    ]
    assert any(first.tobytes() != second.tobytes() for first, second in zip(*results, strict=True))


def test_a_rows_parameters_do_not_depend_on_its_batch() -> None:
    draws = uniforms(50, augment.lanes(EVERY))
    together = augment.parameters(EVERY, draws)
    assert together.shape == (50, numbers(EVERY))
    alone = [augment.parameters(EVERY, row[np.newaxis])[0] for row in draws]
    np.testing.assert_array_equal(together, alone)
    assert augment.parameters(EVERY, draws[:0]).shape == (0, numbers(EVERY))
    assert augment.parameters([], np.zeros((3, 0))).shape == (3, 0)


def test_draws_are_spread_as_they_say() -> None:
    rows = 20_000
    flips = RandomFlip(0.3, 0.6).draw(uniforms(rows, 2))
    np.testing.assert_allclose(flips.mean(0), [0.3, 0.6], atol=0.02)
    turns = RandomRotation90(0.6).draw(uniforms(rows, 2))[:, 0]
    np.testing.assert_allclose(np.bincount(turns.astype(int)) / rows, [0.4, 0.2, 0.2, 0.2], atol=0.02)
    high, wide = RandomResizedCrop(8).draw(uniforms(rows, 4))[:, :2].T
    np.testing.assert_allclose(np.quantile(high * wide, [0, 0.5, 1]), [0.08, 0.54, 1], atol=0.02)
    np.testing.assert_allclose(np.quantile(wide / high, [0, 0.5, 1]), [0.75, 1, 4 / 3], atol=0.02)
    factor = ColorJitter(brightness=0.2).draw(uniforms(rows, 4))[:, 0]
    np.testing.assert_allclose(np.quantile(factor, [0, 0.5, 1]), [0.8, 1, 1.2], atol=0.01)


@dataclass(frozen=True)
class Negative(Augmentation):
    """A complete augmentation in one class."""

    lanes: ClassVar[int] = 1
    numbers: ClassVar[int] = 1
    p: float = 0.5

    def draw(self, uniforms: np.ndarray) -> np.ndarray:
        return (uniforms < self.p).astype(np.float64)

    def acts(self, values: Any) -> bool:
        return values[0] > 0

    def apply(self, pixels: np.ndarray, values: Any, out: np.ndarray | None = None) -> np.ndarray:
        return np.subtract(255, pixels, out=out)


def test_a_class_of_the_users_is_an_augmentation() -> None:
    chain, before = augment.check([Negative(), RandomFlip(1)]), image(4, 5)
    values = augment.parameters(chain, np.array([[0.4, 0, 1], [0.6, 0, 1]]))
    changed, kept = (apply(before, np.array([RIGHT], np.float32), chain, row) for row in values)
    np.testing.assert_array_equal(changed[0], 255 - before[:, ::-1])
    np.testing.assert_array_equal(kept[0], before[:, ::-1])
    np.testing.assert_array_equal(changed[1], kept[1])
    np.testing.assert_array_equal(apply(before, None, chain, values[0], mask=True)[0], before[:, ::-1])
