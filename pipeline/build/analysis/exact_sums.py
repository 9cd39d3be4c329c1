"""Exact statistics that do not depend on order, batching or bundles: vocabulary counts and moments.

Plain classes with `add`, `merge` and a result, which `beam.vocabularies` and `beam.moments` run in Beam.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Counts = dict[bytes, int]
Counted = TypeVar("Counted", bytes, int)


def most_frequent(counts: Mapping[bytes, int], top_k: int | None, minimum_count: int) -> list[tuple[int, bytes]]:
    """The (count, word) pairs of a vocabulary: most frequent first, words of equal count in descending byte order.

    That is the order of tf.Transform's `tft.vocabulary`. Words that are blank or hold a line break are left out.
    """
    pairs = (
        (count, word)
        for word, count in counts.items()
        if count >= minimum_count and word.strip() and b"\n" not in word and b"\r" not in word
    )
    return sorted(pairs, reverse=True) if top_k is None else heapq.nlargest(top_k, pairs)


def class_names(frequent: Sequence[bytes], kept: Sequence[bytes], most: int | None, order: str) -> list[bytes]:
    """Gives the names of a category by id: those that are kept stay where they are, new ones follow.

    Args:
        frequent: the names of the data, the most frequent first.
        kept: the names of the version before, by id, whether the data still has them or not.
        most: the number of names that may have an id, where it is limited; new names take what `kept` leaves.
        order: `alphabetical`, which is that of Unicode's code points, or `frequency`: the order of the new names.
    """
    known = set(kept)
    new = [name for name in frequent if name not in known]
    new = new if most is None else new[: max(0, most - len(kept))]
    return [*kept, *(sorted(new) if order == "alphabetical" else new)]


def add_counts(total: dict[Counted, int], words: Iterable[Counted], counts: Iterable[int]) -> None:
    """Adds the counts of words, or of anything else, to a total."""
    get = total.get
    for word, count in zip(words, counts, strict=True):
        total[word] = get(word, 0) + count


@dataclass
class Moments:
    """Mean, variance and extremes of float32 values, without any rounding before the end (as `math.fsum`).

    A float32 is a 24-bit integer times a power of two: the integers and their squares are summed for each exponent.
    """

    count: int = 0
    sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    minimum: float = math.inf
    maximum: float = -math.inf

    def add(self, values: npt.NDArray[np.float32]) -> None:
        """Adds finite values of any shape."""
        self._extend(float(values.min(initial=np.inf)), float(values.max(initial=-np.inf)))
        fractions, exponents = np.frexp(values.astype(np.float64).ravel())
        mantissas = np.ldexp(fractions, 24).astype(np.int64)  # exact: a float32 has 24 bits
        self.count += mantissas.size
        distinct, which = np.unique(exponents, return_inverse=True)
        high, low = mantissas >> 12, mantissas & 4095  # products of halves stay far below 2**63
        parts = np.zeros((4, len(distinct)), np.int64)
        for part, value in zip(parts, (mantissas, high * high, high * low, low * low), strict=True):
            np.add.at(part, which, value)
        for exponent, total, hh, hl, ll in zip(distinct.tolist(), *parts.tolist(), strict=True):
            self._add(exponent, total, (hh << 24) + (hl << 13) + ll)

    def _add(self, exponent: int, total: int, squares: int) -> None:
        before = self.sums.get(exponent, (0, 0))
        self.sums[exponent] = (before[0] + total, before[1] + squares)

    def _extend(self, minimum: float, maximum: float) -> None:
        # + 0.0, because which of 0 and -0 is the lesser one depends on their order
        self.minimum, self.maximum = min(self.minimum, minimum) + 0.0, max(self.maximum, maximum) + 0.0

    def merge(self, other: "Moments") -> None:
        """Adds what another has seen."""
        self._extend(other.minimum, other.maximum)
        self.count += other.count
        for exponent, (total, squares) in other.sums.items():
            self._add(exponent, total, squares)

    def mean_and_variance(self) -> tuple[float, float]:
        """The mean and the population variance, rounded once; (0, 1) where nothing was seen."""
        if not self.count:
            return 0.0, 1.0
        total = sum((v[0] * Fraction(2) ** (e - 24) for e, v in self.sums.items()), Fraction())
        squares = sum((v[1] * Fraction(2) ** (2 * e - 48) for e, v in self.sums.items()), Fraction())
        return _mean_and_variance(self.count, total, squares)

    def extremes(self) -> tuple[float, float]:
        """The minimum and the maximum; (0, 0) where nothing was seen."""
        return (self.minimum, self.maximum) if self.count else (0.0, 0.0)


def _mean_and_variance(count: int, total: Fraction | int, squares: Fraction | int) -> tuple[float, float]:
    mean = Fraction(total) / count
    return float(mean), float(Fraction(squares) / count - mean * mean)


@dataclass
class PixelSums:
    """Mean and variance of uint8 pixels by channel, by integer sums."""

    images: int = 0
    pixels: int = 0
    sums: list[int] = field(default_factory=list)
    squares: list[int] = field(default_factory=list)

    def add(self, pixels: npt.NDArray[np.int64], sums: npt.NDArray[np.int64], squares: npt.NDArray[np.int64]) -> None:
        """Adds images: pixels [rows], 0 for a row that was not sampled; sums and squares [rows, channels]."""
        seen = PixelSums(
            int(np.count_nonzero(pixels)), int(pixels.sum()), sums.sum(axis=0).tolist(), squares.sum(axis=0).tolist()
        )
        self.merge(seen)

    def merge(self, other: "PixelSums") -> None:
        """Adds what another has seen."""
        self.images += other.images
        self.pixels += other.pixels
        self.sums = _add_lists(self.sums, other.sums)
        self.squares = _add_lists(self.squares, other.squares)

    def mean_and_variance(self) -> tuple[list[float], list[float]]:
        """By channel; mean 0 and variance 1 where no image was seen."""
        if not self.pixels:
            return [0.0] * len(self.sums), [1.0] * len(self.sums)
        pairs = [_mean_and_variance(self.pixels, s, q) for s, q in zip(self.sums, self.squares, strict=True)]
        return [mean for mean, _ in pairs], [variance for _, variance in pairs]


def _add_lists(left: list[int], right: list[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)] if left and right else left or right
