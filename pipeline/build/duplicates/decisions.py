"""The decisions on duplicates: rows to leave out, or units to move to another split; a small file for each chunk.

A worker reads those of the chunk that it reads, so that none holds the decisions on all rows.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.context.rejects import reject_duplicate_key
from recordmill.pipeline.build.duplicates.clusters import Numbers
from recordmill.pipeline.build.duplicates.find import firsts
from recordmill.pipeline.build.duplicates.fingerprints import parts_of, values
from recordmill.pipeline.sources.faults import Reject

Splits = npt.NDArray[np.int64]
DROPPED, MOVED = "decisions/dropped", "decisions/moved"
"""The folders of the chunks' files."""


def dropped(members: pa.Table) -> pa.Table:
    """Returns the rows to leave out, of whole clusters (`find.members`).

    Returns:
        `chunk` and `position` of all members but the first of each cluster, and of the rows that have the key of one
        of these, which are rejects: these have `first_chunk` and `first_position` of it, the others -1.
    """
    takes = values(members, "first") < 0
    taking = members.filter(pa.array(takes))
    goes = values(taking, "row")[firsts(taking) != np.arange(taking.num_rows)]
    rows, follows = values(members, "row"), values(members, "first")
    out = np.isin(rows, goes) | (~takes & np.isin(follows, goes))
    (chunk, position), (first_chunk, first_position) = parts_of(rows[out]), parts_of(follows[out])
    alone = follows[out] < 0
    columns = {
        "chunk": chunk,
        "position": position,
        "first_chunk": np.where(alone, -1, first_chunk),
        "first_position": np.where(alone, -1, first_position),
    }
    return pa.table(columns)


@dataclass(frozen=True)
class Remaining:
    """The rows that are not left out, and the fate of the others."""

    rows: pa.Table
    dropped: int
    """The number of rows left out as duplicates."""
    rejects: list[Reject]
    """The rows whose key is that of a row left out."""


def leave_out(decided: pa.Table, rows: pa.Table) -> Remaining:
    """Leaves out the keyed rows of a chunk that its table of `dropped` rows names; the table rises by position."""
    left = values(decided, "position")
    positions = rows["@position"].to_numpy()
    goes = np.isin(positions, left)
    taken = np.searchsorted(left, positions[goes])
    firsts_of = zip(*(values(decided, name)[taken].tolist() for name in ("first_chunk", "first_position")), strict=True)
    rejects = [
        reject_duplicate_key(rows, row, first)
        for row, first in zip(np.flatnonzero(goes).tolist(), firsts_of, strict=True)
        if first[0] >= 0
    ]
    return Remaining(rows.filter(pa.array(~goes)), len(taken) - len(rejects), rejects)


def move(decided: pa.Table, units: Numbers, splits: Splits) -> Splits:
    """Returns the splits of rows, after those that the chunk's table of moves names (`units.moves_of_chunks`).

    Args:
        decided: the chunk's moves, rising by `unit`.
        units: the rows' units.
        splits: the splits that the rows have without it.
    """
    moved, to = values(decided, "unit"), values(decided, "split")
    if not len(moved):
        return splits
    nearest = np.minimum(np.searchsorted(moved, units), len(moved) - 1)
    return np.where(moved[nearest] == units, to[nearest], splits)
