"""Decisions on duplicates: rows to leave out, or units to move to another split; a small file for each chunk.

A worker only reads its chunk's decisions; none holds those on all rows.

`same_split` moves all rows of a cluster, and of all clusters linked by units, into the first row's split. A unit stays
in one split: a key, or with `split_by: {group: …}` a group. One process joins clusters that share units, and only holds
these; if keys decide the split, it holds none. Everything else is local to a bucket:

    members ─▶ incidences ─ by unit ─▶ shared ─▶ join_clusters ─▶ moves of each bucket of units ─ by chunk ─▶ files
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.context import arrow_files, reports
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.duplicates.find import Components, firsts, in_runs, taking_part
from recordmill.pipeline.build.duplicates.fingerprints import Numbers, look_up, parts_of, replaced, values
from recordmill.pipeline.sources.faults import Reject

Splits = npt.NDArray[np.int64]
DROPPED, MOVED = "decisions/dropped", "decisions/moved"  # folders of the chunks' files
BEST = ("hash", "sample", "to")  # of a cluster's first row: the key's hashes, the split


def write_decisions(folder: str, order: str, planned: PlannedBuild, chunk: int, decided: pa.Table) -> int:
    """Writes a chunk's decisions, sorted by the column `order`; returns the number of rows or units."""
    table = decided.drop_columns(["chunk"]).sort_by(order)
    arrow_files.write_table(planned.workspace, f"{folder}/{reports.chunk_step(chunk)}.arrow", table)
    return int(table.num_rows)


def read_decisions(folder: str | None, planned: PlannedBuild, chunk: int) -> pa.Table | None:
    """Reads a chunk's decisions, if any; None without a folder."""
    if folder is None:
        return None
    return arrow_files.read_table(planned.workspace, f"{folder}/{reports.chunk_step(chunk)}.arrow")


def dropped(members: pa.Table) -> pa.Table:
    """Chooses the rows to leave out, of whole clusters (`find.members`).

    Returns:
        `chunk` and `position` of all members but each cluster's first, and of the rows that repeat such a member's key.
        The latter are rejects: `first_chunk` and `first_position` are the member's, else -1.
    """
    takes = values(members, "first") < 0
    taking = members.filter(pa.array(takes))
    goes = values(taking, "row")[firsts(taking) != np.arange(taking.num_rows)]
    rows, follows = values(members, "row"), values(members, "first")
    out = np.isin(rows, goes) | (~takes & np.isin(follows, goes))
    alone = follows[out] < 0
    chunk, position = parts_of(rows[out])
    first_chunk, first_position = (np.where(alone, -1, part) for part in parts_of(follows[out]))
    return pa.table(
        [chunk, position, first_chunk, first_position], ["chunk", "position", "first_chunk", "first_position"]
    )


def leave_out(decided: pa.Table, rows: pa.Table) -> tuple[pa.Table, list[Reject], int]:
    """Leaves out a chunk's keyed rows listed by its `dropped` table, which rises by position.

    Returns:
        The other rows, the rejects for rows that repeat the key of a dropped one, and the number of duplicates.
    """
    out = values(decided, "position")
    positions = rows["@position"].to_numpy()
    goes = np.isin(positions, out)
    taken = np.searchsorted(out, positions[goes])
    firsts_of = zip(*(values(decided, name)[taken].tolist() for name in ("first_chunk", "first_position")), strict=True)
    rejects = [
        reports.reject_duplicate_key(rows, row, first)
        for row, first in zip(np.flatnonzero(goes).tolist(), firsts_of, strict=True)
        if first[0] >= 0
    ]
    return rows.filter(pa.array(~goes)), rejects, len(taken) - len(rejects)


def move(decided: pa.Table, units: Numbers, splits: Splits) -> Splits:
    """Returns rows' splits after their chunk's moves (`moves_of_chunks`), which rise by `unit`."""
    return look_up(values(decided, "unit"), values(decided, "split"), units, splits)


def incidences(members: pa.Table) -> pa.Table:
    """Lists the clusters' units: `unit`, the cluster's `name`, the unit's `split`, and the cluster's first row."""
    taking = taking_part(members)
    best = taking.take(pa.array(firsts(taking)))
    table = taking.select(["unit", "name", "split"])
    for name, column in zip(BEST, ("hash", "sample", "split"), strict=True):
        table = table.append_column(name, best[column])
    return table


def shared(of_units: pa.Table) -> pa.Table:
    """Chooses the incidences of units in several clusters, from all incidences of some units."""
    ordered = of_units.select(["unit", "name", *BEST]).sort_by([("unit", "ascending"), ("name", "ascending")])
    units, names = values(ordered, "unit"), values(ordered, "name")
    new = np.ones(len(units), bool)
    new[1:] = (units[1:] != units[:-1]) | (names[1:] != names[:-1])
    units = units[new]
    return ordered.filter(pa.array(new)).filter(pa.array(in_runs(units[1:] == units[:-1], len(units))))


def join_clusters(links: pa.Table) -> pa.Table:
    """Joins clusters that share units: `name` and `to`, the split of the joined clusters' first row."""
    names, node = np.unique(values(links, "name"), return_inverse=True)
    units, index = np.unique(values(links, "unit"), return_index=True)
    joined = Components(len(names))
    joined.join(node, node[index][np.searchsorted(units, values(links, "unit"))])
    roots = joined.roots[node]
    order = np.lexsort((values(links, "name"), values(links, "sample"), values(links, "hash"), roots))
    ends = np.searchsorted(roots[order], joined.roots)
    return pa.table({"name": names, "to": values(links, "to")[order[ends]]})


def write_joined(
    name: str, join: Callable[[pa.Table], pa.Table], planned: PlannedBuild, bucket: int, links: pa.Table
) -> str:
    """Joins clusters by all links, into a file; returns its name."""
    arrow_files.write_table(planned.workspace, name, join(links))
    return name


def with_joined(
    planned: PlannedBuild, step: Callable[[pa.Table, pa.Table | None], Any], table: pa.Table, names: Sequence[str]
) -> Any:
    """Calls a step with a table and the joined clusters, or None if `names` is empty."""
    return step(table, arrow_files.read_table(planned.workspace, names[0]) if names else None)


def final_splits(clusters: pa.Table, joined: pa.Table | None) -> pa.Table:
    """Replaces `to` of joined clusters."""
    if joined is None:
        return clusters
    found = look_up(values(joined, "name"), values(joined, "to"), values(clusters, "name"), values(clusters, "to"))
    return replaced(clusters, "to", found)


def moves(of_units: pa.Table, joined: pa.Table | None) -> pa.Table:
    """Lists the moving units, unique and rising, with the new `split`, from all incidences of some units."""
    final = final_splits(of_units, joined)
    moving = final.filter(pa.array(values(final, "split") != values(final, "to")))
    units, index = np.unique(values(moving, "unit"), return_index=True)
    return pa.table({"unit": pa.array(units, pa.uint64()), "split": pa.array(values(moving, "to")[index], pa.int64())})


def moves_of_chunks(moved: pa.Table, units: pa.Table) -> pa.Table:
    """Lists each chunk's moves: `chunk`, `unit` and `split`, by chunk and unit.

    `moved` are the moving units (`moves`); `units` has `unit` and `chunk` for each chunk with rows of a unit.
    """
    targets, wanted = values(moved, "unit"), values(units, "unit")
    inside = np.isin(wanted, targets)
    found = np.unique(np.stack([values(units, "chunk")[inside].astype(np.uint64), wanted[inside]], axis=1), axis=0)
    split = values(moved, "split")[np.searchsorted(targets, found[:, 1])]
    return pa.table({"chunk": found[:, 0].astype(np.int64), "unit": found[:, 1], "split": split})
