"""The SHA-256 of local files whose images a job stored, as it read them: a small table for each shard.

A version remembers the digest of each of its inputs (`pipeline.build.input_table`), so these are not read once more.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.feather

from recordmill.pipeline.build.context.arrow_files import write_table
from recordmill.pipeline.build.context.hashed_rows import HashedRows, taken
from recordmill.pipeline.build.context.steps import shard_step
from recordmill.pipeline.build.context.workspace import Workspace, read_all

FOLDER = "digests/files"
DIGEST = pa.binary(32)


class FileDigests:
    """The digests that the shards' workers left, found by the files' full paths: about 50 bytes a file."""

    def __init__(self, workspace: Workspace) -> None:
        parts = list[pa.Array]()
        self._rows = HashedRows(_paths(workspace, parts))
        self._digests = pa.chunked_array(parts, DIGEST)

    def find(self, paths: Sequence[str]) -> list[bytes | None]:
        """Returns the digest of each file; None for a file whose image no shard has."""
        return taken(self._digests, self._rows.find(paths))


def write_file_digests(workspace: Workspace, group: int, digests: Mapping[str, bytes]) -> None:
    """Writes the digests of a shard's files by their full paths, if there are any."""
    if digests:
        paths, values = pa.array(digests.keys(), pa.string()), pa.array(digests.values(), DIGEST)
        write_table(workspace, f"{FOLDER}/{shard_step(group)}.arrow", pa.table({"path": paths, "sha256": values}))


def _paths(workspace: Workspace, digests: list[pa.Array]) -> Iterator[str]:
    """Yields the paths of one shard's files after another's, and adds their digests."""
    for _, data in read_all(workspace, sorted(workspace.names(FOLDER))):
        table = pa.feather.read_table(pa.BufferReader(data))
        digests += table["sha256"].chunks
        yield from table["path"].to_pylist()
