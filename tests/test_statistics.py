"""Exact statistics: equal to arithmetic in fractions, whatever the order and the batches."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.analysis.exact_sums import Moments, PixelSums, add_counts, most_frequent

FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=60)
SPECIAL = {
    "zeros": [0.0, -0.0],
    "smallest denormals": [1e-45, -1e-45, 3e-45],
    "denormal beside normal": [1.1754942e-38, 1.17549435e-38],
    "largest": [3.4028235e38, -3.4028235e38, 3.4028235e38],
    "huge beside tiny": [3e38, 1e-45, -3e38],
    "one value": [0.1],
    "equal": [0.1] * 1000,
    "a float64 sum of squares would lose all": [16777215.0, 16777216.0],
}


def moments(values: list[float]) -> Moments:
    seen = Moments()
    seen.add(np.array(values, np.float32))
    return seen


def exact(values: list[float]) -> tuple[float, float]:
    fractions = [Fraction(float(value)) for value in np.array(values, np.float32)]
    mean = sum(fractions, Fraction()) / len(fractions)
    return float(mean), float(sum((value - mean) ** 2 for value in fractions) / len(fractions))


@pytest.mark.parametrize("name", SPECIAL)
def test_moments_of_special_values_are_exact(name: str) -> None:
    assert moments(SPECIAL[name]).mean_and_variance() == exact(SPECIAL[name])


@given(FLOATS)
def test_moments_are_exact(values: list[float]) -> None:
    assert moments(values).mean_and_variance() == exact(values)


@given(FLOATS)
def test_extremes_are_exact_and_zero_has_no_sign(values: list[float]) -> None:
    floats = np.array(values, np.float32)
    assert moments(values).extremes() == (floats.min(), floats.max())
    assert [str(moments(zeros).extremes()) for zeros in ([-0.0, 0.0], [0.0, -0.0], [])] == ["(0.0, 0.0)"] * 3


@given(FLOATS, st.randoms(use_true_random=False), st.integers(1, 7))
def test_moments_do_not_depend_on_order_batches_or_workers(values: list[float], random, size: int) -> None:
    shuffled = random.sample(values, len(values))
    batches = [shuffled[start : start + size] for start in range(0, len(values), size)]
    workers = [Moments(), Moments(), Moments()]
    for place, batch in enumerate(batches):
        workers[place % 2].add(np.array(batch, np.float32))  # the third sees nothing
    workers[2].merge(workers[1])
    workers[2].merge(workers[0])
    assert workers[2] == moments(values)


def test_moments_take_values_of_any_shape_and_none() -> None:
    seen = Moments()
    seen.add(np.zeros((0,), np.float32))
    assert seen.mean_and_variance() == (0.0, 1.0)
    seen.add(np.array([[1, 2], [3, 6]], np.float32))
    assert (seen.count, *seen.mean_and_variance()) == (4, 3.0, 3.5)


def test_many_values_of_one_exponent_do_not_overflow() -> None:
    values = np.full(200_000, np.float32(1.9999999))
    seen = Moments()
    seen.add(values)
    assert seen.mean_and_variance() == (float(values[0]), 0.0)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4), st.integers(1, 3))
def test_pixel_sums_are_those_of_the_pixels(seeds: list[int], channels: int) -> None:
    pictures = [np.random.default_rng(seed).integers(0, 256, (3, 2, channels)) for seed in seeds]
    seen = PixelSums()
    for picture in pictures:
        flat = picture.reshape(-1, channels)
        seen.add(np.array([6, 0]), np.stack([flat.sum(0), 0 * flat[0]]), np.stack([(flat**2).sum(0), 0 * flat[0]]))
    means, variances = seen.mean_and_variance()
    pixels = np.concatenate(pictures).reshape(-1, channels).astype(np.float64)
    assert seen.images == len(pictures)
    assert means == pytest.approx(pixels.mean(0).tolist(), rel=1e-12)
    assert variances == pytest.approx(pixels.var(0).tolist(), rel=1e-9, abs=1e-9)


def test_pixel_sums_of_workers_add_up() -> None:
    parts = [PixelSums(1, 4, [8, 4], [16, 4]), PixelSums(), PixelSums(2, 12, [8, 60], [80, 316])]
    merged = PixelSums()
    for part in parts:
        merged.merge(part)
    assert merged == PixelSums(3, 16, [16, 64], [96, 320])
    assert merged.mean_and_variance() == ([1.0, 4.0], [5.0, 4.0])


def test_no_sampled_picture_leaves_pixels_as_they_are() -> None:
    seen = PixelSums()
    assert seen.mean_and_variance() == ([], [])
    seen.add(np.zeros(2, np.int64), np.zeros((2, 3), np.int64), np.zeros((2, 3), np.int64))
    assert seen.mean_and_variance() == ([0.0] * 3, [1.0] * 3)
    assert seen.images == 0


COUNTS = {b"b": 2, b"a": 2, "ü".encode(): 2, b"rare": 1, b"the": 9, b"": 50, b" ": 50, b"x\ny": 50, b"x\ry": 50}


@pytest.mark.parametrize(
    ("top_k", "minimum", "words"),
    [
        (None, 1, [b"the", "ü".encode(), b"b", b"a", b"rare"]),
        (2, 1, [b"the", "ü".encode()]),
        (100, 1, [b"the", "ü".encode(), b"b", b"a", b"rare"]),
        (None, 2, [b"the", "ü".encode(), b"b", b"a"]),
        (3, 10, []),
    ],
)
def test_the_most_frequent_words_come_first(top_k: int | None, minimum: int, words: list[bytes]) -> None:
    found = most_frequent(COUNTS, top_k, minimum)
    assert found == [(COUNTS[word], word) for word in words]


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(1, 2**40)), max_size=8))
def test_counts_add_up(pairs: list[tuple[bytes, int]]) -> None:
    total: dict[bytes, int] = {}
    add_counts(total, [word for word, _ in pairs], [count for _, count in pairs])
    assert total == {w: sum(count for word, count in pairs if word == w) for w in {word for word, _ in pairs}}
