"""Arrays of rows, along their first side, as a source: NumPy's `.npz` and `.npy`, and idx, the format of MNIST.

    source: {format: arrays, path: mnist.npz, columns: {image: x_train, label: y_train}}

A column is an array: of a `.npz` by its name, of a folder's `.npy` and idx files, perhaps compressed, by the file's.
Headers are checked before anything of their size is allocated. Chunks are cut at rows, but not of compressed arrays.

>>> idx_header(bytes.fromhex("00000803 0000000a 0000001c 0000001c"))
Npy(descr='|u1', shape=(10, 28, 28), is_fortran=False, start=16)
"""

import math
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.sources.batches import BLOCK_BYTES
from recordmill.pipeline.sources.encoded import MAX_LINE_BYTES, codec, naming_damage, open_plain
from recordmill.pipeline.sources.faults import Faults, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.options import Arrays
from recordmill.pipeline.sources.paths import ARRAY, check_names, join
from recordmill.pipeline.sources.source_reader import ArchiveReader, Chunk, Key, Plan, TypedRows
from recordmill.pipeline.sources.typing.arrays import arrow_type
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.arrays import HEAD_BYTES, MAGIC, MOST_SIDES, ArrayError, Npy, head, header_of
from recordmill.transforms.base.columns import Column, Columns, required

NPZ, NPY = ".npz", ARRAY
ROW_BYTES = 64  # of memory, that a row takes at least
IDX_TYPES = {8: "|u1", 9: "|i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


class ArrayInFile(NamedTuple):
    """The place of an array in a file, its path relative to the source's root; or why it has no rows."""

    path: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    start: int = 0  # the bytes before the first number
    member: str = ""  # the member of a `.npz`, if it is compressed
    stored: str = ""  # the member of a `.npz`, if it is not
    fault: str = ""

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def is_compressed(self) -> bool:
        return bool(self.member or codec(self.path))


@dataclass(frozen=True)
class ArrayRows:
    """The work of a chunk: some rows of arrays, by column."""

    arrays: Mapping[str, ArrayInFile]
    first: int
    rows: int


class ArraysReader(ArchiveReader[Arrays]):
    """Reads arrays of rows."""

    compressed: ClassVar[bool] = True
    endings: ClassVar[tuple[str, ...]] = (NPY, NPZ, "ubyte", ".idx")

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts the rows of each `.npz`, and those of all other files together; `rows` is exact."""
        chunks, names, tables = list[Chunk](), dict[str, None](), dict[str, dict[str, ArrayInFile]]()
        for file in inputs:
            table = file.path if file.path.endswith(NPZ) else ""
            tables.setdefault(table, {}).update(arrays_in(files, root, file))
        for table, found in tables.items():
            check_names(join(root, table), required(columns), found)
            asked = {name: found[name] for name in columns if name in found}
            for name, array in asked.items():
                if array.fault:
                    raise SourceError(f"{join(root, table)}: {name!r} cannot be read: {array.fault}")
            if len({array.shape[0] for array in asked.values()}) > 1:
                counts = ", ".join(f"{name!r} has {array.shape[0]:,}" for name, array in asked.items())
                remedy = "`columns` should name arrays of one split"
                raise SourceError(f"{join(root, table)}: unequal numbers of rows: {counts}; {remedy}")
            named = {*columns, *self.source.columns.values()}
            names |= dict.fromkeys(name for name in found if name in named or not self.source.columns)
            every = list(asked.values())
            rows, size = every[0].shape[0] if every else 0, sum(array.row_bytes for array in every)
            at_once = self.chunk_bytes(columns, chunk_bytes) // max(ROW_BYTES, size)
            step = max(1, rows if any(array.is_compressed for array in every) else at_once)
            for first in range(0, rows, step):
                work = ArrayRows(asked, first, min(step, rows - first))
                chunks.append(Chunk(0, 0, every[0].path, work.rows * size, work))
        return Plan(chunks, sum(chunk.work.rows for chunk in chunks), names=list(names), is_exact=True)

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        work, root = chunk.work, self.root(files)
        step = max(1, BLOCK_BYTES // max(ROW_BYTES, sum(array.row_bytes for array in work.arrays.values())))
        for blocks in zip(*(_blocks(files, root, each, work, step) for each in work.arrays.values()), strict=True):
            count, faults = len(blocks[0]), Faults()
            typed = {name: pa.nulls(count, arrow_type(column)) for name, column in columns.items()}
            for name, block in zip(work.arrays, blocks, strict=True):
                typed[name] = typed_values(name, columns[name], _arrow(block, columns[name]), (root, ""), faults)
            yield TypedRows(typed, count, faults)

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        return chunk.file, chunk.work.first + position + 1


def arrays_in(files: Files, root: str, file: FileInfo) -> dict[str, ArrayInFile]:
    """Finds the arrays of a file, by column."""
    path, found = join(root, file.path), dict[str, ArrayInFile]()
    if not file.path.endswith(NPZ):
        with naming_damage(path), open_plain(files, path) as opened:
            return {file.path: _described(file.path, opened.read(HEAD_BYTES), None if codec(path) else file.bytes)}
    with files.open(path) as raw, _archive(path, raw) as archive:
        for info in (info for info in archive.infolist() if info.filename.endswith(NPY)):
            with archive.open(info) as member:
                array = _described(file.path, member.read(HEAD_BYTES), info.file_size)
            if info.compress_type == zipfile.ZIP_STORED:
                raw.seek(info.header_offset + 26)  # the lengths of the name and of the extra field, before the content
                start = info.header_offset + 30 + sum(struct.unpack("<HH", raw.read(4)))
                found[info.filename.removesuffix(NPY)] = array._replace(start=start + array.start, stored=info.filename)
            else:
                found[info.filename.removesuffix(NPY)] = array._replace(member=info.filename)
    return found


def _archive(path: str, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise SourceError(f"{path} cannot be read as .npz: {error}; is it cut off or damaged?") from None


def _described(path: str, data: bytes, size: int | None) -> ArrayInFile:
    """Reads the header of an array; `size` is that of its file, if known."""
    try:
        descr, shape, is_fortran, start = header_of(data) if data.startswith(MAGIC) else idx_header(data)
    except ArrayError as error:
        return ArrayInFile(path, fault=str(error))
    array = ArrayInFile(path, np.dtype(descr).str, shape, start)
    stated = start + math.prod(shape[:1]) * array.row_bytes
    if is_fortran and len(shape) > 1:
        return array._replace(fault="its rows are not in C order: save `np.ascontiguousarray(array)`")
    if "V" in descr:
        return array._replace(fault="its numbers are bfloat16: save them as float32")
    if not 0 < len(shape) <= MOST_SIDES or not math.prod(shape) or array.row_bytes > MAX_LINE_BYTES:
        return array._replace(fault=f"its shape is {list(shape[:9])}: wanted rows of 1 to {MAX_LINE_BYTES:,} bytes")
    if size is not None and size != stated:
        has = f"it has {size:,} bytes; its header states {list(shape)}, {stated:,}"
        return array._replace(fault=f"{has}: copy it again")
    return array


def idx_header(data: bytes) -> Npy:
    """Reads the header of an idx file. Raises: ArrayError."""
    count = data[3] if len(data) > 3 and data[:2] == b"\0\0" and data[2] in IDX_TYPES else 0
    start = 4 + 4 * count
    if not count or len(data) < start:
        hint = ", as gzip does: name it .gz" if data[:2] == b"\x1f\x8b" else ""
        raise ArrayError(f"it is neither idx nor .npy: it begins with the bytes {data[:4].hex(' ')}{hint}")
    return Npy(IDX_TYPES[data[2]], struct.unpack(f">{count}I", data[4:start]), False, start)


def _blocks(files: Files, root: str, array: ArrayInFile, work: ArrayRows, step: int) -> Iterator[npt.NDArray[Any]]:
    """Yields an array's rows, `step` at a time. Raises: SourceError: it has others than its header states."""
    path, states = join(root, array.path), f"its header states {array.shape[0]:,} rows: copy it again"
    with naming_damage(path), open_plain(files, path) as opened:
        if array.stored and not work.first:  # once: its checksum is of all rows
            with _archive(path, opened).open(array.stored) as member:
                while member.read(1 << 20):
                    pass
        file: IO[bytes] = zipfile.ZipFile(opened).open(array.member) if array.member else opened
        if array.is_compressed:
            file.read(array.start)
        else:
            file.seek(array.start + work.first * array.row_bytes)
        for first in range(0, work.rows, step):
            count = min(step, work.rows - first)
            data = file.read(count * array.row_bytes)
            if len(data) < count * array.row_bytes:
                raise SourceError(f"{path} is cut off: {states}")
            yield np.frombuffer(data, array.dtype).reshape(count, *array.shape[1:])
        if array.is_compressed and file.read(1):
            raise SourceError(f"{path} has more bytes: {states}")


def _arrow(block: npt.NDArray[Any], column: Column) -> pa.Array:
    """Makes an Arrow array of rows: numbers or texts, perhaps in lists, and for images `.npy` files."""
    if column.is_file and block.dtype.kind not in "SU":
        start = head(block.dtype.str, block.shape[1:])
        return pa.array([start + row.tobytes() for row in block], pa.binary())
    if block[0].size == 1 and not column.is_list:
        block = block.reshape(-1)
    flat = block.astype(np.float32 if block.dtype.str[1:] == "f2" else block.dtype.newbyteorder("=")).ravel()
    values = pa.array(flat.tolist() if flat.dtype.kind in "SU" else flat)
    for side in reversed(block.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, side)
    return values
