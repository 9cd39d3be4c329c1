"""Small Arrow tables as files of a build's workspace, seen whole or not at all.

write_table(workspace, "decisions/moved/chunk-000000.arrow", pa.table({"unit": [7], "split": [1]}))
read_table(workspace, "decisions/moved/chunk-000000.arrow", "split")
"""

import pyarrow as pa
import pyarrow.feather

from recordmill.pipeline.build.context.workspace import Workspace


def write_table(workspace: Workspace, name: str, table: pa.Table) -> None:
    """Writes a table as Feather."""
    sink = pa.BufferOutputStream()
    pa.feather.write_feather(table, sink, compression="lz4")
    workspace.write(name, sink.getvalue().to_pybytes())  # clients of buckets take nothing but bytes


def read_table(workspace: Workspace, name: str, *columns: str) -> pa.Table | None:
    """Reads a table, or some of its columns; None if the file does not exist."""
    data = workspace.read(name)
    return None if data is None else pa.feather.read_table(pa.BufferReader(data), columns=columns or None)
