"""Masks drawn from shapes: bit-equal to pycocotools, used as its own documentation shows."""

import json
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco

from recordmill.pipeline.build.images import masks
from recordmill.transforms.base import bounds
from recordmill.transforms.base.bounds import Bound, ImageError
from recordmill.transforms.images.mask_spec import Mask, Masks
from tests.messages import raises

NAMES = ["background", "a", "b", "c"]
Shape = dict[str, Any]


def drawn(shapes: bytes, options: Mask | Masks, height: int, width: int, first: int = 1) -> np.ndarray:
    return masks.drawn(shapes, options, height, width, first)[0]


def options(draw: str = "classes", **keys: Any) -> Mask | Masks:
    if draw == "objects":
        return Masks(kind="masks", image="image", draw="objects", **keys)
    return Mask(kind="mask", image="image", draw=draw, classes=NAMES if draw == "classes" else None, **keys)


def made_shape(rng: np.random.Generator, height: int, width: int) -> Shape:
    shape: Shape = {"name": NAMES[rng.integers(1, 4)], "crowd": int(rng.random() < 0.2)}
    if (way := rng.integers(0, 5)) < 2:
        parts = [rng.uniform(-0.2, 1.2, (rng.integers(3, 9), 2)) * [width, height] for _ in range(rng.integers(1, 4))]
        return {**shape, "polygons": [part.round(int(rng.integers(0, 3))).ravel().tolist() for part in parts]}
    if way == 2:
        return {**shape, "polygons": []}
    pixels = np.asfortranarray((rng.random((height, width)) < rng.choice([0, 0.1, 0.5, 1])).astype(np.uint8))
    if rng.random() < 0.5:  # a ring, whose hole is no part of it
        pixels[...] = 0
        pixels[height // 4 :, : width // 2] = 1
        pixels[height // 2 : -1, 1 : width // 3] = 0
    if way == 3:
        return {**shape, "rle": {"size": [height, width], "counts": coco.encode(pixels)["counts"].decode()}}
    flat = pixels.ravel("F")
    ends = [*(np.flatnonzero(np.diff(flat)) + 1).tolist(), flat.size]
    counts = np.diff([0, *([0] if flat[0] else []), *ends]).tolist()
    return {**shape, "rle": {"size": [height, width], "counts": counts}}


def made(seed: int) -> tuple[int, int, list[Shape]]:
    rng = np.random.default_rng(seed)
    height, width = map(int, rng.integers(1, 60, 2))
    return height, width, [made_shape(rng, height, width) for _ in range(rng.integers(0, 6))]


def as_coco_does(shape: Shape, height: int, width: int) -> np.ndarray | None:
    """COCO.annToMask."""
    if "rle" in shape:
        rle = shape["rle"]
        return coco.decode(coco.frPyObjects(rle, height, width) if isinstance(rle["counts"], list) else rle)
    if not shape["polygons"]:
        return None
    return coco.decode(coco.merge(coco.frPyObjects(shape["polygons"], height, width)))


def expected(height: int, width: int, shapes: list[Shape], draw: str, ignore: int | None) -> np.ndarray:
    full = np.zeros((height, width), np.uint8)
    for number, shape in enumerate(shapes, 1):
        pixels = as_coco_does(shape, height, width)
        value = NAMES.index(shape["name"]) if draw == "classes" else number
        if pixels is not None:
            full[pixels == 1] = ignore if shape["crowd"] and ignore is not None else value
    return full


def test_shapes_are_drawn_as_pycocotools_draws_them() -> None:
    for seed in range(500):
        height, width, shapes = made(seed)
        data = json.dumps(shapes).encode()
        for draw in ("classes", "instances"):
            for crowd, ignore in (("ignore", 255), ("draw", None)):
                got = drawn(data, options(draw, crowd=crowd, ignore=ignore), height, width)
                np.testing.assert_array_equal(got, expected(height, width, shapes, draw, ignore), str(seed))
        for number, shape in enumerate(shapes, 1):
            alone = drawn(json.dumps([shape]).encode(), options("objects"), height, width, number)
            pixels = as_coco_does(shape, height, width)
            np.testing.assert_array_equal(alone, np.zeros_like(alone) if pixels is None else pixels, str(seed))


def test_relative_polygons_are_shares_of_the_sides() -> None:
    relative = [{"name": "a", "unit": "relative", "polygons": [[0.25, 0.5, 0.75, 0.5, 0.75, 1.0]]}]
    absolute = [{"name": "a", "polygons": [[5, 5, 15, 5, 15, 10]]}]
    made = [drawn(json.dumps(each).encode(), options(), 10, 20) for each in (relative, absolute)]
    assert made[0].any()
    np.testing.assert_array_equal(*made)


SQUARE = [[0, 0, 9, 0, 9, 9]]


@pytest.mark.parametrize(
    ("shape", "keys", "reason", "facts"),
    [
        ({"name": "dog", "polygons": SQUARE}, {}, "unknown_class", ["object 1", "'dog'", "`classes`"]),
        ({"name": "background", "polygons": SQUARE}, {}, "unknown_class", ["'background'", "0"]),
        ({"name": "a", "crowd": 1, "polygons": SQUARE}, {}, "unknown_class", ["'a'", "`crowd: draw`"]),
        ({"name": "a", "polygons": [[1, 2, 3, 4]]}, {}, "malformed_row", ["object 1", "4"]),
        ({"name": "a", "polygons": [[1, 2, 3, 4, 5, 6, 7]]}, {}, "malformed_row", ["7"]),
        ({"name": "a", "polygons": [[1, 2, 3, 4, 5, 1e9]]}, {}, "malformed_row", ["1000000000.0"]),
        ({"name": "a", "polygons": [[1, 2, 3, 4, 5, float("nan")]]}, {}, "malformed_row", ["object 1", "finite"]),
        ({"name": "a", "polygons": [["x"] * 6]}, {}, "malformed_row", ["object 1"]),
        ({"name": "a", "polygons": 7}, {}, "malformed_row", ["object 1"]),
        ({"name": "a", "rle": {"size": [9, 10], "counts": [90]}}, {}, "malformed_row", ["[9, 10]", "[10, 10]"]),
        ({"name": "a", "rle": {"size": [10, 10], "counts": [5, 2]}}, {}, "malformed_row", ["7"]),
        ({"name": "a", "rle": {"size": [10, 10], "counts": [150, -50]}}, {}, "malformed_row", ["object 1"]),
        ({"name": "a", "rle": {"size": [10, 10], "counts": "52"}}, {}, "malformed_row", ["7"]),
        ({"name": "a", "rle": {"size": [10, 10], "counts": "zzz"}}, {}, "malformed_row", ["`counts`"]),
        ({"name": "a", "rle": {"size": [10, 10], "counts": ""}}, {}, "malformed_row", ["`counts`"]),
        ({"name": "a", "rle": {"size": [10, 10], "counts": "é"}}, {}, "malformed_row", ["object 1"]),
        ({"name": "a", "rle": {"size": [10, 10]}}, {}, "malformed_row", ["counts"]),
        ("a", {}, "malformed_row", ["object 1", "`polygons`"]),
        ({"name": "a", "runs": "1 x"}, {}, "malformed_row", ["object 1", "`runs`"]),
    ],
    ids=str,
)
def test_bad_shapes_are_rejects_that_name_the_object(
    shape: Any, keys: dict[str, Any], reason: str, facts: list[str]
) -> None:
    with raises(ImageError, *facts) as caught:
        drawn(json.dumps([shape]).encode(), options(**keys), 10, 10)
    assert caught.value.reason == reason


@pytest.mark.parametrize("ignore", [None, 255])
def test_objects_beyond_the_numbers_are_rejects(ignore: int | None) -> None:
    most = ignore or 256
    shapes = [{"name": "a", "polygons": SQUARE}] * (most - 1)
    assert drawn(json.dumps(shapes).encode(), options("instances", ignore=ignore), 10, 10).max() == most - 1
    with raises(ImageError, f"object {most}", most) as caught:
        drawn(json.dumps([*shapes, shapes[0]]).encode(), options("instances", ignore=ignore), 10, 10)
    assert caught.value.reason == "too_large"
    wider = options("instances", ignore=60_000, dtype="uint16")
    assert drawn(json.dumps([*shapes, *shapes]).encode(), wider, 10, 10).max() == 2 * len(shapes)


def zigzag(side: int, corners: int) -> Shape:
    return {"name": "a", "polygons": [[0, 0, *[side - 1, side - 1, 0, 0] * (corners // 2)]]}


COSTLY: dict[str, tuple[Bound, list[Any], int]] = {
    "a long outline": (bounds.OUTLINES, [zigzag(8_000, 5_000)], 8_000),
    "many outlines": (bounds.OUTLINES, [zigzag(100, 500)] * 110, 100),
    "many numbers": (bounds.POINTS, [{"name": "a", "polygons": [[1] * 1_000_002]}], 9),
    "long run lengths": (bounds.POINTS, [{"name": "a", "rle": {"size": [9, 9], "counts": "1" * 1_000_001}}], 9),
    "many runs": (bounds.POINTS, [{"name": "a", "runs": "1 1 " * 500_001}], 9),
    "many objects": (bounds.OBJECTS, [{}] * 100_001, 9),
}


@pytest.mark.parametrize("case", COSTLY)
def test_a_row_that_costs_too_much_is_refused_before_it_is_drawn(case: str) -> None:
    bound, shapes, side = COSTLY[case]
    with raises(ImageError, f"{bound.most:,}") as caught:
        drawn(json.dumps(shapes).encode(), options(), side, side)
    assert caught.value.reason == bound.reason


def test_objects_of_the_whole_image_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ROW_PIXELS", bounds.ROW_PIXELS._replace(most=50_000))
    whole = {"name": "a", "rle": {"size": [400, 400], "counts": [0, 160_000]}}
    assert drawn(json.dumps([whole] * 9).encode(), options(), 400, 400).all()
    with raises(ImageError, "50,000") as caught:
        drawn(json.dumps([whole] * 10).encode(), options(), 400, 400)
    assert caught.value.reason == "too_slow"


@pytest.mark.timeout(60)  # as masks of the whole image they take half an hour
def test_an_object_costs_its_own_pixels() -> None:
    shapes = [{"name": "b", "polygons": [[x, 7, x + 1, 7, x + 1, 9, x, 9]]} for x in range(0, 8_000, 2)]
    assert (drawn(json.dumps(shapes).encode(), options(), 8_000, 8_000)[7:9] == 2).mean() == 0.5


def test_many_parts_of_an_object_are_no_product() -> None:
    parts = [[x % 50, 1, x % 50 + 2, 1, x % 50 + 2, 3] for x in range(20_000)]
    assert drawn(json.dumps([{"name": "b", "polygons": parts}]).encode(), options(), 10, 60).any()
