"""Small Arrow tables in a build's workspace, written atomically; among them files' digests.

A version remembers the digest of each input (`pipeline.build.inputs.input_table`). Each shard leaves the SHA-256 of the
local files that it read images from: they are not read again.

>>> rows = HashedRows(["a", "b"])
>>> rows.find(["b", "c"]).tolist()
[1, -1]
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.context.reports import shard_step
from recordmill.pipeline.versions.stores.base import Store

FOLDER = "digests/files"
DIGEST = pa.binary(32)
OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def to_bytes(table: pa.Table) -> bytes:
    """Writes a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=OPTIONS) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # buckets' clients take bytes only


def of_bytes(data: bytes) -> pa.Table:
    """Reads it back."""
    return pa.ipc.open_stream(data).read_all()


def write_table(workspace: Store, name: str, table: pa.Table) -> None:
    """Writes a table as a file."""
    workspace.write(name, to_bytes(table))


def read_table(workspace: Store, name: str) -> pa.Table | None:
    """Reads a table; None if the file does not exist."""
    data = workspace.read(name)
    return None if data is None else of_bytes(data)


def split(table: pa.Table, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    """Splits a table by its rows' numbers (0 or more); yields each number with its rows, ascending."""
    order = np.argsort(numbers, kind="stable")
    ordered, rising = table.take(order).combine_chunks(), numbers[order]
    for start, end in pairwise(np.flatnonzero(np.diff(rising, prepend=-1, append=-1)).tolist()):
        yield int(rising[start]), ordered.slice(start, end - start)


class HashedRows:
    """The rows of a table by the hashes of their names, collisions included."""

    def __init__(self, names: Iterable[Hashable]) -> None:
        hashes = np.fromiter(map(hash, names), np.int64)
        self._order = np.argsort(hashes)
        self._hashes = hashes[self._order]

    def find(self, names: Iterable[Hashable]) -> npt.NDArray[np.int64]:
        """Returns the row of each name, int64 [names]; -1 if it is missing."""
        wanted = np.fromiter(map(hash, names), np.int64)
        if not len(self._hashes):
            return np.full(len(wanted), -1)
        position = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
        return np.where(self._hashes[position] == wanted, self._order[position], -1)


def taken(column: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> list[bytes | None]:
    """Returns the values of some rows of a column; None for row -1."""
    values: list[bytes | None] = column.take(pa.array(rows, mask=rows < 0)).to_pylist()
    return values


class FileDigests:
    """The digests left by the shards' workers, by source and path: about 50 bytes a file."""

    def __init__(self, workspace: Store) -> None:
        parts = list[pa.Array]()
        self._rows = HashedRows(_paths(workspace, parts))
        self._digests = pa.chunked_array(parts, DIGEST)

    def find(self, paths: Sequence[str]) -> list[bytes | None]:
        """Returns the digest of each file; None if no shard read it."""
        return taken(self._digests, self._rows.find(paths))


def write_file_digests(workspace: Store, group: int, digests: Mapping[str, bytes]) -> None:
    """Writes the digests of a shard's files, by source and path, unless there are none."""
    if digests:
        paths, values = pa.array(digests.keys(), pa.string()), pa.array(digests.values(), DIGEST)
        write_table(workspace, f"{FOLDER}/{shard_step(group)}.arrow", pa.table({"path": paths, "sha256": values}))


def _paths(workspace: Store, digests: list[pa.Array]) -> Iterator[str]:
    """Yields the paths of the files, shard by shard, and appends their digests to `digests`."""
    for _, data in workspace.read_all(sorted(workspace.names(FOLDER))):
        table = of_bytes(data or b"")
        digests += table["sha256"].chunks
        yield from table["path"].to_pylist()
