"""Finds images that look alike among all: pairs in buckets of equal bits, joined by one process.

Each pair with at most `distance` different bits agrees in some of the bands that the 64 bits are cut into. So for each
choice of bands, a mask, the rows are compared whose masked bits are equal. A task is one mask, and a part of the values
that it lets through; it reads the looks file by file and holds those of its part. Its result is links, no more than it
has rows that look like another. Clusters follow by union-find over the links of all tasks, whose number grows with the
images that look alike, and not with the rows.

    members(alone=True) ─▶ looks_of ─▶ files ─▶ find_links of each task ─▶ join_links ─▶ rejoin ─ by name ─▶ whole
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.duplicates.clusters import Components, Numbers, Rows
from recordmill.pipeline.build.duplicates.fingerprints import as_numbers, by_number, values

COLOUR_DISTANCE = 12
"""The largest difference, of 255, between the mean colours of images that are alike: 20 % more contrast makes 9."""
PART_ROWS = 4 << 20  # about 400 MiB with the order and the pairs of one step
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplier: the high bits depend on all bits


@dataclass(frozen=True)
class Task:
    """The rows whose masked bits are in one part of several."""

    mask: int
    part: int
    parts: int

    def chooses(self, hashes: Numbers) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Marks the hashes that are compared."""
        if self.parts == 1:
            return np.ones(len(hashes), bool)
        return ((hashes & np.uint64(self.mask)) * SPREAD >> np.uint64(32)) % np.uint64(self.parts) == self.part


def tasks(distance: int, rows: int, part_rows: int = PART_ROWS) -> list[Task]:
    """Lists the tasks for a number of looks."""
    parts = max(1, -(-rows // part_rows))
    return [Task(mask, part, parts) for mask in _masks(distance, _agreeing(rows, distance)) for part in range(parts)]


def looks_of(members: pa.Table) -> pa.Table:
    """Returns `name` and `looks` of each cluster whose images all have a look."""
    lowest = members.filter(pa.array(values(members, "name") == values(members, "row"))).select(["name", "looks"])
    return lowest.filter(pa.array(as_numbers(lowest["looks"])[:, ::2].all(axis=1)))


def find_links(looks: Iterable[pa.Table], distance: int, task: Task) -> pa.Table:
    """Finds the clusters that look alike.

    Args:
        looks: as `looks_of` gives them, of all clusters, in any order.
        distance: the number of the 64 bits of each image that may differ.
        task: the pairs to look at.

    Returns:
        `first` and `second`, the names of clusters: enough of the pairs to join all that are linked.
    """
    names, numbers = [np.empty(0, np.int64)], list[Numbers]()
    for table in looks:
        of_table = as_numbers(table["looks"])
        chosen = task.chooses(of_table[:, 0])
        names.append(values(table, "name")[chosen])
        numbers.append(of_table[chosen])
    name = np.concatenate(names)
    joined = Components(len(name))
    if len(name):
        together = np.concatenate(numbers)
        for first, second in _alike(together[:, ::2], together[:, 1::2], distance, np.uint64(task.mask)):
            joined.join(first, second)
    linked = np.flatnonzero(joined.roots != np.arange(len(name)))
    return pa.table({"first": name[joined.roots[linked]], "second": name[linked]})


def _alike(shapes: Numbers, colours: Numbers, distance: int, mask: np.uint64) -> Iterator[tuple[Rows, Rows]]:
    for first, second in _candidates(shapes[:, 0] & mask):
        near = (_ones(shapes[first] ^ shapes[second]) <= distance).all(axis=1)
        first, second = first[near], second[near]
        one, other = (colours[pair].view(np.uint8).astype(np.int16) for pair in (first, second))
        near = (np.abs(one - other) <= COLOUR_DISTANCE).all(axis=1)
        yield first[near], second[near]


def _candidates(masked: Numbers) -> Iterator[tuple[Rows, Rows]]:
    """Yields all pairs of equal values."""
    order = np.argsort(masked)
    ordered = masked[order]
    first, step = np.arange(len(order)), 1
    while len(first := first[first + step < len(order)]):
        first = first[ordered[first] == ordered[first + step]]
        yield order[first], order[first + step]
        step += 1


def join_links(links: pa.Table) -> pa.Table:
    """Joins the clusters that are linked: gives `name`, rising, and `root`, the lowest name of those joined."""
    ends = np.concatenate([values(links, "first"), values(links, "second")])
    names, node = np.unique(ends, return_inverse=True)
    joined = Components(len(names))
    joined.join(*np.split(node, 2))
    return pa.table({"name": names, "root": names[joined.roots]})


def rejoin(members: pa.Table, joined: pa.Table | None, buckets: int) -> pa.Table:
    """Names the members of clusters after those that they are joined to, and adds their buckets by name."""
    table = members.drop_columns(["looks"])
    if joined is not None and joined.num_rows:
        names, own = values(joined, "name"), values(table, "name")
        nearest = np.minimum(np.searchsorted(names, own), len(names) - 1)
        final = np.where(names[nearest] == own, values(joined, "root")[nearest], own)
        table = table.set_column(table.schema.get_field_index("name"), "name", pa.array(final))
    return by_number(table, "name", buckets)


def whole(members: pa.Table) -> pa.Table:
    """Leaves out the clusters of one row, from all members of some clusters; sorts by cluster and row."""
    ordered = members.sort_by([("name", "ascending"), ("row", "ascending")])
    names = values(ordered, "name")[values(ordered, "first") < 0]
    distinct, counts = np.unique(names, return_counts=True)
    return ordered.filter(pa.array(np.isin(values(ordered, "name"), distinct[counts > 1])))


def _agreeing(rows: int, distance: int) -> int:
    """The number of bands that agree: few need few sorts, but match by chance. Sorting a row costs two pairs."""

    def cost(agreeing: int) -> float:
        bits = 64 * agreeing / (distance + agreeing)
        return math.comb(distance + agreeing, agreeing) * rows * (2 + rows / 2 / 2**bits)

    return min(range(1, 5), key=cost)


def _masks(distance: int, agreeing: int) -> Iterator[int]:
    """Cuts the bits into `distance` + n bands, of which n agree in each pair: a different bit spoils one at most."""
    edges = np.linspace(0, 64, distance + agreeing + 1).round().astype(int).tolist()
    bands = [(1 << end) - (1 << start) for start, end in pairwise(edges)]
    return (sum(chosen) for chosen in combinations(bands, agreeing))


def _ones(numbers: Numbers) -> Numbers:
    """Counts the bits that are 1 (H. S. Warren, Hacker's Delight, 5-1); NumPy does so itself from 2.0 on."""
    numbers = numbers - ((numbers >> np.uint64(1)) & np.uint64(0x5555555555555555))
    numbers = (numbers & np.uint64(0x3333333333333333)) + ((numbers >> np.uint64(2)) & np.uint64(0x3333333333333333))
    numbers = (numbers + (numbers >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (numbers * np.uint64(0x0101010101010101)) >> np.uint64(56)
