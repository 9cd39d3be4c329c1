"""Clusters rows by equal digests, and joins what is linked. NumPy alone.

A row is a number. Its lowest row names a cluster; a row without a duplicate is in no cluster.

>>> find_equal(np.array([[1, 5], [2, 5], [1, 5]], np.uint64))
Clusters(rows=array([0, 2]), names=array([0, 0]))
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Clusters:
    """The rows that are in clusters, int64 [rows], by cluster and row; and the lowest row of each one's cluster."""

    rows: Rows
    names: Rows


def find_equal(digests: Numbers) -> Clusters:
    """Clusters the rows whose digests are equal.

    Args:
        digests: uint64 [rows, 2]; a digest of zeros equals no other.
    """
    rows = np.flatnonzero(digests.any(axis=1))
    halves = digests[rows, 0]
    order = np.argsort(halves)  # by one half first: nearly all rows are out then
    rows = rows[order[_with_neighbours(halves[order])]]
    order = np.lexsort((rows, digests[rows, 1], digests[rows, 0]))
    rows = rows[order]
    same = (digests[rows[1:]] == digests[rows[:-1]]).all(axis=1)
    starts = np.append(True, ~same)[: len(rows)]
    names = rows[np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))]
    kept = (np.append(same, False) | np.append(False, same))[: len(rows)]
    rows, names = rows[kept], names[kept]
    order = np.lexsort((rows, names))
    return Clusters(rows[order], names[order])


def _with_neighbours(ordered: Numbers) -> npt.NDArray[np.bool_]:
    """Marks sorted values that equal a neighbour."""
    same = ordered[1:] == ordered[:-1]
    return (np.append(same, False) | np.append(False, same))[: len(ordered)]


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
