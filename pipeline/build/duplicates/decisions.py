"""The decisions on duplicates for the workers of a build: rows to leave out, or to move to another split.

Two files of the build's folder, written by the driver (`worker.content_pass`) and read once by each process.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.context.arrow_files import read_table, write_table
from recordmill.pipeline.build.context.rejects import reject_duplicate_key
from recordmill.pipeline.build.duplicates.clusters import Numbers
from recordmill.pipeline.sources.rejects import Reject

Splits = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]
"""The chunks that rows were read from and their positions in them, [rows, 2]."""


def write_moved(path: str, units: Numbers, splits: Splits) -> None:
    """Writes the new splits of units, each once and rising: a unit is a key's split hash, or that of its group."""
    write_table(path, pa.table({"unit": pa.array(units, pa.uint64()), "split": pa.array(splits, pa.int64())}))


def move(path: str, units: Numbers, splits: Splits) -> Splits:
    """Returns the splits of rows, after those that the file moves.

    Args:
        path: the file.
        units: the rows' units.
        splits: the splits that the rows have without it.
    """
    moved, to = _read_moved(path)
    if not len(moved):
        return splits
    nearest = np.minimum(np.searchsorted(moved, units), len(moved) - 1)
    return np.where(moved[nearest] == units, to[nearest], splits)


@lru_cache(maxsize=2)
def _read_moved(path: str) -> tuple[Numbers, Splits]:
    table = read_table(path)
    return table["unit"].to_numpy(), table["split"].to_numpy()


def write_dropped(path: str, rows: Places, firsts: Places) -> None:
    """Writes the rows to leave out.

    Args:
        path: the file.
        rows: where they were read.
        firsts: -1 twice for most rows; for a row that is a reject, since a row that is left out has its key, the chunk
            and position of that one.
    """
    order = np.lexsort((rows[:, 1], rows[:, 0]))
    columns = np.concatenate([rows, firsts], axis=1)[order]
    names = ("chunk", "position", "first_chunk", "first_position")
    write_table(path, pa.table(dict(zip(names, map(pa.array, columns.T), strict=True))))


@dataclass(frozen=True)
class Remaining:
    """The rows that are not left out, and the fate of the others."""

    rows: pa.Table
    dropped: int
    """The number of rows left out as duplicates."""
    rejects: list[Reject]
    """The rows whose key is that of a row left out."""


def leave_out(path: str, rows: pa.Table, chunk: int) -> Remaining:
    """Leaves out a chunk's keyed rows that are in the file."""
    dropped = _read_dropped(path)
    dropped = dropped[slice(*np.searchsorted(dropped[:, 0], [chunk, chunk + 1]))]
    positions = rows["@position"].to_numpy()
    goes = np.isin(positions, dropped[:, 1])
    firsts = dropped[np.searchsorted(dropped[:, 1], positions[goes]), 2:].tolist()
    rejects = [
        reject_duplicate_key(rows, row, (chunk_of_first, position))
        for row, (chunk_of_first, position) in zip(np.flatnonzero(goes).tolist(), firsts, strict=True)
        if chunk_of_first >= 0
    ]
    return Remaining(rows.filter(pa.array(~goes)), len(firsts) - len(rejects), rejects)


@lru_cache(maxsize=2)
def _read_dropped(path: str) -> Places:
    return np.stack([column.to_numpy() for column in read_table(path).columns], axis=1)
