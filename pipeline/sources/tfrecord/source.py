"""TFRecord files of `tf.train.Example`s, or SequenceExamples, as a source: a row is a record.

    source: {format: tfrecord, path: "old/train.tfrecord-*"}

A column is a feature. Files on a local disk are cut where records begin; compressed ones, and those behind a URL, are a
chunk each. A picture's bytes are not copied out of a file that is not compressed: what is delivered is where they lie.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.examples import Example, parse
from recordmill.pipeline.dataset.key_hash import content_digest
from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, record_length
from recordmill.pipeline.sources.base import Block, Chunk, FileInfo, Files, SourceError
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.inflate import Inflated
from recordmill.pipeline.sources.paths import join
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.table import Cut, Table
from recordmill.pipeline.sources.tfrecord.example_columns import ExampleColumn, Piece
from recordmill.pipeline.sources.tfrecord.frames import Damage, frames, walk
from recordmill.pipeline.sources.typing.blocks import RawRows, make_block
from recordmill.pipeline.sources.typing.faults import Faults

BLOCK_BYTES = 8 << 20  # 8 MiB
BLOCK_RECORDS = 8192
GROUP_BYTES, GROUP_RECORDS = 1 << 20, 256
PICTURES_CHUNK_BYTES = 64 << 20  # 64 MiB: of records that hold pictures, 8 MiB would be a handful
HEAD_RECORDS, HEAD_BYTES = 1_000, 1 << 20  # looked at when planning
FILES_AT_ONCE = 8
NO_EXAMPLE = "the record is no tf.train.Example, or one without features"

Record = tuple[int, bytes | Damage]
"""Where a record begins, and its data or what is wrong with it."""


@dataclass(frozen=True)
class Records:
    """A piece of a file: the records that start in the bytes `[start, end)`."""

    start: int = 0
    end: int | None = None
    """None: to the end."""
    compressed: bool = False


@dataclass(frozen=True)
class Head:
    """The first records of a file."""

    records: list[Record]
    read: int | None
    """How many bytes of the file they are; None where there are no others."""

    def rows(self, file_bytes: int) -> int:
        """The number of records in the file, estimated."""
        return len(self.records) if self.read is None else max(1, round(len(self.records) * file_bytes / self.read))


class TFRecord(Table):
    """Files of TFRecord."""

    endings: ClassVar[tuple[str, ...]] = (".tfrecord*", ".tfrec")
    compressed: ClassVar[bool] = False  # `.tfrecord*` ends in anything
    format: Literal["tfrecord"]
    images: None = None
    """Pictures lie in the records."""
    compression: Literal["auto", "gzip", "zlib", "none"] = "auto"
    """How the files are compressed; `auto` looks at their first bytes."""

    def cut(self, files: Files, root: str, inputs: list[FileInfo], columns: Columns, chunk_bytes: int) -> Cut:
        """Cuts local files where records begin, so that `rows` is exact; of others it is estimated by all their heads.

        Raises:
            SourceError: the first records of the first file hold no example.
            OSError: a file cannot be read.
        """
        if any(column.type is ColumnType.IMAGE for column in columns.values()):
            chunk_bytes = max(chunk_bytes, PICTURES_CHUNK_BYTES)
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            cuts = list(pool.map(partial(self._cut_file, files, root, chunk_bytes), inputs))
        chunks = [chunk for file, _ in cuts for chunk in file]
        names = self._names(files, join(root, inputs[0].path))
        return Cut(chunks, sum(rows for _, rows in cuts), names, " in its first records")

    def _cut_file(self, files: Files, root: str, chunk_bytes: int, file: FileInfo) -> tuple[list[Chunk], int]:
        """One file's chunks, and its number of rows."""
        path = join(root, file.path)
        compressed = self._is_compressed(files, path)
        if compressed or "://" in path:
            work = Records(0, None if compressed else file.bytes, compressed)
            return [Chunk(0, 0, file.path, file.bytes, work)], _head(files, path, compressed).rows(file.bytes)
        starts, rows = [0], 0
        with files.open(path) as opened:
            for at in walk(opened, file.bytes):
                rows += 1
                if at - starts[-1] >= chunk_bytes:
                    starts.append(at)
        ends = [*starts[1:], file.bytes]
        bounds = zip(starts, ends, strict=True)
        return [Chunk(0, 0, file.path, end - start, Records(start, end)) for start, end in bounds], rows

    def _is_compressed(self, files: Files, path: str) -> bool:
        if self.compression != "auto":
            return self.compression != "none"
        with files.open(path) as file:
            header = file.read(HEADER_BYTES)
        if record_length(header) is not None:
            return False
        is_zlib = header[0] & 15 == 8 and int.from_bytes(header[:2], "big") % 31 == 0
        return header.startswith(b"\x1f\x8b") or is_zlib

    def _names(self, files: Files, path: str) -> list[str]:
        head = _head(files, path, self._is_compressed(files, path))
        examples = [parse(data) for _, data in head.records if isinstance(data, bytes)]
        names = dict.fromkeys(name for example in examples if example for name in example.names())
        if not names:
            damage = next((f": {data.message}" for _, data in head.records if isinstance(data, Damage)), "")
            raise SourceError(f"{path} holds no tf.train.Example in its first records{damage}")
        return list(names)

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads the records that start in the chunk's bytes; a row's default key is the digest of its record.

        Raises:
            OSError: the file cannot be read any more.
        """
        records = _records(files, join(self.root(files), chunk.file), chunk.work)
        for raw in _raw_rows(records, chunk, columns, key is None):
            yield make_block(chunk, raw, columns, key)

    def _pictures(self, files: Files, columns: Columns) -> list[FileInfo]:
        return []


def _records(files: Files, path: str, part: Records) -> Iterator[Record]:
    with files.open(path) as opened:
        if part.start:
            opened.seek(part.start)
        yield from frames(Inflated(opened) if part.compressed else opened, part.start, part.end)


def _head(files: Files, path: str, compressed: bool) -> Head:
    """The records that begin in the first 1 MiB, at most 1,000."""
    found, read = list[Record](), 0
    with files.open(path) as opened:
        file = Inflated(opened) if compressed else opened
        for at, data in frames(file, 0, None):
            found.append((at, data))
            if isinstance(data, Damage):
                if data.is_end:
                    return Head(found, None)
                continue
            read = at + HEADER_BYTES + len(data) + FOOTER_BYTES
            if len(found) == HEAD_RECORDS or read >= HEAD_BYTES:
                return Head(found, file.consumed if isinstance(file, Inflated) else read)
    return Head(found, None)


def _groups(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Some records at a time: few, since many parsed examples at once cost five times as much, in memory's pages."""
    group, size = list[Record](), 0
    for record in records:
        group.append(record)
        size += len(record[1]) if isinstance(record[1], bytes) else 0
        if size >= GROUP_BYTES or len(group) == GROUP_RECORDS:
            yield group
            group, size = [], 0
    if group:
        yield group


class _Rows:
    """The rows of one block, gathered from a few records at a time."""

    def __init__(self, chunk: Chunk, first: int, columns: Columns, with_key: bool) -> None:
        """`first` is the place of the first record in the chunk."""
        self._chunk, self.first, self._with_key = chunk, first, with_key
        self._columns = {name: ExampleColumn(name, column) for name, column in columns.items()}
        self._positions, self._keys, self._unparsed = list[int](), list[bytes](), list[Reject]()
        self.covered, self.bytes = 0, 0

    def add(self, group: list[Record]) -> None:
        """Parses records."""
        examples, pieces = list[Example](), list[Piece]()
        for position, (offset, record) in enumerate(group, self.first + self.covered):
            if isinstance(record, Damage):
                self._refuse(position, record.reason, record.message)
            elif example := parse(record):
                examples.append(example)
                pieces.append((record, self._chunk.file, offset + HEADER_BYTES))
                self._positions.append(position)
            else:
                self._refuse(position, "malformed_row", NO_EXAMPLE, _digest(record) if self._with_key else None)
        for column in self._columns.values():
            column.add(len(self._positions) - len(examples), examples, None if self._chunk.work.compressed else pieces)
        if self._with_key:
            self._keys += [_digest(record) for record, _, _ in pieces]
        self.covered += len(group)
        self.bytes += sum(len(record) for record, _, _ in pieces)

    def raw(self) -> RawRows:
        """The rows, typed."""
        faults: Faults = {}
        typed = {name: column.typed(len(self._positions), faults) for name, column in self._columns.items()}
        keys = pa.array(self._keys, pa.binary()) if self._with_key else None
        return RawRows(typed, np.array(self._positions, np.int64), keys, self.covered, faults, self._unparsed)

    def _refuse(self, position: int, reason: str, message: str, key: bytes | None = None) -> None:
        self._unparsed.append(
            Reject(self._chunk.index, position, reason, message, None if key is None else key.decode())
        )


def _raw_rows(records: Iterator[Record], chunk: Chunk, columns: Columns, with_key: bool) -> Iterator[RawRows]:
    """Parses records, a block of them at a time."""
    rows = _Rows(chunk, 0, columns, with_key)
    for group in _groups(records):
        rows.add(group)
        if rows.bytes >= BLOCK_BYTES or rows.covered >= BLOCK_RECORDS:
            yield rows.raw()
            rows = _Rows(chunk, rows.first + rows.covered, columns, with_key)
    if rows.covered:
        yield rows.raw()


def _digest(record: bytes) -> bytes:
    return content_digest(record)
