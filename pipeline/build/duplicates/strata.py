"""Cuts each class by the splits' shares, exact to the row: counts by bucket first, then the few buckets with a cut.

A bucket is a range of split hashes, so buckets in order hold rising hashes. A row's split follows from the keys of its
class alone; the bounds take the place of `placement.split_bounds`.

    class_hashes ─ by hash ─▶ distinct ─▶ a file, and class_counts ─▶ cuts ─▶ bounds, of the files that cuts lie in
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.build_context import Strata
from recordmill.pipeline.dataset.placement import hash_keys

END = 1 << 64


class Cut(NamedTuple):
    """The bound of a split in one class: the hash of a rank among those of its class in one bucket."""

    name: bytes
    split: int
    rank: int


def class_hashes(rows: pa.Table, feature: str) -> pa.Table:
    """Returns `class` (binary), split `hash` (uint64) and `position` of keyed rows; several where a row has several."""
    hashes, _, _ = hash_keys(rows["@key"].to_pylist())
    classes, positions = rows[feature].combine_chunks(), rows["@position"].to_numpy()
    if pa.types.is_list(classes.type):
        parents = pc.list_parent_indices(classes).to_numpy()
        hashes, positions, classes = hashes[parents], positions[parents], pc.list_flatten(classes)
    return pa.table({"class": classes, "hash": hashes, "position": positions})


def distinct(table: pa.Table) -> pa.Table:
    """Returns each class and hash once, by class and hash."""
    grouped = table.select(["class", "hash"]).group_by(["class", "hash"]).aggregate([])
    return grouped.sort_by([("class", "ascending"), ("hash", "ascending")])


def class_counts(table: pa.Table) -> pa.Table:
    """Counts the hashes of each class: `class` and `count`."""
    counts = table["class"].value_counts()
    return pa.table({"class": counts.field("values"), "count": counts.field("counts")})


def cuts(counts: Mapping[int, pa.Table], weights: Sequence[float]) -> tuple[dict[str, list[int]], dict[int, list[Cut]]]:
    """Finds the buckets that the bounds of the classes lie in.

    Args:
        counts: the `class_counts` of each bucket.
        weights: the splits' shares, in order.

    Returns:
        The bounds of each class, all 2**64; and for each bucket that holds bounds, their places.
    """
    of_class: dict[bytes, dict[int, int]] = defaultdict(dict)
    for bucket in sorted(counts):
        for name, count in zip(*(column.to_pylist() for column in counts[bucket].columns), strict=True):
            of_class[name][bucket] = count
    inside: dict[int, list[Cut]] = defaultdict(list)
    for name, buckets in of_class.items():
        ends = list(accumulate(buckets.values()))
        for split, rank in enumerate(_ranks(ends[-1], weights)):
            place = int(np.searchsorted(ends, rank, side="right"))
            if place < len(ends):
                inside[list(buckets)[place]].append(Cut(name, split, rank - (ends[place - 1] if place else 0)))
    return {name.decode(): [END] * len(weights) for name in sorted(of_class)}, inside


def _ranks(count: int, weights: Sequence[float]) -> list[int]:
    shares = [round(weight * 1_000_000) for weight in weights]  # integers: exact on every machine
    total = sum(shares)
    return [(2 * count * cumulated + total) // (2 * total) for cumulated in accumulate(shares)]


def bounds(counts: Mapping[int, pa.Table], weights: Sequence[float], read: Callable[[int], pa.Table]) -> Strata:
    """Returns for each class the upper bounds of the splits' ranges of hashes; the last is 2**64.

    Args:
        counts: the `class_counts` of each bucket.
        weights: the splits' shares, in order.
        read: reads the `distinct` hashes of a bucket.
    """
    strata, inside = cuts(counts, weights)
    for bucket, places in inside.items():
        _fill(strata, read(bucket), places)
    return strata


def _fill(strata: dict[str, list[int]], table: pa.Table, places: Iterable[Cut]) -> None:
    names, hashes = table["class"].to_pylist(), table["hash"].to_numpy()
    starts = {name: start for start, name in reversed(list(enumerate(names)))}
    for cut in places:
        strata[cut.name.decode()][cut.split] = int(hashes[starts[cut.name] + cut.rank])
