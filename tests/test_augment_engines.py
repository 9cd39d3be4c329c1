"""Augmentation by TensorFlow: eagerly and inside `Dataset.map` the same pixels and boxes as by NumPy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.transforms.contract import augment
from recordmill.transforms.contract.augment import (
    Augmentation,
    CenterCrop,
    ColorJitter,
    RandomCrop,
    RandomCutout,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    Resize,
)
from recordmill.transforms.numpy import augment as augment_numpy
from recordmill.transforms.numpy.augment_batches import BatchAugmentation, CutMix, MixUp
from recordmill.transforms.tensorflow import (
    augment as augment_tensorflow,
)
from recordmill.transforms.tensorflow import (
    augment_batches as augment_batches_tensorflow,
)
from tests.test_augment import ALMOST_1, noisy, uniforms

SIDES = [(1, 1), (1, 9), (9, 1), (6, 6), (13, 8)]
SCALED = [
    [RandomResizedCrop((8, 12))],
    [RandomResizedCrop(5, area=(0.5, 0.9), aspect=(1, 2)), RandomFlip()],
    [Resize((3, 17)), RandomCutout(2), RandomRotation90()],
]
EXACT: list[list[Augmentation]] = [
    [],
    [RandomFlip(0.5, 0.5)],
    [RandomCrop((5, 7), pad=2)],
    [RandomCrop(2, pad=5)],
    [CenterCrop((6, 3))],
    [RandomRotation90()],
    [ColorJitter(0.4, 0.4, 0.4, 0.1)],
    [ColorJitter(1, 1, 1, 0.5)],
    [ColorJitter(brightness=0.3, saturation=0.3)],
    [RandomCutout((3, 4), fill=9)],
    [RandomCrop(9, pad=3), RandomFlip(), ColorJitter(0.2, 0.2), RandomRotation90(), RandomCutout(3)],
]


def named(chain: Any) -> str:
    return "-".join(type(each).__name__ for each in chain) or "nothing"


def rows_of(chain: Sequence[Augmentation]) -> np.ndarray:
    """Parameters of eight pictures, of the least draws and of the largest."""
    lanes = augment.lanes(chain)
    return augment.parameters(
        chain, np.concatenate([uniforms(8, lanes), np.zeros((1, lanes)), np.full((1, lanes), ALMOST_1)])
    )


def rows_with_boxes(shape: tuple[int, ...], rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    corners = np.sort(rng.random((rows, 3, 2, 2)), 2).reshape(rows, 3, 4).astype(np.float32)
    corners[:, 2] = 0  # padding
    return rng.integers(0, 256, (rows, *shape), np.uint8), corners


def graph(chain: Sequence[Augmentation], shape: Sequence[int | None], *, mask: bool = False) -> Any:
    """The changes as a graph, of pictures of a shape that may not be known."""
    signature = [
        tf.TensorSpec(shape, tf.uint8),
        tf.TensorSpec([None, 4], tf.float32),
        tf.TensorSpec([augment.numbers(chain)], tf.float64),
    ]

    def change(picture: tf.Tensor, boxes: tf.Tensor, row: tf.Tensor) -> Any:
        return augment_tensorflow.apply(picture, boxes, chain, row, mask=mask)

    made = tf.function(change, input_signature=signature, autograph=False).get_concrete_function()
    assert tuple(made.structured_outputs[0].shape) == augment.output_shape(chain, tuple(shape))
    return made


def levels_between(made: Any, chain: Sequence[Augmentation], shape: tuple[int, ...], *, mask: bool = False) -> int:
    """The largest difference of pixels; shapes and boxes are equal."""
    parameters = rows_of(chain)
    pictures, boxes = rows_with_boxes(shape, len(parameters))
    most = 0
    for picture, box, row in zip(pictures, boxes, parameters, strict=True):
        pixels, moved = made(tf.constant(picture), tf.constant(box), tf.constant(row))
        expected, expected_boxes = augment_numpy.apply(picture, box, chain, row, mask=mask)
        assert pixels.shape == expected.shape
        np.testing.assert_array_equal(moved, expected_boxes)
        most = max(most, np.abs(pixels.numpy().astype(int) - expected).max())
    return most


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("chain", EXACT, ids=named)
def test_both_engines_are_equal(chain: list[Augmentation], channels: int) -> None:
    made = graph(chain, [None, None, channels])
    assert [levels_between(made, chain, (*sides, channels)) for sides in SIDES] == [0] * len(SIDES)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("chain", SCALED, ids=named)
def test_scaled_pixels_differ_by_one_level(chain: list[Augmentation], channels: int) -> None:
    made = graph(chain, [None, None, channels])
    assert max(levels_between(made, chain, (*sides, channels)) for sides in [*SIDES, (40, 60)]) <= 1


@pytest.mark.parametrize("chain", [EXACT[-1], SCALED[-1]], ids=named)
def test_pictures_of_a_known_size(chain: list[Augmentation]) -> None:
    assert levels_between(graph(chain, [7, 11, 3]), chain, (7, 11, 3)) <= (chain is SCALED[-1])


def test_masks_are_equal() -> None:
    chain = [RandomResizedCrop((8, 12)), RandomFlip(), RandomCutout(3), ColorJitter(0.3), RandomCrop(9), Resize(7)]
    made = graph(chain, [None, None, 1], mask=True)
    assert [levels_between(made, chain, (*sides, 1), mask=True) for sides in SIDES] == [0] * len(SIDES)


def test_eagerly_by_map_fn_and_in_a_dataset() -> None:
    chain, shape = EXACT[-1], (7, 11, 3)
    parameters = rows_of(chain)
    pictures, boxes = rows_with_boxes(shape, len(parameters))

    def one(each: Any) -> Any:
        return augment_tensorflow.apply(each[0], each[1], chain, each[2])

    @tf.autograph.experimental.do_not_convert
    def together(*batch: tf.Tensor) -> Any:
        signature = (tf.TensorSpec((9, 9, 3), tf.uint8), tf.TensorSpec((3, 4), tf.float32))
        return tf.map_fn(one, batch, fn_output_signature=signature)

    pixels, moved = next(iter(tf.data.Dataset.from_tensors((pictures, boxes, parameters)).map(together)))
    for row, (picture, box, values) in enumerate(zip(pictures, boxes, parameters, strict=True)):
        expected, expected_boxes = augment_numpy.apply(picture, box, chain, values)
        np.testing.assert_array_equal(pixels[row], expected)
        np.testing.assert_array_equal(moved[row], expected_boxes)
    eager, eager_boxes = one([tf.constant(part[0]) for part in (pictures, boxes, parameters)])
    np.testing.assert_array_equal(eager, pixels[0])
    np.testing.assert_array_equal(eager_boxes, moved[0])
    alone = augment_tensorflow.move_boxes(tf.constant(boxes[0]), tf.constant(shape[:2]), chain, parameters[0])
    np.testing.assert_array_equal(alone, moved[0])


def test_where_crops_lie_is_the_same_at_all_sizes() -> None:
    """Roots, products and floors in a graph are those of Python."""
    change, rows = RandomResizedCrop(8), rows_of([RandomResizedCrop(8)])
    sides = np.random.default_rng(3).integers(1, 5000, (500, 2)).astype(np.float64)

    def windows(height: tf.Tensor, width: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        return tf.stack(change.window(values, height, width, augment_tensorflow.TENSORFLOW), -1)

    heights, widths = np.repeat(sides.T[..., np.newaxis], len(rows), 2)
    found = tf.function(windows)(heights, widths, np.repeat(rows.T[:, np.newaxis], len(sides), 1))
    python = augment_numpy.PYTHON
    expected = [[change.window(row, int(high), int(wide), python) for row in rows.tolist()] for high, wide in sides]
    np.testing.assert_array_equal(found, expected)


def test_a_function_of_the_users_is_refused() -> None:
    with pytest.raises(ValueError, match="augment holds the function .*noisy.*: TensorFlow's engine has none of these"):
        augment_tensorflow.apply(tf.zeros([2, 2, 3], tf.uint8), None, augment.check([noisy]), [0.0, 0.0])


@pytest.mark.parametrize("mixture", [MixUp(num_classes=4), MixUp(1.0, 4), CutMix(num_classes=4)])
@pytest.mark.parametrize(
    ("dtype", "shape", "label"),
    [("uint8", (5, 8, 6, 3), "ids"), ("float32", (5, 2, 7, 9, 1), "multi_hot"), ("uint8", (1, 4, 4, 3), "multi_hot")],
)
def test_mixtures_are_equal(mixture: BatchAugmentation, dtype: str, shape: tuple[int, ...], label: str) -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, shape).astype(dtype)
    labels = rng.integers(-1, 4, shape[0]) if label == "ids" else rng.integers(0, 2, (shape[0], 4)).astype(np.float32)
    batch = ({"picture": pixels, "age": np.arange(shape[0])}, labels, uniforms(shape[0], mixture.lanes))

    @tf.autograph.experimental.do_not_convert
    def change(*parts: Any) -> Any:
        return augment_batches_tensorflow.apply_batch(mixture, *parts)

    features, mixed = next(tf.data.Dataset.from_tensors(batch).map(change).as_numpy_iterator())
    expected, own = mixture.apply({**batch[0], "picture": pixels.copy()}, *batch[1:])
    np.testing.assert_array_equal(features["picture"], expected["picture"])
    np.testing.assert_array_equal(features["age"], expected["age"])
    np.testing.assert_array_equal(mixed, own)
    assert shape[0] == 1 or (features["picture"] != pixels).any()
