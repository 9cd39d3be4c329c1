"""Histograms of float32 values, independent of order and batching: exact, or within a known bound.

A histogram counts each distinct value. Beyond a limit, all values lose low bits of the mantissa until few enough are
distinct. The number of lost bits depends only on the values: a whole is at least as coarse as each of its parts.

>>> seen = Histogram.of(np.array([1, 2, 3, 4], np.float32))
>>> seen.median(), seen.boundaries(2)
(2.5, [3.0])
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LIMIT = 1 << 17  # distinct values: 2 MiB; any data loses at most 15 of 31 bits
MANTISSA_BITS = 23
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Histogram:
    """Counts of distinct values."""

    lost: int  # the number of low bits cut off the mantissa, towards 0
    keys: Integers  # the values in rising order: each magnitude's bits as an integer, with the value's sign
    counts: Integers

    @classmethod
    def of(cls, values: npt.NDArray[np.float32]) -> "Histogram":
        """Counts finite values of any shape and any number."""
        bits = values.astype(np.float32).ravel().view(np.int32)
        magnitudes = (bits & 0x7FFFFFFF).astype(np.int64)
        keys, counts = np.unique(np.where(bits < 0, -magnitudes, magnitudes), return_counts=True)
        return cls(0, keys, counts.astype(np.int64))

    @classmethod
    def merged(cls, parts: Iterable["Histogram"], limit: int = LIMIT) -> "Histogram":
        """Adds up any number of histograms, in any order."""
        several = cls.coarsened([cls.of(np.empty(0, np.float32)), *parts])
        keys = np.concatenate([part.keys for part in several])
        whole = cls._counted(several[0].lost, keys, np.concatenate([part.counts for part in several]))
        while len(whole.keys) > limit:
            whole = cls._counted(whole.lost + 1, _cut(whole.keys, 1), whole.counts)
        return whole

    @classmethod
    def coarsened(cls, parts: Iterable["Histogram"]) -> list["Histogram"]:
        """Makes histograms, one or more, as coarse as the coarsest of them: equal keys then mean equal values."""
        several = [*parts]
        lost = max(part.lost for part in several)
        return [cls._counted(lost, _cut(part.keys, lost - part.lost), part.counts) for part in several]

    @classmethod
    def _counted(cls, lost: int, keys: Integers, counts: Integers) -> "Histogram":
        distinct, which = np.unique(keys, return_inverse=True)
        total = np.zeros(len(distinct), np.int64)
        np.add.at(total, which, counts)
        return cls(lost, distinct, total)

    @property
    def relative_error(self) -> float:
        """The largest error of a quantile, relative to the exact one (at least 1.2e-38); 0: exact."""
        return 2.0 ** (self.lost - MANTISSA_BITS) if self.lost else 0.0

    def at(self, ranks: Iterable[int]) -> list[float]:
        """Returns the values at ranks (from 0) in ascending order."""
        ends = np.cumsum(self.counts)
        return self.values[np.searchsorted(ends, np.array([*ranks], np.int64), side="right")].tolist()

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The value of each key, rising; exact values may be larger in magnitude, by the lost bits."""
        values = (np.abs(self.keys) << self.lost).astype(np.int32).view(np.float32)
        return np.copysign(values, self.keys).astype(np.float64)

    def median(self) -> float:
        """Returns the middle value, or the mean of the two in the middle; 0 without values."""
        count = int(self.counts.sum())
        low, high = self.at([(count - 1) // 2, count // 2]) if count else (0.0, 0.0)
        return (low + high) / 2

    def boundaries(self, buckets: int) -> list[float]:
        """Returns the lower bounds of `buckets` equal buckets but the first, distinct, without empty ones."""
        count = int(self.counts.sum())
        if not count:
            return []
        lowest, *starts = self.at([0, *(count * bucket // buckets for bucket in range(1, buckets))])
        return [start for start in dict.fromkeys(starts) if start > lowest]


def _cut(keys: Integers, bits: int) -> Integers:
    return np.sign(keys) * (np.abs(keys) >> bits)
