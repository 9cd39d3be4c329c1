"""Moves images that came inside their rows into a scratch file, so that packed and shuffled rows stay small.

A table's file, or one inside a compressed archive, cannot be read again image by image in the order of a shard.
"""

import os
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.dataset.atomic_files import attempt_name
from recordmill.pipeline.sources.images import INLINE, to_scratch


class ImageSpill:
    """One file for the images of a chunk; it is not created before a row holds an image."""

    def __init__(self, scratch: str) -> None:
        """Takes the scratch folder; the file is of this attempt alone."""
        self._scratch = scratch
        self._name = f"{attempt_name('images')}.bin"
        self._file: BinaryIO | None = None
        self._size = 0

    def __enter__(self) -> "ImageSpill":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def move(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Returns references to the scratch file in place of bytes; other references stay.

        Args:
            column: references, Arrow `binary` of shape [rows], or lists of them.
        """
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
        self._flush()
        return pa.chunked_array([pa.array(moved, pa.binary())])

    def _write(self, reference: bytes) -> bytes:
        if self._file is None:
            self._file = open(os.path.join(self._scratch, self._name), "wb")  # noqa: SIM115 - closed with the spill
        data = memoryview(reference)[len(INLINE) :]
        self._file.write(data)
        self._size += len(data)
        return to_scratch(self._name, self._size - len(data), len(data))

    def _flush(self) -> None:
        """Makes the bytes visible to other processes, which may read them at any moment."""
        if self._file is not None:
            self._file.flush()
