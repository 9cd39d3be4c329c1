"""Boxes: moved with the pixels of their image, for every notation; cut, padded, read."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipeline.errors import WrongValueError
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.base.graph import Context, Statistics
from recordmill.transforms.engines.tensorflow_features import KINDS
from recordmill.transforms.images import image_graph as image
from recordmill.transforms.images import places_graph as places
from recordmill.transforms.images.image_rules import placement
from recordmill.transforms.images.image_spec import Image
from recordmill.transforms.images.places_spec import Boxes
from recordmill.transforms.values.category_spec import Category
from tests.messages import raises
from tests.running import BOTH_WAYS, Run, assert_same_bits


def feature(**keys: Any) -> Boxes:
    return Boxes(kind="boxes", **{"image": "image", "order": "tensorflow", "unit": "absolute", **keys})


def image_feature(**keys: Any) -> Image:
    return Image(kind="image", normalize="none", **{"store": "png", **keys})


CUT = {"size": (50, 50), "fit": "crop"}  # of 100 x 200: columns 50 to 150, halved
FRAMED = {"size": (200, 200), "fit": "pad"}  # of 100 x 200: 50 rows above and below
INFINITE, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("keys", "of", "given", "expected"),
    [
        ({"order": "corners"}, {}, [20, 10, 60, 30], [0.1, 0.1, 0.3, 0.3]),
        ({"order": "coco"}, {}, [20, 10, 40, 20], [0.1, 0.1, 0.3, 0.3]),
        ({"order": "center", "unit": "relative"}, {}, [0.5, 0.25, 0.5, 0.5], [0, 0.25, 0.5, 0.75]),
        ({}, CUT, [10, 60, 30, 100], [0.1, 0.1, 0.3, 0.5]),
        ({}, CUT, [-5, 20, 30, 180], [0, 0, 0.3, 1]),
        ({}, FRAMED, [0, 0, 50, 100], [0.25, 0, 0.5, 0.5]),
        # a box never reaches into the margin
        ({}, FRAMED, [-20, -20, 120, 220], [0.25, 0, 0.75, 1]),
        # outside: no area, at the nearest edge
        ({}, CUT, [10, 160, 30, 190], [0.1, 1, 0.3, 1]),
        ({}, FRAMED, [110, 20, 130, 40], [0.75, 0.1, 0.75, 0.2]),
        # bad boxes: no area
        ({}, {}, [30, 20, 10, 60], [0.3, 0.1, 0.3, 0.3]),
        ({"order": "coco"}, {}, [20, 10, -40, 20], [0.1, 0.1, 0.3, 0.1]),
        ({"order": "center"}, {}, [20, 10, -8, -4], [0.12, 0.12, 0.12, 0.12]),
        ({}, {}, [NAN, 20, 30, 60], [0, 0, 0, 0]),
        ({}, {}, [-INFINITE, 20, INFINITE, 60], [0, 0.1, 1, 0.3]),
        ({"order": "coco"}, {}, [-INFINITE, 0, INFINITE, 5], [0, 0, 0, 0]),
    ],
)
def test_a_box_by_hand(keys: dict[str, Any], of: dict[str, Any], given: list[float], expected: list[float]) -> None:
    of = image_feature(**(of or {"size": (50, 50), "fit": "stretch"}))
    moved = places.moved_boxes(
        feature(**keys), of.pixel_options, tf.constant([given]), tf.constant([[100, 200, 1]], tf.int64)
    )
    np.testing.assert_array_equal(moved, np.float32([expected]))


SOURCE = st.tuples(st.integers(1, 3_000), st.integers(1, 3_000), st.integers(1, 8))
FITS = [{"size": (24, 31), "fit": fit} for fit in ("stretch", "pad", "crop")]
FITS += [{"size": (24, 31), "fit": "crop", "shorter_side": 45}, {"shorter_side": 17}, {"fit": "none"}]


@settings(max_examples=40, deadline=None)
@given(SOURCE, st.lists(st.floats(-100, 3_100, width=32), min_size=4, max_size=4), st.sampled_from(FITS))
def test_a_box_is_moved_exactly(source: tuple[int, int, int], box: list[float], fit: dict[str, Any]) -> None:
    of = image_feature(**fit).pixel_options
    place = [[int(number) for number in pair] for pair in placement(np.array(source[:2]), of)]

    def moved(point: float, axis: int) -> Fraction:
        start, size, scaled, offset, output = (pair[axis] for pair in place)
        inside = min(max(Fraction(point), start), start + size)
        there = min(max((inside - start) * scaled / size + offset, Fraction()), Fraction(output)) / output
        return there if there >= places.LEAST else Fraction()

    corners = [*box[:2], max(box[0], box[2]), max(box[1], box[3])]
    expected = [np.float32(float(moved(point, axis % 2))) for axis, point in enumerate(corners)]
    got = places.moved_boxes(feature(), of, tf.constant([box]), tf.constant([source], tf.int64))[0].numpy()
    np.testing.assert_array_max_ulp(got, np.float32(expected), 1)
    assert (got[:2] <= got[2:]).all()


@pytest.mark.first(4)
@BOTH_WAYS
@pytest.mark.parametrize("order", ["corners", "coco", "center", "tensorflow"])
def test_a_box_has_the_same_bits_in_any_batch(run: Run, order: str) -> None:
    random = np.random.default_rng(0)
    given = random.uniform(-200, 900, (37, 4)).astype(np.float32)
    sources = np.stack([random.integers(1, 900, 37), random.integers(1, 900, 37), random.integers(1, 9, 37)], 1)
    options, of = feature(order=order, oriented="file"), image_feature(size=(33, 57))

    def moved(both: Any) -> Any:
        return places.moved_boxes(options, of.pixel_options, both[:, :4], tf.cast(both[:, 4:], tf.int64))

    assert_same_bits(run, moved, np.concatenate([given, sources], 1).astype(np.float64))


@pytest.mark.parametrize(("max_length", "shape"), [(None, [0, 0, 4]), (3, [0, 3, 4])])
def test_no_rows_have_no_boxes(max_length: int | None, shape: list[int]) -> None:
    options = feature(max_length=max_length)
    of, nothing = image_feature(size=(8, 8)), tf.ragged.constant([], tf.float32, 1)
    images = {"image": image.prepare(of, tf.constant([], tf.string), Context(options={"image": of}))}
    none = KINDS[options.kind].prepare(options, nothing, Context({}, images, {"image": of})).store(Statistics())[""]
    assert places.features(options.describe({}), {"": none})[""].shape == shape
    ready = tf.function(lambda numbers: places.features(options.describe({}), {"": numbers})[""])
    static = ready.get_concrete_function(tf.RaggedTensorSpec([None, None], tf.float32, 1, tf.int64)).output_shapes
    assert static.as_list() == [None, max_length, 4]


@pytest.mark.parametrize(
    ("name", "facts"), [("imag", ("'imag'", "`image`")), ("label", ("'label'", "kind category", "kind image"))]
)
def test_boxes_are_of_an_image(name: str, facts: tuple[str, ...]) -> None:
    others: dict[str, Feature] = {"image": image_feature(size=8), "label": Category(kind="category")}
    feature().check(others)
    with raises(WrongValueError, *facts) as error:
        feature(image=name).check(others)
    assert error.value.path == ("image",)
