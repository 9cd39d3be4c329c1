"""Quantiles of float32 values that do not depend on order, batching or bundles: exact, or within a known bound.

A histogram counts each different value. Where there are more than `LIMIT`, every value loses the lowest bit of its
mantissa, and another, until there are no more than that. How many bits are lost depends on the values alone: a part of
them that needs a coarser histogram needs it in any whole.

>>> seen = Histogram()
>>> seen.add(np.array([1, 2, 3, 4], np.float32))
>>> seen.median(), seen.boundaries(2)
(2.5, [3.0])
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.build.analysis.exact_sums import add_counts

LIMIT = 1 << 17  # different values: about 14 MB; no data needs to lose more than 15 of 31 bits
MANTISSA_BITS = 23


@dataclass
class Histogram:
    """Counts of each value that was seen, as fine as `limit` different ones allow."""

    lost: int = 0
    """The number of low bits of the mantissa that are cut off, towards 0."""
    counts: dict[int, int] = field(default_factory=dict)
    """By the value's magnitude as an integer, with the value's sign: an order-preserving integer for each float32."""
    limit: int = LIMIT

    def add(self, values: npt.NDArray[np.float32]) -> None:
        """Adds finite values of any shape."""
        bits = values.astype(np.float32).ravel().view(np.int32)
        magnitudes = (bits & 0x7FFFFFFF) >> self.lost
        keys, counts = np.unique(np.where(bits < 0, -magnitudes, magnitudes), return_counts=True)
        self._count(keys.tolist(), counts.tolist())

    def merge(self, other: "Histogram") -> None:
        """Adds what another has seen."""
        self._coarsen(other.lost - self.lost)
        keys: Iterable[int] = other.counts
        if self.lost > other.lost:
            keys = [_cut(key, self.lost - other.lost) for key in keys]
        self._count(keys, other.counts.values())

    def _count(self, keys: Iterable[int], counts: Iterable[int]) -> None:
        add_counts(self.counts, keys, counts)
        while len(self.counts) > self.limit:
            self._coarsen(1)

    def _coarsen(self, bits: int) -> None:
        if bits > 0:
            before, self.counts = self.counts, {}
            self.lost += bits
            add_counts(self.counts, (_cut(key, bits) for key in before), before.values())

    @property
    def relative_error(self) -> float:
        """The largest error of a quantile, as a share of the exact one (of 1.2e-38 at least); 0: it is exact."""
        return 2.0 ** (self.lost - MANTISSA_BITS) if self.lost else 0.0

    def at(self, ranks: Iterable[int]) -> list[float]:
        """Gives the values at ranks (0, 1, …) of all values in ascending order; a value is that or nearer to 0."""
        keys = np.array(sorted(self.counts), np.int64)
        ends = np.cumsum([self.counts[key] for key in keys.tolist()])
        chosen = keys[np.searchsorted(ends, np.array([*ranks], np.int64), side="right")]
        values = (np.abs(chosen) << self.lost).astype(np.int32).view(np.float32)
        return np.copysign(values, chosen).astype(np.float64).tolist()

    def median(self) -> float:
        """Gives the middle value, or the mean of the two in the middle; 0 where nothing was seen."""
        count = sum(self.counts.values())
        low, high = self.at([(count - 1) // 2, count // 2]) if count else (0.0, 0.0)
        return (low + high) / 2

    def boundaries(self, buckets: int) -> list[float]:
        """Gives the lower bound of each of `buckets` equal buckets but the first: value number `i * count // buckets`.

        Equal values are in one bucket: a boundary that is there already, or has nothing below it, is left out.
        """
        count = sum(self.counts.values())
        if not count:
            return []
        lowest, *starts = self.at([0, *(count * bucket // buckets for bucket in range(1, buckets))])
        return [start for start in dict.fromkeys(starts) if start > lowest]


def _cut(key: int, bits: int) -> int:
    return -(-key >> bits) if key < 0 else key >> bits
