"""Small Arrow tables as files of a build's folder, seen whole or not at all.

write_table("moved.arrow", pa.table({"unit": [7], "split": [1]}))
read_table("moved.arrow", "split")
"""

import pyarrow as pa
import pyarrow.feather

from recordmill.pipeline.dataset.atomic_files import write_atomically


def write_table(path: str, table: pa.Table) -> None:
    """Writes a table as Feather."""
    sink = pa.BufferOutputStream()
    pa.feather.write_feather(table, sink, compression="lz4")
    write_atomically(path, sink.getvalue())


def read_table(path: str, *columns: str) -> pa.Table:
    """Reads a table, or some of its columns; not mapped, since the pages of all files would stay in memory."""
    return pa.feather.read_table(path, columns=columns or None, memory_map=False)
