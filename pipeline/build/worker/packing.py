"""Rows packed by shard: one small element for each (chunk, shard) crosses the shuffle.

The local runner shuffles only a scratch file's name and the batch's number, because it keeps in memory several times
the bytes that it shuffles. Other runners spill to disk, and shuffle the batch itself. Images inside rows move into a
scratch file, too: a table's file, or one in a compressed archive, cannot be read again image by image in the order of a
shard.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.arrow_files import OPTIONS, of_bytes, split, to_bytes
from recordmill.pipeline.dataset.paths import attempt_name
from recordmill.pipeline.sources.images import INLINE, to_scratch


@dataclass(frozen=True)
class Packed:
    """One batch of rows: inline (`data`), or in a scratch file."""

    data: bytes | None = None
    file: str | None = None
    batch: int = 0


def pack(tables: Sequence[pa.Table], scratch: str | None) -> Iterator[tuple[int, Packed]]:
    """Packs keyed rows by `@group`: into a new file in the folder `scratch`, or inline if it is None."""
    if not sum(table.num_rows for table in tables):
        return
    rows = pa.concat_tables(tables)
    parts = split(rows, rows["@group"].to_numpy())
    if scratch is None:
        yield from ((group, Packed(data=to_bytes(part))) for group, part in parts)
        return
    path = os.path.join(scratch, f"{attempt_name('rows')}.arrow")
    groups = []
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema, options=OPTIONS) as writer:
        for group, part in parts:
            writer.write_batch(*part.to_batches())
            groups.append(group)
    yield from ((group, Packed(file=path, batch=number)) for number, group in enumerate(groups))


def unpack(packed: Iterable[Packed]) -> pa.Table:
    """Reads one or more batches back, in any order, as one table."""
    tables = list[pa.Table]()
    for each in packed:
        if each.data is not None:
            tables.append(of_bytes(each.data))
        else:
            with pa.OSFile(each.file) as file:  # not mapped: the pages of all scratch files would stay in memory
                tables.append(pa.Table.from_batches([pa.ipc.open_file(file).get_batch(each.batch)]))
    return pa.concat_tables(tables)


class ImageSpill:
    """A file of this attempt for the images of a chunk, created in the scratch folder for the first image."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._name = f"{attempt_name('images')}.bin"
        self._file: BinaryIO | None = None
        self._size = 0

    def __enter__(self) -> "ImageSpill":
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def move(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Moves the bytes of references, Arrow `binary` of shape [rows] or lists of them, to the scratch file."""
        if pa.types.is_list(column.type):
            lists = column.combine_chunks()
            flat = self.move(pa.chunked_array([pc.list_flatten(lists)]))
            offsets = pc.cumulative_sum(pc.list_value_length(lists)).to_pylist()
            return pa.chunked_array(
                [pa.ListArray.from_arrays(pa.array([0, *offsets], pa.int32()), flat.combine_chunks())]
            )
        if not pc.any(pc.starts_with(column, INLINE)).as_py():
            return column
        moved = [
            self._write(reference) if reference.startswith(INLINE) else reference for reference in column.to_pylist()
        ]
        if self._file is not None:
            self._file.flush()  # other processes may read it at any moment
        return pa.chunked_array([pa.array(moved, pa.binary())])

    def _write(self, reference: bytes) -> bytes:
        if self._file is None:
            self._file = open(os.path.join(self._scratch, self._name), "wb")  # noqa: SIM115 - closed with the spill
        data = memoryview(reference)[len(INLINE) :]
        self._file.write(data)
        self._size += len(data)
        return to_scratch(self._name, self._size - len(data), len(data))
