"""Tables of summaries as bytes: in one file with a digest, and in pieces that cross a shuffle.

>>> data = to_file({"rows": pa.table({"rows": [3]})}, "chunk 7")
>>> of_file(data, "chunk 7")["rows"].num_rows, of_file(data[:-1], "chunk 7"), of_file(data, "chunk 8")
(1, None, None)
"""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.summaries.base import Buckets

OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
DIGEST = hashlib.sha256().digest_size


def to_bytes(table: pa.Table) -> bytes:
    """Returns a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=OPTIONS) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def of_bytes(data: bytes) -> pa.Table:
    """Reads it back."""
    return pa.ipc.open_stream(data).read_all()


def to_file(tables: Mapping[str, pa.Table], subject: str) -> bytes:
    """Returns tables by name as the bytes of a file, which `of_file` reads for the same subject alone."""
    cells = pa.table({"name": list(tables), "table": pa.array(map(to_bytes, tables.values()), pa.large_binary())})
    data = to_bytes(cells)
    return hashlib.sha256(subject.encode() + data).digest() + data


def of_file(data: bytes | None, subject: str) -> dict[str, pa.Table] | None:
    """Reads them back; None where there is no file, it is damaged, or it is another subject's."""
    if data is None or data[:DIGEST] != hashlib.sha256(subject.encode() + data[DIGEST:]).digest():
        return None
    cells = of_bytes(data[DIGEST:])
    return {row["name"]: of_bytes(row["table"]) for row in cells.to_pylist()}


def split(table: pa.Table, buckets: Buckets) -> Iterator[tuple[int, pa.Table]]:
    """Splits a table by the buckets of its rows: those that have rows, rising."""
    order = np.argsort(buckets, kind="stable")
    ordered, rising = table.take(order), buckets[order]
    bounds = np.flatnonzero(np.diff(rising, prepend=-1, append=-1)).tolist() if len(rising) else list[int]()
    for start, end in pairwise(bounds):
        yield int(rising[start]), ordered.slice(start, end - start)
