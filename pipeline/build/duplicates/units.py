"""Brings duplicates into one split: all rows of a cluster, and of all that its units link, go where the first is.

A unit is what stays in one split: a key, or with `split_by: {group: …}` a group. One process joins the clusters that
share units, and holds these alone: none where the key decides the split. Everything else is local to a bucket:

    members ─▶ incidences ─ by unit ─▶ shared ─▶ join_clusters ─▶ moves of each bucket of units ─ by chunk ─▶ files
"""

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.duplicates.clusters import Components
from recordmill.pipeline.build.duplicates.counts import EXAMPLES, Counts, Pair
from recordmill.pipeline.build.duplicates.find import firsts, taking_part
from recordmill.pipeline.build.duplicates.fingerprints import values

BEST = ("hash", "sample", "to")
"""The columns that describe a cluster's first row: the hashes of its key, and its split."""


def incidences(members: pa.Table) -> pa.Table:
    """Returns the clusters' units: `unit`, `name` of the cluster, the unit's `split`, and the cluster's first row."""
    taking = taking_part(members)
    best = taking.take(pa.array(firsts(taking)))
    table = taking.select(["unit", "name", "split"])
    for name, column in zip(BEST, ("hash", "sample", "split"), strict=True):
        table = table.append_column(name, best[column])
    return table


def shared(of_units: pa.Table) -> pa.Table:
    """Chooses the incidences of units that are in several clusters, from all incidences of some units."""
    ordered = of_units.select(["unit", "name", *BEST]).sort_by([("unit", "ascending"), ("name", "ascending")])
    units, names = values(ordered, "unit"), values(ordered, "name")
    new = np.ones(len(units), bool)
    new[1:] = (units[1:] != units[:-1]) | (names[1:] != names[:-1])
    ordered, units = ordered.filter(pa.array(new)), units[new]
    same = units[1:] == units[:-1]
    return ordered.filter(pa.array(np.append(same, False) | np.append(False, same))[: len(units)])


def join_clusters(links: pa.Table) -> pa.Table:
    """Joins the clusters that share units: gives `name` and `to`, the split of the first row of all that are joined."""
    names, node = np.unique(values(links, "name"), return_inverse=True)
    units, index = np.unique(values(links, "unit"), return_index=True)
    joined = Components(len(names))
    joined.join(node, node[index][np.searchsorted(units, values(links, "unit"))])
    roots = joined.roots[node]
    order = np.lexsort((values(links, "name"), values(links, "sample"), values(links, "hash"), roots))
    ends = np.searchsorted(roots[order], joined.roots)
    return pa.table({"name": names, "to": values(links, "to")[order[ends]]})


def final_splits(clusters: pa.Table, joined: pa.Table | None) -> pa.Table:
    """Replaces `to` where a cluster is joined to others."""
    if joined is None or not joined.num_rows:
        return clusters
    names, to = values(joined, "name"), values(joined, "to")
    own = values(clusters, "name")
    nearest = np.minimum(np.searchsorted(names, own), len(names) - 1)
    final = np.where(names[nearest] == own, to[nearest], values(clusters, "to"))
    return clusters.set_column(clusters.schema.get_field_index("to"), "to", pa.array(final))


def moves(of_units: pa.Table, joined: pa.Table | None) -> pa.Table:
    """Returns the units that move, each once and rising, with their new `split`, from all incidences of some units."""
    final = final_splits(of_units, joined)
    moving = final.filter(pa.array(values(final, "split") != values(final, "to")))
    units, index = np.unique(values(moving, "unit"), return_index=True)
    return pa.table({"unit": pa.array(units, pa.uint64()), "split": pa.array(values(moving, "to")[index], pa.int64())})


def moves_of_chunks(moved: pa.Table, units: pa.Table) -> pa.Table:
    """Returns the moves that concern each chunk.

    Args:
        moved: the units that move (`moves`).
        units: `unit` and `chunk`, for each chunk that has rows of a unit, at least once.

    Returns:
        `chunk`, `unit` and `split`, by chunk and unit.
    """
    targets, wanted = values(moved, "unit"), values(units, "unit")
    inside = np.isin(wanted, targets)
    found = np.unique(np.stack([values(units, "chunk")[inside].astype(np.uint64), wanted[inside]], axis=1), axis=0)
    split = values(moved, "split")[np.searchsorted(targets, found[:, 1])]
    return pa.table({"chunk": found[:, 0].astype(np.int64), "unit": found[:, 1], "split": split})


def outline(members: pa.Table) -> pa.Table:
    """Returns what is counted of clusters once they are in one split: `name`, `rows`, the `second` row, and `to`."""
    taking = taking_part(members)
    names = values(taking, "name")
    starts, counts = np.unique(names, return_index=True, return_counts=True)[1:]
    to = values(taking, "split")[firsts(taking)[starts]]
    return pa.table({"name": names[starts], "rows": counts, "second": values(taking, "row")[starts + 1], "to": to})


def count_moved(outlines: pa.Table, joined: pa.Table | None) -> Counts:
    """Counts clusters after the moves: each is within one split."""
    final = final_splits(outlines, joined).sort_by("name")
    names, rows, splits = values(final, "name"), values(final, "rows") - 1, values(final, "to")
    counts = Counts(len(names), int(rows.sum()))
    for split in np.unique(splits).tolist():
        counts.within[split] = int(rows[splits == split].sum())
    lowest = (names, splits, values(final, "second"), splits)
    counts.seconds = [Pair(*pair) for pair in zip(*(column[:EXAMPLES].tolist() for column in lowest), strict=True)]
    return counts
