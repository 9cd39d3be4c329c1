"""Augmentation by TensorFlow: eagerly and inside `Dataset.map` the same pixels and boxes as by NumPy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.test_augment import ALMOST_1, noisy, uniforms
from transforms import augment, augment_batches_tensorflow, augment_numpy, augment_tensorflow
from transforms.augment import (
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
from transforms.augment_batches import BatchAugmentation, CutMix, MixUp

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


def rows_with_boxes(sides: tuple[int, int], channels: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    corners = np.sort(rng.random((rows, 3, 2, 2)), 2).reshape(rows, 3, 4).astype(np.float32)
    corners[:, 2] = 0  # padding
    return rng.integers(0, 256, (rows, *sides, channels), np.uint8), corners


def levels_between(chain: Sequence[Augmentation], sides: tuple[int, int], channels: int, *, mask: bool = False) -> int:
    """The largest difference of pixels; shapes and boxes are equal."""
    parameters = rows_of(chain)
    pictures, boxes = rows_with_boxes(sides, channels, len(parameters))

    def change(picture: tf.Tensor, box: tf.Tensor, row: tf.Tensor) -> Any:
        return augment_tensorflow.apply(picture, box, chain, row, mask=mask)

    dataset = tf.data.Dataset.from_tensor_slices((pictures, boxes, parameters)).map(change)
    assert tuple(dataset.element_spec[0].shape) == augment.output_shape(chain, (*sides, channels))
    most = 0
    for row, (pixels, moved) in enumerate(dataset.as_numpy_iterator()):
        expected, box = augment_numpy.apply(pictures[row], boxes[row], chain, parameters[row], mask=mask)
        np.testing.assert_array_equal(moved, box)
        most = max(most, np.abs(pixels.astype(int) - expected).max())
    return most


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("chain", EXACT, ids=named)
def test_both_engines_are_equal(chain: list[Augmentation], channels: int) -> None:
    assert [levels_between(chain, sides, channels) for sides in SIDES] == [0] * len(SIDES)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("chain", SCALED, ids=named)
def test_scaled_pixels_differ_by_one_level(chain: list[Augmentation], channels: int) -> None:
    assert max(levels_between(chain, sides, channels) for sides in [*SIDES, (40, 60)]) <= 1


def test_masks_are_equal() -> None:
    chain = [RandomResizedCrop((8, 12)), RandomFlip(), RandomCutout(3), ColorJitter(0.3), RandomCrop(9), Resize(7)]
    assert [levels_between(chain, sides, 1, mask=True) for sides in SIDES] == [0] * len(SIDES)


@pytest.mark.parametrize("chain", [EXACT[-1], SCALED[1]], ids=named)
def test_pictures_of_no_known_size_eagerly_and_by_map_fn(chain: list[Augmentation]) -> None:
    parameters = rows_of(chain)
    pictures, boxes = rows_with_boxes((7, 11), 3, len(parameters))
    size = augment.output_shape(chain, (None, None, 3))

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8), tf.TensorSpec(parameters.shape, tf.float64)]
    )
    def together(batch: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        one = lambda each: augment_tensorflow.apply(each[0], None, chain, each[1])[0]  # noqa: E731
        return tf.map_fn(one, (batch, rows), fn_output_signature=tf.TensorSpec(size, tf.uint8))

    eager = [
        augment_tensorflow.apply(tf.constant(one), None, chain, row)[0]
        for one, row in zip(pictures, parameters, strict=True)
    ]
    np.testing.assert_array_equal(together(pictures, parameters), eager)
    one = augment_tensorflow.apply(tf.constant(pictures[0]), tf.constant(boxes[0]), chain, parameters[0])[1]
    np.testing.assert_array_equal(
        augment_tensorflow.move_boxes(boxes[0], tf.constant([7, 11]), chain, parameters[0]), one
    )


def test_where_crops_lie_is_the_same_at_all_sizes() -> None:
    """Roots, products and floors in a graph are those of Python."""
    change, rows = RandomResizedCrop(8), rows_of([RandomResizedCrop(8)])
    sides = np.random.default_rng(3).integers(1, 5000, (500, 2)).astype(np.float64)

    def window(side: tf.Tensor) -> tf.Tensor:
        of_rows = [change.window(row, side[0], side[1], augment_tensorflow.TENSORFLOW) for row in rows]
        return tf.stack([tf.stack(one) for one in of_rows])

    found = np.stack(list(tf.data.Dataset.from_tensor_slices(sides).map(window).as_numpy_iterator()))
    python = augment_numpy.PYTHON
    expected = [[change.window(row, int(high), int(wide), python) for row in rows.tolist()] for high, wide in sides]
    np.testing.assert_array_equal(found, expected)


def test_a_function_of_the_users_is_refused() -> None:
    with pytest.raises(ValueError, match="augment holds the function .*noisy.*: TensorFlow's engine has none of these"):
        augment_tensorflow.apply(tf.zeros([2, 2, 3], tf.uint8), None, augment.check([noisy]), [0.0, 0.0])


@pytest.mark.parametrize("mixture", [MixUp(num_classes=4), MixUp(1.0, 4), CutMix(num_classes=4)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("shape", [(5, 8, 6, 3), (5, 2, 7, 9, 1), (1, 4, 4, 3)])
@pytest.mark.parametrize("label", ["ids", "multi_hot"])
def test_mixtures_are_equal(mixture: BatchAugmentation, dtype: str, shape: tuple[int, ...], label: str) -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, shape).astype(dtype)
    labels = rng.integers(-1, 4, shape[0]) if label == "ids" else rng.integers(0, 2, (shape[0], 4)).astype(np.float32)
    batch = ({"picture": pixels, "age": np.arange(shape[0])}, labels, uniforms(shape[0], mixture.lanes))

    def change(*parts: Any) -> Any:
        return augment_batches_tensorflow.apply_batch(mixture, *parts)

    features, mixed = next(tf.data.Dataset.from_tensors(batch).map(change).as_numpy_iterator())
    expected, own = mixture.apply({**batch[0], "picture": pixels.copy()}, *batch[1:])
    np.testing.assert_array_equal(features["picture"], expected["picture"])
    np.testing.assert_array_equal(features["age"], expected["age"])
    np.testing.assert_array_equal(mixed, own)
    assert shape[0] == 1 or (features["picture"] != pixels).any()
