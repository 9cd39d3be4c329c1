"""Finds duplicate rows, and decides which split each belongs to.

The first row of a cluster is the one with the lowest hash of its key, whatever the files and their order.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.build.duplicates.clusters import Clusters, Components, Numbers, Rows, find_equal, find_near
from recordmill.pipeline.build.duplicates.contents import Contents, as_numbers
from recordmill.pipeline.errors import UserError

Splits = npt.NDArray[np.int64]


class DuplicatesError(UserError):
    """The spec says `duplicates: fail`, and there are some; the message gives their number and names the first."""


@dataclass(frozen=True)
class Found:
    """The rows that are duplicates, with their splits and hashes."""

    clusters: Clusters
    splits: Splits
    """The index of each row's split in the spec's `splits`."""
    places: Numbers
    """The hashes of the keys, uint64 [rows, 2], which decide the first row of a cluster."""

    @classmethod
    def none(cls) -> "Found":
        """No duplicates."""
        rows = np.empty(0, np.int64)
        return cls(Clusters(rows, rows), rows, np.empty((0, 2), np.uint64))

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """For each row, the index of the first row of its cluster."""
        names = self.clusters.names
        order = np.lexsort((self.clusters.rows, self.places[:, 1], self.places[:, 0], names))
        starts = np.searchsorted(names, names)  # the clusters lie one after another, before the sorting and after
        return order[starts]


def find(contents: Contents, near: int | None, left_out: Rows | None = None) -> Found:
    """Finds the duplicates among rows.

    Args:
        contents: the rows.
        near: how many bits of looks may differ; None where only equal contents count.
        left_out: rows that take no part, rising.
    """
    clusters = find_equal(lambda: _parts(contents, "digest", left_out), contents.rows)
    if near is not None and contents.rows:
        looks = np.concatenate(list(_parts(contents, "looks", left_out)))
        clusters = find_near(looks[:, ::2], looks[:, 1::2], near, clusters)
    if not len(clusters.rows):
        return Found.none()
    splits = contents.take("split", clusters.rows).to_numpy().astype(np.int64)
    return Found(clusters, splits, as_numbers(contents.take("place", clusters.rows)))


def _parts(contents: Contents, column: str, left_out: Rows | None) -> Iterator[Numbers]:
    first = 0
    for numbers in contents.numbers(column):
        if left_out is not None:
            inside = left_out[np.searchsorted(left_out, first) : np.searchsorted(left_out, first + len(numbers))]
            numbers[inside - first] = 0
        yield numbers
        first += len(numbers)


def moved_splits(found: Found, units: Numbers) -> Splits:
    """For each row, the split of the first row of its cluster and of all clusters that its unit links.

    Args:
        found: the duplicates.
        units: the rows' units, each of which stays in one split: the hash of the key, or with `split_by: {group: …}` of
            the group.
    """
    _, node = np.unique(units, return_inverse=True)
    joined = Components(int(node.max(initial=-1)) + 1)
    joined.join(node, node[np.searchsorted(found.clusters.names, found.clusters.names)])
    names = joined.roots[node]
    order = np.lexsort((found.places[:, 1], found.places[:, 0], names))
    return found.splits[order[np.searchsorted(names[order], names)]]
