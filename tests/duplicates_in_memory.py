"""Duplicates found among all rows at once, in plain Python: the oracle of those that are found by buckets."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A row with all that is compared; `look` is the shape and the colour of its image, or zeros."""

    row: int
    split: int
    hash: int
    sample: int
    unit: int
    digest: int
    look: tuple[int, int] = (0, 0)


Clusters = dict[int, list[Row]]
"""The rows of each cluster, rising, by its lowest row."""


def components(links: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The lowest node that each linked node reaches."""
    near: dict[int, set[int]] = defaultdict(set)
    for one, other in links:
        near[one].add(other)
        near[other].add(one)
    root: dict[int, int] = {}
    for start in sorted(near):
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if node not in root:
                root[node] = start
                waiting += near[node]
    return root


def first_of_key(rows: list[Row]) -> dict[int, int]:
    """The earlier row of each row whose key is repeated in its split."""
    first: dict[tuple[int, int, int], int] = {}
    later = {}
    for row in sorted(rows):
        found = first.setdefault((row.hash, row.sample, row.split), row.row)
        if found != row.row:
            later[row.row] = found
    return later


def alike(one: Row, other: Row, distance: int | None) -> bool:
    """Whether two rows are duplicates."""
    if one.digest and one.digest == other.digest:
        return True
    if distance is None or not one.look[0] or not other.look[0]:
        return False
    return (one.look[0] ^ other.look[0]).bit_count() <= distance and abs(one.look[1] - other.look[1]) <= 12


def clusters(rows: list[Row], distance: int | None) -> Clusters:
    """All clusters of the rows that take part."""
    later = first_of_key(rows)
    taking = [row for row in sorted(rows) if row.row not in later]
    root = components((one.row, other.row) for one, other in combinations(taking, 2) if alike(one, other, distance))
    found: Clusters = defaultdict(list)
    for row in taking:
        if row.row in root:
            found[root[row.row]].append(row)
    return dict(found)


def first(rows: list[Row]) -> Row:
    """The first row of a cluster."""
    return min(rows, key=lambda row: (row.hash, row.sample, row.row))


def dropped(rows: list[Row], distance: int | None) -> dict[int, int]:
    """The rows to leave out: -1, or for a reject the row that has its key."""
    goes = {row.row: -1 for cluster in clusters(rows, distance).values() for row in cluster if row != first(cluster)}
    return goes | {row: to for row, to in first_of_key(rows).items() if to in goes}


def new_splits(found: Clusters) -> dict[int, int]:
    """The split of each cluster: that of the first row of it and of all clusters that units link."""
    by_unit: dict[int, set[int]] = defaultdict(set)
    for name, cluster in found.items():
        for row in cluster:
            by_unit[row.unit].add(name)
    links = [(min(names), name) for names in by_unit.values() for name in names]
    root = components(links)
    best: dict[int, tuple[tuple[int, int, int, int], int]] = {}
    for name, cluster in found.items():
        key = min((row.hash, row.sample, name, row.row) for row in cluster)
        split = next(row.split for row in cluster if row.row == key[3])
        best[root[name]] = min(best.get(root[name], (key, split)), (key, split))
    return {name: best[root[name]][1] for name in found}


def moved(rows: list[Row], distance: int | None) -> dict[int, int]:
    """The units that move, with their splits."""
    found = clusters(rows, distance)
    to = new_splits(found)
    return {row.unit: to[name] for name, cluster in found.items() for row in cluster if row.split != to[name]}


def counted(found: Clusters, split_of: Callable[[int, Row], int] = lambda name, row: row.split) -> dict[str, Any]:
    """The counts of clusters, and the example pairs."""
    within: Counter[int] = Counter()
    across: Counter[tuple[int, int]] = Counter()
    astride, seconds = [], []
    for name, cluster in sorted(found.items()):
        splits = [split_of(name, row) for row in cluster]
        counts = Counter(splits)
        within.update({split: count - 1 for split, count in counts.items() if count > 1})
        across.update({pair: counts[pair[1]] for pair in combinations(sorted(counts), 2)})
        pairs = [(cluster[0].row, splits[0], row.row, split) for row, split in zip(cluster, splits, strict=True)]
        astride += [pair for pair in pairs if pair[3] != pair[1]][:1]
        seconds.append(pairs[1])
    chosen: dict[int, tuple[int, int, int, int]] = {}
    for pair in [*astride[:5], *seconds[:5]]:
        if len(chosen) < 5:
            chosen.setdefault(pair[0], pair)
    rows = sum(map(len, found.values())) - len(found)
    return {
        "groups": len(found), "rows": rows, "within": dict(within), "across": dict(across),
        "pairs": list(chosen.values()),
    }  # fmt: skip
