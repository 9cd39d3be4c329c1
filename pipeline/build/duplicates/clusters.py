"""Clusters rows that are duplicates: by equal digests, and by images that look alike. NumPy alone.

A row is a number. Its lowest row names a cluster; a row without a duplicate is in no cluster. The allowed memory does
not change the clusters.

>>> digests = np.array([[1, 5], [2, 5], [1, 5]], np.uint64)
>>> find_equal(lambda: [digests], total=3)
Clusters(rows=array([0, 2]), names=array([0, 0]))
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
MEMORY = 64 << 20  # 64 MiB, in one pass over the digests
ROW_BYTES = 48  # a digest, its row, and their order while they are sorted
COLOUR_DISTANCE = 12
"""The largest difference, of 255, between the mean colours of images that are alike: 20 % more contrast makes 9."""


@dataclass(frozen=True)
class Clusters:
    """The rows that are in clusters, int64 [rows], by cluster and row; and the lowest row of each one's cluster."""

    rows: Rows
    names: Rows

    @classmethod
    def of(cls, rows: Rows, *keys: npt.NDArray[np.generic]) -> "Clusters":
        """Clusters rows by equal keys; the rows are distinct numbers, in any order."""
        order = np.lexsort((rows, *keys))
        rows = rows[order]
        same = np.ones(max(0, len(rows) - 1), bool)
        for key in keys:
            same &= key[order][1:] == key[order][:-1]
        is_first = np.concatenate([np.ones(1, bool), ~same])[: len(rows)]
        names = rows[np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))]
        kept = _with_neighbours(same, len(rows))
        return cls(rows[kept], names[kept]).ordered()

    def ordered(self) -> "Clusters":
        """Sorts by cluster and row."""
        order = np.lexsort((self.rows, self.names))
        return Clusters(self.rows[order], self.names[order])

    @property
    def count(self) -> int:
        """The number of clusters."""
        return int((self.rows == self.names).sum())


def _with_neighbours(same: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
    """Marks sorted values that equal a neighbour; `same` tells it of each value but the last for the next one."""
    return (np.append(same, False) | np.append(False, same))[:count]


def find_equal(parts: Callable[[], Iterable[Numbers]], total: int, memory: int = MEMORY) -> Clusters:
    """Clusters the rows whose digests are equal.

    Args:
        parts: reads all digests, in the rows' order: uint64 [rows, 2]; a digest of zeros equals no other.
        total: the number of rows.
        memory: about how many bytes may be held, beside 16 for each row that is in a cluster; the digests are read as
            often as that needs, each time those of one residue.
    """
    passes = 1 << max(0, math.ceil(total * ROW_BYTES / memory) - 1).bit_length()
    clusters = [_equal(*_chosen(parts(), passes, residue)) for residue in range(passes)]
    rows, names = (
        np.concatenate(column) for column in zip(*((part.rows, part.names) for part in clusters), strict=True)
    )
    return Clusters(rows, names).ordered()


def _chosen(parts: Iterable[Numbers], passes: int, residue: int) -> tuple[Rows, Numbers]:
    rows, chosen, first = [np.empty(0, np.int64)], [np.empty((0, 2), np.uint64)], 0
    for digests in parts:
        places = np.flatnonzero((digests[:, 0] % np.uint64(passes) == residue) & digests.any(axis=1))
        rows.append(places + first)
        chosen.append(digests[places])
        first += len(digests)
    return np.concatenate(rows), np.concatenate(chosen)


def _equal(rows: Rows, digests: Numbers) -> Clusters:
    """Sorts by one half first: nearly all rows are out then."""
    order = np.argsort(digests[:, 0])
    ordered = digests[order, 0]
    kept = order[_with_neighbours(ordered[1:] == ordered[:-1], len(order))]
    return Clusters.of(rows[kept], digests[kept, 1], digests[kept, 0])


def find_near(shapes: Numbers, colours: Numbers, distance: int, equal: Clusters) -> Clusters:
    """Clusters the rows whose images look alike, directly or over others, and those that are equal.

    Args:
        shapes: the images' hashes (`pipeline.build.images.perceptual_hash`), uint64 [rows, images]; a row with a 0
            is like no other.
        colours: their colours, of the same shape.
        distance: the number of the 64 bits of each image that may differ.
        equal: clusters that are joined anyway.
    """
    joined = Components(len(shapes))
    joined.join(equal.rows, equal.names)
    rows = np.flatnonzero(shapes.all(axis=1))
    alike = Clusters.of(rows, *shapes[rows].T, *colours[rows].T)
    joined.join(alike.rows, alike.names)
    rows = np.setdiff1d(rows, alike.rows[alike.rows != alike.names], assume_unique=True)
    shapes, colours = shapes[rows], colours[rows]
    for first, second in _candidates(shapes[:, 0], distance):
        near = (_ones(shapes[first] ^ shapes[second]) <= distance).all(axis=1)
        first, second = first[near], second[near]
        one, other = (colours[pair].view(np.uint8).astype(np.int16) for pair in (first, second))
        near = (np.abs(one - other) <= COLOUR_DISTANCE).all(axis=1)
        joined.join(rows[first[near]], rows[second[near]])
    return Clusters.of(np.arange(len(joined.roots)), joined.roots)


def _candidates(hashes: Numbers, distance: int) -> Iterator[tuple[Rows, Rows]]:
    """Yields all pairs with at most `distance` different bits, and others.

    The bits are cut into `distance` + n bands, of which n agree in such a pair: each different bit spoils one at most.
    """
    for mask in _masks(distance, _agreeing(len(hashes), distance)):
        masked = hashes & mask
        order = np.argsort(masked)
        ordered = masked[order]
        first, step = np.arange(len(order)), 1
        while len(first := first[first + step < len(order)]):
            first = first[ordered[first] == ordered[first + step]]
            yield order[first], order[first + step]
            step += 1


def _agreeing(rows: int, distance: int) -> int:
    """The number of bands that agree: few need few sorts, but match by chance. Sorting a row costs two pairs."""

    def cost(agreeing: int) -> float:
        bits = 64 * agreeing / (distance + agreeing)
        return math.comb(distance + agreeing, agreeing) * rows * (2 + rows / 2 / 2**bits)

    return min(range(1, 5), key=cost)


def _masks(distance: int, agreeing: int) -> Iterator[np.uint64]:
    edges = np.linspace(0, 64, distance + agreeing + 1).round().astype(int).tolist()
    bands = [(1 << end) - (1 << start) for start, end in pairwise(edges)]
    return (np.uint64(sum(chosen)) for chosen in combinations(bands, agreeing))


def _ones(numbers: Numbers) -> Numbers:
    """Counts the bits that are 1 (H. S. Warren, Hacker's Delight, 5-1); NumPy does so itself from 2.0 on."""
    numbers = numbers - ((numbers >> np.uint64(1)) & np.uint64(0x5555555555555555))
    numbers = (numbers & np.uint64(0x3333333333333333)) + ((numbers >> np.uint64(2)) & np.uint64(0x3333333333333333))
    numbers = (numbers + (numbers >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (numbers * np.uint64(0x0101010101010101)) >> np.uint64(56)


class Components:
    """The connected components of a graph."""

    def __init__(self, count: int) -> None:
        self.roots: Rows = np.arange(count)
        """The lowest node of each node's component."""

    def join(self, first: Rows, second: Rows) -> None:
        """Links nodes pair by pair: hangs the higher root under the lower one until nothing changes."""
        while True:
            one, other = self.roots[first], self.roots[second]
            apart = one != other
            if not apart.any():
                return
            first, second, one, other = first[apart], second[apart], one[apart], other[apart]
            np.minimum.at(self.roots, np.maximum(one, other), np.minimum(one, other))
            while (self.roots[self.roots] != self.roots).any():
                self.roots = self.roots[self.roots]
