"""Key points: moved with their image by the build and by every augmentation, against references in plain Python."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture
from pydantic import ValidationError

from recordmill import augment, open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.inspection import shown
from recordmill.pipeline.sources.faults import Faults
from recordmill.pipeline.sources.typing.checks import check_column
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Decoding
from recordmill.transforms.base.kinds import read_description
from recordmill.transforms.base.stored import FinishOptions, Ragged, RowError
from recordmill.transforms.engines.numpy_features import finish
from recordmill.transforms.images import places_graph as places
from recordmill.transforms.images.augment import chain
from recordmill.transforms.images.augment.base import MovedKeypoints
from recordmill.transforms.images.image_spec import Image
from recordmill.transforms.images.places_spec import Keypoints
from tests.messages import assert_names, raises
from tests.running import BOTH_WAYS, Run, assert_same_bits

FACE = {"points": ("nose", "left", "right"), "flip_pairs": (("left", "right"),), "skeleton": (("nose", "left"),)}
Place = tuple[float, float]


def feature(**keys: Any) -> Keypoints:
    return Keypoints(kind="keypoints", **{"image": "image", "unit": "absolute", **FACE, **keys})


def image_feature(**keys: Any) -> Any:
    return Image(kind="image", **keys).pixel_options


def stored(options: Keypoints, of: Any, objects: Any, source: tuple[int, int, int]) -> np.ndarray:
    """Returns what the graph stores of objects, [objects, points, 3], all of images of one source."""
    given = np.reshape(np.float32(objects), (-1, options.count * options.numbers))
    moved = places.moved_keypoints(options, of, tf.constant(given), tf.constant([source] * len(given), tf.int64))
    return moved.numpy().reshape(len(given), options.count, 3)


def upright(x: float, y: float, sides: tuple[int, int], turn: int) -> Place:
    """Turns a point of a file, by EXIF's table of orientations; `sides` are the file's height and width."""
    height, width = sides
    table = {
        1: (x, y), 2: (width - x, y), 3: (width - x, height - y), 4: (x, height - y),
        5: (y, x), 6: (height - y, x), 7: (height - y, width - x), 8: (y, width - x),
    }  # fmt: skip
    return table[turn]


def in_result(x: float, y: float, sides: tuple[int, int], size: tuple[int, int], fit: str | None) -> Place | None:
    """Returns a point's y and x in the result, 0 to 1; None if it is not there."""
    (height, width), (high, wide) = sides, size
    if not (0 <= x <= width and 0 <= y <= height):
        return None
    if fit == "pad":
        scale = min(high / height, wide / width)
        tall, broad = (
            min(size, max(1, math.floor(side * scale + 0.5))) for side, size in zip(sides, size, strict=True)
        )
        return (y / height * tall + (high - tall) // 2) / high, (x / width * broad + (wide - broad) // 2) / wide
    if fit == "crop":
        tall = min(height, max(1, math.floor(width * high / wide + 0.5)))
        broad = min(width, max(1, math.floor(height * wide / high + 0.5)))
        place = (y - (height - tall) // 2) / tall, (x - (width - broad) // 2) / broad
        return place if all(0 <= each <= 1 for each in place) else None
    return y / height, x / width


FITS: list[dict[str, Any]] = [{"size": (48, 64), "fit": fit} for fit in ("stretch", "pad", "crop")]
FITS += [{"size": (64, 24), "fit": "pad"}, {"size": (64, 24), "fit": "crop"}, {"shorter_side": 17}, {"fit": "none"}]


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 400), st.integers(1, 400)), st.integers(1, 8), st.sampled_from(FITS), st.booleans(),
    st.booleans(), st.lists(st.floats(-0.25, 1.25, width=32), min_size=6, max_size=6),
)  # fmt: skip
def test_a_point_is_stored_where_the_build_puts_its_pixel(
    sides: tuple[int, int], turn: int, fit: dict[str, Any], in_file: bool, is_relative: bool, shares: list[float]
) -> None:
    turned = sides[::-1] if turn >= 5 else sides  # upright
    of = sides if in_file else turned
    scale = (1, 1) if is_relative else of[::-1]
    given = np.float32([[x * scale[0], y * scale[1], 1 + number % 2] for number, (x, y) in enumerate(_pairs(shares))])
    options = feature(oriented="file" if in_file else "upright", unit="relative" if is_relative else "absolute")
    got = stored(options, image_feature(**fit), given, (*turned, turn))[0]
    for (x, y, visibility), point in zip(given.astype(float).tolist(), got.tolist(), strict=True):
        x, y = (x * of[1], y * of[0]) if is_relative else (x, y)
        x, y = upright(x, y, of, turn) if in_file else (x, y)
        place = in_result(x, y, turned, fit.get("size", turned), fit.get("fit"))
        expected = (*place, visibility) if place else (0, 0, 0)
        if all(min(abs(each), abs(1 - each)) > 1e-6 for each in place or ()):  # on an edge, a float decides
            assert point == pytest.approx(expected, abs=1e-4 / 400)


def _pairs(values: list[float]) -> list[Place]:
    return list(zip(values[::2], values[1::2], strict=True))


NAN = float("nan")


@pytest.mark.parametrize(
    ("numbers", "fit", "given", "expected"),
    [
        (3, "stretch", [20, 10, 2], [0.1, 0.1, 2]),
        (3, "stretch", [20, 10, 1], [0.1, 0.1, 1]),
        (3, "stretch", [20, 10, 0], [0, 0, 0]),
        (2, "stretch", [20, 10], [0.1, 0.1, 2]),
        (2, "stretch", [NAN, 10], [0, 0, 0]),
        (3, "stretch", [20, 10, NAN], [0, 0, 0]),
        (3, "stretch", [200, 100, 2], [1, 1, 2]),  # the outer edge is inside
        (3, "stretch", [200.1, 100, 2], [0, 0, 0]),
        (3, "pad", [-1, 50, 2], [0, 0, 0]),  # in the margin
        (3, "pad", [0, 0, 2], [0.24, 0, 2]),
        (3, "crop", [50, 0, 2], [0, 0, 2]),  # visible at the corner
        (3, "crop", [49, 0, 2], [0, 0, 0]),
        (3, "stretch", [float("inf"), 0, 2], [0, 0, 0]),
    ],
)
def test_a_point_by_hand(numbers: int, fit: str, given: list[float], expected: list[float]) -> None:
    options = feature(points=1, flip_pairs=(), skeleton=(), numbers=numbers)
    got = stored(options, image_feature(size=(50, 50), fit=fit), given, (100, 200, 1))
    np.testing.assert_array_equal(got, np.float32([[expected]]))


@BOTH_WAYS
def test_points_have_the_same_bits_in_any_batch(run: Run) -> None:
    random = np.random.default_rng(0)
    given = random.uniform(-200, 900, (37, 9)).astype(np.float32)
    given[:, 2::3] = random.integers(0, 3, (37, 3))
    sources = np.stack([random.integers(0, 900, 37), random.integers(1, 900, 37), random.integers(1, 9, 37)], 1)
    options, of = feature(oriented="file"), image_feature(size=(33, 57))

    def moved(both: Any) -> Any:
        return places.moved_keypoints(options, of, both[:, :9], tf.cast(both[:, 9:], tf.int64))

    assert_same_bits(run, moved, np.concatenate([given, sources], 1).astype(np.float64))


def test_another_number_of_numbers_names_its_row() -> None:
    with raises(RowError, "'x'", "10", "9") as error:
        finish({"x": feature().describe({})}, {"x": Ragged(np.zeros(19), np.array([0, 9, 19]))}, FinishOptions())
    assert error.value.row == 1


# Augmentations: each class's own map of one point, in pixels, from its documentation and the random numbers.

Move = Callable[[float, float, int, int], tuple[float, float, int, int]]


def rounded(value: float) -> int:
    return math.floor(value + 0.5)


def crop(left: float, top: float, across: float, down: float, size: tuple[int, int]) -> Move:
    return lambda x, y, h, w: ((x - left) * size[1] / across, (y - top) * size[0] / down, *size)


def resized_crop(size: tuple[int, int], draws: list[float], h: int, w: int) -> Move:
    share, ratio = 0.08 + 0.92 * draws[0], math.exp(math.log(3 / 4) + math.log(16 / 9) * draws[1])
    tall = min(max(rounded(math.sqrt(share * h * w / ratio)), 1), h)
    broad = min(max(rounded(math.sqrt(share * h * w * ratio)), 1), w)
    return crop(math.floor(draws[3] * (w - broad + 1)), math.floor(draws[2] * (h - tall + 1)), broad, tall, size)


def random_crop(side: int, pad: int, draws: list[float], h: int, w: int) -> Move:
    canvas = [max(each + 2 * pad, side) for each in (h, w)]
    top, left = (
        math.floor(draw * (whole - side + 1)) - (whole - each) // 2
        for draw, whole, each in zip(draws, canvas, (h, w), strict=True)
    )
    return crop(left, top, side, side, (side, side))


def linear(matrix: Any, right: int = 0, down: int = 0, center: float = 0.5) -> Move:
    """Maps about the centre, y down, and shifts."""

    def move(x: float, y: float, h: int, w: int) -> tuple[float, float, int, int]:
        across, along = np.array(matrix, np.float64) @ [x - center * w, y - center * h]
        return across + center * w + right, along + center * h + down, h, w

    return move


def turn(degrees: float) -> Any:
    """Turns counterclockwise, where y runs down."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[c, s], [-s, c]])


def affine(draws: list[float], h: int, w: int) -> Move:
    """RandomAffine(30, 0.2, (0.8, 1.2), 10): shears, turns, scales, shifts by whole pixels."""
    shear = np.array([[1, math.tan(math.radians(-10 + 20 * draws[4]))], [0, 1]])
    right, down = ((2 * draw - 1) * 0.2 * side for draw, side in ((draws[2], w), (draws[1], h)))
    grown = (0.8 + 0.4 * draws[3]) * turn(-30 + 60 * draws[0]) @ shear
    return linear(grown, math.trunc(right), math.trunc(down))


def enlarged_turn(draws: list[float], h: int, w: int) -> Move:
    angle = math.radians(-45 + 90 * draws[0])
    growth = abs(math.cos(angle)) + abs(math.sin(angle)) * max(h / w, w / h)
    return linear(growth * turn(math.degrees(angle)))


def wide_operation(draws: list[float], h: int, w: int) -> Move:
    """TrivialAugmentWide: shears by 0.99, shifts by 32 pixels, turns by 135 degrees at most; others stay."""
    operation = math.floor(draws[0] * 14)
    strength = math.floor(draws[1] * 31) / 30 * (-1 if draws[2] < 0.5 else 1)
    shift = math.trunc(32 * strength)
    return {
        1: linear([[1, -0.99 * strength], [0, 1]], center=0), 2: linear([[1, 0], [-0.99 * strength, 1]], center=0),
        3: linear(np.eye(2), right=shift), 4: linear(np.eye(2), down=shift), 5: linear(turn(135 * strength)),
    }.get(operation, linear(np.eye(2)))  # fmt: skip


def quarters(draws: list[float], h: int, w: int) -> Move:
    count = (1 + math.floor(draws[1] * 3) if h == w else 2) if draws[0] < 0.75 else 0
    return linear(np.round(turn(90 * count)))


def flip(draws: list[float], h: int, w: int) -> Move:
    return linear([[-1 if draws[0] < 0.5 else 1, 0], [0, -1 if draws[1] < 0.5 else 1]])


CASES: list[tuple[augment.Augmentation, Callable[[list[float], int, int], Move]]] = [
    (augment.RandomResizedCrop((70, 50)), lambda draws, h, w: resized_crop((70, 50), draws, h, w)),
    (augment.RandomCrop(60, pad=9), lambda draws, h, w: random_crop(60, 9, draws, h, w)),
    (augment.CenterCrop((40, 90)), lambda draws, h, w: crop((w - 90) // 2, (h - 40) // 2, 90, 40, (40, 90))),
    (augment.Resize((33, 77)), lambda draws, h, w: crop(0, 0, w, h, (33, 77))),
    (augment.RandomFlip(0.5, 0.5), flip),
    (augment.RandomRotation90(), quarters),
    (augment.RandomRotation((-180, 90)), lambda draws, h, w: linear(turn(-180 + 270 * draws[0]))),
    (augment.RandomRotation(45, "crop"), enlarged_turn),
    (augment.RandomAffine(30, 0.2, (0.8, 1.2), 10), affine),
    (augment.TrivialAugmentWide(), wide_operation),
    (
        augment.RandomApply([augment.RandomFlip(0.5, 0.5)], 0.7),
        lambda draws, h, w: flip(draws[1:], h, w) if draws[0] < 0.7 else linear(np.eye(2)),
    ),
    (augment.ColorJitter(0.4), lambda draws, h, w: linear(np.eye(2))),
]


def augmented(changes: list[augment.Augmentation], draws: Any, points: Any, sides: tuple[int, int]) -> tuple[Any, Any]:
    """Returns the pixels of a mask, white around the visible points, and the points."""
    numbers = chain.parameters(changes, np.array([draws], np.float64).reshape(1, -1))[0].tolist()
    kept, mask = np.array(points, np.float32), np.zeros((*sides, 1), np.uint8)
    for y, x in kept[kept[..., 2] > 0][:, :2]:
        row, column = int(y * sides[0]), int(x * sides[1])
        mask[max(0, row - 2) : row + 3, max(0, column - 2) : column + 3] = 255
    lying = [MovedKeypoints(kept, [0, 2, 1])]
    return chain.apply_acting(mask, lying, chain.acting(changes, numbers), None, mask=True), kept


def test_every_movement_has_a_reference() -> None:
    def below(kind: type) -> set[type]:
        return {kind, *(inner for each in kind.__subclasses__() for inner in below(each))}

    moves = {
        kind for kind in below(augment.Augmentation) if kind.__module__.endswith((".movements", ".affine", ".policies"))
    }
    concrete = {kind for kind in moves if not getattr(kind, "__abstractmethods__", None)}
    assert concrete - {type(change) for change, _ in CASES} == {augment.RandAugment}  # of TrivialAugmentWide's moves


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(CASES))
def test_points_move_as_documented(
    seed: int, case: tuple[augment.Augmentation, Callable[[list[float], int, int], Move]]
) -> None:
    change, reference = case
    rng = np.random.default_rng(seed)
    h, w = rng.integers(30, 120, 2).tolist()
    sides = (h, h) if seed % 3 == 0 else (h, w)
    draws, points = rng.random(change.lanes).tolist(), np.float32(rng.random((4, 3, 3)))
    points[..., 2] = rng.integers(0, 3, (4, 3))
    _, got = augmented([change], draws, points, sides)
    mirrored = isinstance(change, augment.RandomFlip | augment.RandomApply) and _mirrors(change, draws)
    for before, after in zip(points, got[:, [0, 2, 1]] if mirrored else got, strict=True):
        for (y, x, visibility), point in zip(before.tolist(), after.tolist(), strict=True):
            right, down, high, wide = reference(draws, *sides)(x * sides[1], y * sides[0], *sides)
            edge = min(right, wide - right, down, high - down)
            if visibility and edge > 1e-3:
                assert np.multiply(point[:2], (high, wide)) == pytest.approx([down, right], abs=1e-4)
                assert point[2] == visibility
            elif not visibility or edge < -1e-3:
                assert point == [0, 0, 0]


def _mirrors(change: augment.Augmentation, draws: list[float]) -> bool:
    if isinstance(change, augment.RandomApply):
        return draws[0] < 0.7 and (draws[1] < 0.5) != (draws[2] < 0.5)
    return (draws[0] < 0.5) != (draws[1] < 0.5)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32), st.lists(st.sampled_from([case[0] for case in CASES] + [augment.RandAugment()]), max_size=3)
)
def test_points_lie_where_their_pixels_do(seed: int, changes: list[augment.Augmentation]) -> None:
    """Any visible point has white pixels near."""
    rng = np.random.default_rng(seed)
    sides = rng.integers(30, 60, 2).tolist()
    places = (rng.integers(0, sides, (2, 3, 2)) + 0.5) / sides
    points = np.concatenate([places, np.full((2, 3, 1), 2)], 2)
    pixels, got = augmented(changes, rng.random(chain.lanes(changes)), points, tuple(sides))
    for y, x in (got[got[..., 2] > 0][:, :2] * pixels.shape[:2]).astype(int):
        assert pixels[max(0, y - 2) : y + 3, max(0, x - 2) : x + 3].any()


def test_a_point_that_left_does_not_come_back() -> None:
    points = np.float32([[[0.1, 0.5, 2], [0.5, 0.5, 1], [0.5, 0.5, 0]]])
    _, got = augmented([augment.CenterCrop(4), augment.RandomCrop(10, pad=3)], [0.5, 0.5], points, (10, 10))
    assert got.tolist() == [[[0, 0, 0], [0.5, 0.5, 1], [0, 0, 0]]]


DETECTION = """
name: faces
source: {format: jsonl, path: SOURCE}
key: image
splits: {train: 1}
features:
  image: {kind: image, size: [40, 40], fit: stretch, store: png, normalize: none}
  face:
    {kind: keypoints, image: image, points: [nose, left, right], flip_pairs: [[left, right]], skeleton: [[nose, left]],
     unit: absolute, max_length: 2}
"""


@pytest.mark.slow
def test_a_mixture_leaves_points_and_views_are_refused(tmp_path: Path) -> None:
    Picture.new("RGB", (40, 20)).save(tmp_path / "a.png")
    rows = [{"image": "a.png", "face": [[x, 5, 2, 20, 9, 1, 3, 3, 2]]} for x in (4, 30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "dataset.yaml").write_text(DETECTION.replace("SOURCE", ".").replace("key: image\n", ""))
    build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out"))
    dataset = open_dataset(tmp_path / "out")
    with raises(DatasetError, "Views", "key points", "features=[…]"):
        dataset.training_input("train", batch_size=2, augment=[augment.Views([augment.RandomFlip()])])
    with raises(DatasetError, "MixUp", "'face'", "'image'", "label=None"):
        dataset.training_input("train", batch_size=2, augment=[augment.MixUp()], label="face")
    plain, mixed = (
        next(iter(dataset.training_input("train", batch_size=2, seed=3, augment=changes).as_numpy()))
        for changes in ([], [augment.MixUp()])
    )
    np.testing.assert_array_equal(mixed["face"], plain["face"])  # they stay, as boxes do


def test_bad_numbers_are_faults_of_the_column() -> None:
    given = [[1, 2, 2] * 3, [1, 2, 3] * 3, [1, 2, 2] * 2, [1, 2, 0.5] * 3, [1, 2, -1] * 3, [1, 2, None] * 3, [1e39] * 9]
    faults: Faults = {}
    column = feature().raw_column()
    check_column("face", column, pa.array(given, pa.list_(pa.float64())), faults)
    assert {row: fault.reason for row, fault in faults.items()} == {
        **dict.fromkeys((1, 2, 3, 4, 6), "wrong_type"), 5: "missing_value"
    }  # fmt: skip
    for row in (1, 3, 4):
        assert_names(faults[row].message, "0, 1", "2", "third")
    assert_names(faults[2].message, 9)


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ({"flip_pairs": [["left", "rihgt"]]}, ("'rihgt'", "`right`", "`points`")),
        ({"skeleton": [["nose", "ear"]]}, ("'ear'", "`points`")),
        ({"points": 3}, ("'left'", "`points`", "names")),
        ({"flip_pairs": [["left", "right"], ["left", "nose"]]}, ("'left'", "twice")),
        ({"points": ["nose", "left", "right", "nose"]}, ("twice",)),
        ({"points": 0, "flip_pairs": [], "skeleton": []}, ("1",)),
        ({"numbers": 4}, ("2", "3")),
        ({"columns": ["x", "y"], "length": 1}, ("2 columns", "3 points", "9")),
        ({"columns": ["x", "y", "z"] * 3}, ("`length: 1`",)),
        ({"columns": ["x", "y", "z"] * 3, "length": 1, "column": "a"}, ("`columns`",)),
    ],
)
def test_options_that_contradict_are_refused(keys: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        feature(**keys)
    with raises(ValidationError, "flip_pairs"):  # which has no default
        Keypoints(kind="keypoints", image="image", unit="absolute", points=3)  # type: ignore[call-arg]


def test_the_column_and_the_description() -> None:
    lists = {"many": True, "multiple": 9, "visibility": True}
    assert feature(length=2).raw_column() == Column(ColumnType.NUMBER, length=18, **lists)
    assert feature(numbers=2, points=4, flip_pairs=(), skeleton=()).raw_column() == Column(
        ColumnType.NUMBER, many=True, multiple=8
    )
    description = feature().describe({})
    assert read_description(description.to_json()) == description
    assert json.loads(json.dumps(description.to_json())) == description.to_json()  # or no version equals the live one
    assert description.to_json()["flip_pairs"] == [[1, 2]]
    assert_names(description.words(), 3, "image")
    with raises(DatasetError, "3", "dataset.json"):
        read_description(description.to_json() | {"flip_pairs": [[1, 3]]})
    (face,) = description.value({"": np.float32([0.5, 0.25, 2, 0, 0, 0, 0.1, 1, 1])}, Decoding(None, {}, Picture.Image))
    assert [tuple(point) for point in face] == [(0.5, 0.25, 2), (0, 0, 0), (0.1, 1, 1)]
    assert shown([face]) == "([0.5 0.25 2] [0 0 0] [0.1 1 1])"


def test_other_kinds_have_no_key_points() -> None:
    text = DETECTION.replace("SOURCE", ".").replace("image: image, p", "image: label, p")
    with raises(Exception, "'label'", "kind category", "kind image"):
        parse_spec(f"{text}  label: {{kind: category}}\n")
