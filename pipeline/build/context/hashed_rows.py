"""The rows of a table found by the hash of their names: 16 bytes a row, where a dictionary takes some hundred.

>>> rows = HashedRows(["a", "b"])
>>> rows.find(["b", "c"]).tolist()
[1, -1]
"""

from collections.abc import Hashable, Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class HashedRows:
    """The rows of a table; a name of an equal hash would be found, too."""

    def __init__(self, names: Iterable[Hashable]) -> None:
        hashes = np.fromiter(map(hash, names), np.int64)
        self._order = np.argsort(hashes)
        self._hashes = hashes[self._order]

    def find(self, names: Iterable[Hashable]) -> npt.NDArray[np.int64]:
        """Returns the row of each name, int64 [names]; -1 for a name that no row has."""
        wanted = np.fromiter(map(hash, names), np.int64)
        if not len(self._hashes):
            return np.full(len(wanted), -1)
        position = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
        return np.where(self._hashes[position] == wanted, self._order[position], -1)


def taken(column: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> list[bytes | None]:
    """Returns the values of some rows of a column; None for row -1."""
    values: list[bytes | None] = column.take(pa.array(rows, mask=rows < 0)).to_pylist()
    return values
