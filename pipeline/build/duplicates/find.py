"""Finds duplicates in buckets of fingerprints: rows of equal keys, of equal contents, and images that look alike.

First by key: of the rows of one key in one split, all but the first read become rejects; they take no part, and follow
the first. Then by content: equal rows form a cluster, named after its lowest row.

    rows ─ by key ─▶ follow_firsts ─ by content ─▶ members ─▶ counts, decisions, units

Last by look, among all images. The 64 bits are cut into bands; each pair with at most `distance` different bits agrees
in some bands. So for each choice of bands, a mask, rows with equal masked bits are compared. A task is one mask and a
part of its values; it reads the looks file by file, holds its part, and returns links, which one worker joins.

    members(alone=True) ─▶ looks_of ─▶ files ─▶ find_links of each task ─▶ join_links ─▶ rejoin ─ by name ─▶ whole

>>> find_equal(np.array([[1, 5], [2, 5], [1, 5]], np.uint64))
Clusters(rows=array([0, 2]), names=array([0, 0]))
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.context.arrow_files import read_table, write_table
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.duplicates import fingerprints
from recordmill.pipeline.build.duplicates.fingerprints import Numbers, Rows, as_numbers, pairs, replaced, values
from recordmill.pipeline.errors import UserError

COLOUR_DISTANCE = 12  # the largest difference, of 255, between mean colours of lookalikes; 20 % more contrast makes 9
PART_ROWS = 4 << 20  # about 400 MiB with the order and the pairs of one step
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplier: the high bits depend on all bits


class DuplicatesError(UserError):
    """The spec says `duplicates: fail`, and duplicates exist; the message counts them and names the first."""


@dataclass(frozen=True)
class Clusters:
    """Row numbers, without unique rows, int64 [rows], by cluster and row; each with its cluster's lowest row."""

    rows: Rows
    names: Rows


def follow_firsts(rows: pa.Table) -> pa.Table:
    """Marks rows that repeat the key of an earlier one in their split; they take over its content.

    `rows` are fingerprints with `hash` and `sample`, of all rows of some keys. Returns them, rising, with `first`
    (int64): the earlier row, else -1.
    """
    rows = rows.sort_by("row")
    keys = pairs(rows, "hash", "sample")
    keys[:, 0] ^= values(rows, "split").astype(np.uint64) << np.uint64(48)
    same, source = find_equal(keys), np.arange(rows.num_rows)
    source[same.rows] = same.names
    first = np.where(source == np.arange(rows.num_rows), -1, values(rows, "row")[source])
    for half in ("high", "low"):
        rows = replaced(rows, half, values(rows, half)[source])
    return rows.append_column("first", pa.array(first))


def all_take_part(rows: pa.Table) -> pa.Table:
    """Returns the result of `follow_firsts` for unique keys."""
    return rows.append_column("first", pa.array(np.full(rows.num_rows, -1, np.int64)))


def members(rows: pa.Table, *, alone: bool = False) -> pa.Table:
    """Clusters rows of equal content; with `alone` keeps unique rows, each as a cluster.

    `rows` are fingerprints with `first`, of all rows of some contents. Returns the clusters' rows, by cluster and row,
    with `name` (int64), the cluster's lowest row; rows with `first` of 0 or more take no part and follow that row.
    """
    rows = rows.sort_by("row")
    numbers, first, content = values(rows, "row"), values(rows, "first"), pairs(rows, "high", "low")
    content[first >= 0] = 0
    same, of = find_equal(content), np.full(len(numbers), -1)
    if alone:
        of = np.where(content.any(axis=1), np.arange(len(numbers)), -1)
    of[same.rows] = same.names
    follow = first >= 0
    of[follow] = of[np.searchsorted(numbers, first[follow])]
    inside = np.flatnonzero(of >= 0)
    named = rows.take(pa.array(inside)).append_column("name", pa.array(numbers[of[inside]]))
    return named.sort_by([("name", "ascending"), ("row", "ascending")]).drop_columns(["high", "low"])


def taking_part(rows: pa.Table) -> pa.Table:
    """Leaves out rows that follow another."""
    return rows.filter(pa.array(values(rows, "first") < 0))


def firsts(taking: pa.Table) -> Rows:
    """Returns for each member the index of its cluster's first row, by the key's hash, then row."""
    names = values(taking, "name")
    order = np.lexsort((values(taking, "row"), values(taking, "sample"), values(taking, "hash"), names))
    return order[np.searchsorted(names, names)]  # sorted by cluster before and after


def find_equal(digests: Numbers) -> Clusters:
    """Clusters rows with equal digests, uint64 [rows, 2]; a digest of zeros equals no other."""
    rows = np.flatnonzero(digests.any(axis=1))
    order = np.argsort(digests[rows, 0])  # one half first: it rules out nearly all rows
    halves = digests[rows, 0][order]
    rows = rows[order[in_runs(halves[1:] == halves[:-1], len(rows))]]
    order = np.lexsort((rows, digests[rows, 1], digests[rows, 0]))
    rows = rows[order]
    same = (digests[rows[1:]] == digests[rows[:-1]]).all(axis=1)
    starts = np.append(True, ~same)[: len(rows)]
    names = rows[np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))]
    kept = in_runs(same, len(rows))
    rows, names = rows[kept], names[kept]
    order = np.lexsort((rows, names))
    return Clusters(rows[order], names[order])


def in_runs(same: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
    """Marks sorted values that equal a neighbour; `same` marks those that equal the one before."""
    return (np.append(same, False) | np.append(False, same))[:count]


@dataclass(frozen=True)
class Task:
    """Rows with masked bits in one of several parts."""

    mask: int
    part: int
    parts: int

    def chooses(self, hashes: Numbers) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Marks the hashes to compare."""
        if self.parts == 1:
            return np.ones(len(hashes), bool)
        return ((hashes & np.uint64(self.mask)) * SPREAD >> np.uint64(32)) % np.uint64(self.parts) == self.part


def tasks(distance: int, rows: int, part_rows: int = PART_ROWS) -> list[Task]:
    """Lists the tasks for a number of looks."""

    def cost(agreeing: int) -> float:
        """Estimates the compared pairs: few agreeing bands need few sorts (two pairs a row), but match by chance."""
        bits = 64 * agreeing / (distance + agreeing)
        return math.comb(distance + agreeing, agreeing) * rows * (2 + rows / 2 / 2**bits)

    parts, agreeing = max(1, -(-rows // part_rows)), min(range(1, 5), key=cost)
    return [Task(mask, part, parts) for mask in _masks(distance, agreeing) for part in range(parts)]


def _masks(distance: int, agreeing: int) -> Iterator[int]:
    """Cuts the bits into `distance` + n bands; n agree in each pair, as each different bit spoils one band."""
    edges = np.linspace(0, 64, distance + agreeing + 1).round().astype(int).tolist()
    bands = [(1 << end) - (1 << start) for start, end in pairwise(edges)]
    return (sum(chosen) for chosen in combinations(bands, agreeing))


def write_looks(folder: str, planned: PlannedBuild, bucket: int, classes: pa.Table) -> int:
    """Writes the looks of a bucket's clusters; returns their number."""
    table = looks_of(classes)
    if table.num_rows:
        write_table(planned.workspace, f"{folder}/looks/{bucket:04d}.arrow", table)
    return int(table.num_rows)


def read_looks(folder: str, planned: PlannedBuild) -> Iterator[pa.Table]:
    """Reads the looks of all buckets, one by one."""
    for name in sorted(planned.workspace.sizes(f"{folder}/looks")):
        yield read_table(planned.workspace, name)


def looks_of(members: pa.Table) -> pa.Table:
    """Returns `name` and `looks` of each cluster; leaves out those with an image without a look."""
    lowest = members.filter(pa.array(values(members, "name") == values(members, "row"))).select(["name", "looks"])
    return lowest.filter(pa.array(as_numbers(lowest["looks"])[:, ::2].all(axis=1)))


def find_links(looks: Iterable[pa.Table], distance: int, task: Task) -> pa.Table:
    """Finds a task's lookalikes among all looks: `first` and `second`, enough names to join all linked clusters."""
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
    """Yields pairs of lookalikes among those with equal masked bits: first neighbours, then rows further apart."""
    masked = shapes[:, 0] & mask
    order = np.argsort(masked)
    ordered, start, step = masked[order], np.arange(len(order)), 1
    while len(start := start[start + step < len(order)]):
        start = start[ordered[start] == ordered[start + step]]
        first, second = order[start], order[start + step]
        near = (_ones(shapes[first] ^ shapes[second]) <= distance).all(axis=1)
        first, second = first[near], second[near]
        one, other = (colours[pair].view(np.uint8).astype(np.int16) for pair in (first, second))
        near = (np.abs(one - other) <= COLOUR_DISTANCE).all(axis=1)
        yield first[near], second[near]
        step += 1


def _ones(numbers: Numbers) -> Numbers:
    """Counts 1 bits (H. S. Warren, Hacker's Delight, 5-1); NumPy 2.0 has `bitwise_count`."""
    numbers = numbers - ((numbers >> np.uint64(1)) & np.uint64(0x5555555555555555))
    numbers = (numbers & np.uint64(0x3333333333333333)) + ((numbers >> np.uint64(2)) & np.uint64(0x3333333333333333))
    numbers = (numbers + (numbers >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (numbers * np.uint64(0x0101010101010101)) >> np.uint64(56)


class Components:
    """Connected components of a graph."""

    def __init__(self, count: int) -> None:
        self.roots: Rows = np.arange(count)  # the lowest node of each node's component

    def join(self, first: Rows, second: Rows) -> None:
        """Links pairs of nodes: hangs the higher root under the lower one until nothing changes."""
        while True:
            one, other = self.roots[first], self.roots[second]
            apart = one != other
            if not apart.any():
                return
            first, second, one, other = first[apart], second[apart], one[apart], other[apart]
            np.minimum.at(self.roots, np.maximum(one, other), np.minimum(one, other))
            while (self.roots[self.roots] != self.roots).any():
                self.roots = self.roots[self.roots]


def join_links(links: pa.Table) -> pa.Table:
    """Joins linked clusters: `name`, rising, and `root`, the lowest name joined to it."""
    ends = np.concatenate([values(links, "first"), values(links, "second")])
    names, node = np.unique(ends, return_inverse=True)
    joined = Components(len(names))
    joined.join(*np.split(node, 2))
    return pa.table({"name": names, "root": names[joined.roots]})


def rejoin(members: pa.Table, joined: pa.Table | None, buckets: int) -> pa.Table:
    """Renames members after the joined clusters, and adds their buckets by name."""
    table = members.drop_columns(["looks"])
    if joined is not None:
        own = values(table, "name")
        found = fingerprints.look_up(values(joined, "name"), values(joined, "root"), own, own)
        table = replaced(table, "name", found)
    return table.append_column(fingerprints.BUCKET, pa.array(values(table, "name") % buckets))


def whole(members: pa.Table) -> pa.Table:
    """Leaves out one-row clusters, given all members of some clusters; sorts by cluster and row."""
    ordered = members.sort_by([("name", "ascending"), ("row", "ascending")])
    names = values(ordered, "name")[values(ordered, "first") < 0]
    distinct, counts = np.unique(names, return_counts=True)
    return ordered.filter(pa.array(np.isin(values(ordered, "name"), distinct[counts > 1])))
