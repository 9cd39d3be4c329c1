"""MixUp and CutMix by NumPy: shares, pixels, labels; with OpenCV and without."""

import numpy as np
import pytest

from recordmill.transforms.numpy.augment.regularization import CutMix, MixUp, symmetric_beta
from tests.messages import raises
from tests.test_augment import ALMOST_1, _library, image, uniforms, with_each_library  # noqa: F401 - a fixture


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
    unlabelled, nothing = MixUp().apply(features, None, uniforms(2, 2))
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
    ],
)
def test_what_cannot_be_mixed(mixture: MixUp, label: np.ndarray, facts: tuple[str, ...]) -> None:
    with raises(ValueError, *facts):
        mixture.apply({"image": np.zeros((2, 4, 4, 3), np.uint8)}, label, uniforms(2, 2))
