"""TFRecord files of `tf.train.Example`s, or SequenceExamples, as a source: a row is a record.

    source: {format: tfrecord, path: "old/train.tfrecord-*"}

A column is a feature, which is a list: one that is not `many` has one value, or none, which is missing. Values of bytes
are text, a category or an image's bytes, as the column wants them. Files on a local disk are cut where records begin;
compressed ones, and those behind a URL, are a chunk each. An image's bytes are not copied out of a file that is not
compressed: a reference to them is delivered.

The frame of a record is in `pipeline.dataset.tfrecord`. A record whose data is damaged costs itself; behind a length
that is damaged nothing can be found any more.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.examples import SEVERAL, Example, parse_example
from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, masked_crc, record_length
from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.encoded import DamagedDataError, Inflated
from recordmill.pipeline.sources.faults import Fault, Faults, Reject, add_faults
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.images import to_piece
from recordmill.pipeline.sources.options import TFRecord
from recordmill.pipeline.sources.paths import join
from recordmill.pipeline.sources.source_reader import Block, Chunk, Plan, SourceError
from recordmill.pipeline.sources.table import ArchiveReader, FileRange, at_once, has_images
from recordmill.pipeline.sources.typing.arrays import arrow_type, as_lists, in_groups
from recordmill.pipeline.sources.typing.blocks import TypedRows, as_reject, make_block
from recordmill.pipeline.sources.typing.values import typed_values

MAX_RECORD_BYTES = 1 << 30  # 1 GiB; a protocol buffer has at most 2
SKIPPED_BYTES = 1 << 20  # read at a time of what is passed over


class _LostError(Exception):
    """Nothing can be found in the file from here on."""


def frames(file: BinaryIO, start: int, end: int | None) -> Iterator[tuple[int, bytes | Fault]]:
    """Yields the byte offset and the data, or the fault, of the records that start in `[start, end)`, by default all.

    The file is at `start`, where a record starts, as one does at `end` unless the file ends there.
    """
    offset = start
    while end is None or offset < end:
        name = f"the record at byte {offset}"
        try:
            header = file.read(HEADER_BYTES)
            if not header and end is None:
                return
            left = None if end is None else end - offset - HEADER_BYTES - FOOTER_BYTES
            length, data = _record(file, name, header, left)
        except (DamagedDataError, _LostError) as error:
            reason = f"the compressed data is damaged ({error}) in {name}"
            reason = str(error) if isinstance(error, _LostError) else reason
            yield offset, Fault("damaged_record", f"{reason}; what lies behind it in the file cannot be read")
            return
        yield offset, data
        offset += HEADER_BYTES + length + FOOTER_BYTES


def walk(file: BinaryIO, size: int) -> Iterator[int]:
    """Yields the byte offsets of a file's records, reading their headers alone; the last may be damaged.

    The file is at its beginning and can seek; `size` is its bytes.
    """
    offset = 0
    while offset < size:
        yield offset
        length = record_length(file.read(HEADER_BYTES))
        if length is None:
            return
        file.seek(length + FOOTER_BYTES, io.SEEK_CUR)
        offset += HEADER_BYTES + length + FOOTER_BYTES


def _record(file: BinaryIO, name: str, header: bytes, left: int | None) -> tuple[int, bytes | Fault]:
    """The length and the data of a record whose header was read; `left` is the most that its data can be."""
    length = record_length(header)
    if length is None:
        what = "the file is cut off in" if len(header) < HEADER_BYTES else "the checksum is wrong of the length of"
        raise _LostError(f"{what} {name}")
    if left is not None and length > left:
        raise _LostError(f"{name} claims {length} bytes, and the file has {max(left, 0)} more")
    if length > MAX_RECORD_BYTES:
        _skip(file, name, length + FOOTER_BYTES)
        return length, Fault("too_large", f"{name} is longer than 1 GiB")
    data, footer = file.read(length), file.read(FOOTER_BYTES)
    if len(footer) < FOOTER_BYTES:
        raise _LostError(f"the file is cut off in {name}")
    if int.from_bytes(footer, "little") != masked_crc(data):
        return length, Fault("damaged_record", f"the checksum is wrong of the data of {name}")
    return length, data


def _skip(file: BinaryIO, name: str, length: int) -> None:
    while length:
        read = len(file.read(min(length, SKIPPED_BYTES)))
        if not read:
            raise _LostError(f"the file is cut off in {name}")
        length -= read


BYTES, PIECES = "bytes_list", "pieces"
ARROW = {BYTES: pa.binary(), PIECES: pa.binary(), "float_list": pa.float32(), "int64_list": pa.int64()}
"""The Arrow types of the kinds of values; `PIECES` are references to images, ready."""
HEAD = 64  # bytes of an image: enough to find it by
BLOCK_RECORDS = 8192
HEAD_RECORDS, HEAD_BYTES = 1_000, 1 << 20  # looked at when planning
NO_EXAMPLE = Fault("malformed_row", "the record is no tf.train.Example, or one without features")
FramedRecord = tuple[int, bytes | Fault]
"""The byte where a record begins, and its data or what is wrong with it."""


class TFRecordReader(ArchiveReader[TFRecord]):
    """Reads files of TFRecord."""

    endings: ClassVar[tuple[str, ...]] = (".tfrecord*", ".tfrec", ".record*")
    looks_at: ClassVar[str] = " in its first records"

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts local files where records begin, and counts their rows; estimates those of others by all their heads."""
        cuts = at_once(partial(self._cut_file, files, root, self.chunk_bytes(columns, chunk_bytes)), inputs)
        chunks = [chunk for file, _ in cuts for chunk in file]
        names = self._names(files, join(root, inputs[0].path))
        rows, referred = sum(rows for _, rows in cuts), self.referred_bytes(columns, chunks)
        return Plan(chunks, rows, names=names, referred_bytes=referred)

    def _cut_file(self, files: Files, root: str, chunk_bytes: int, file: FileInfo) -> tuple[list[Chunk], int]:
        path = join(root, file.path)
        compressed = self._is_compressed(files, path)
        if compressed or "://" in path:
            chunks = self.chunks_of(file, [0], None if compressed else file.bytes)
            return chunks, _head(files, path, compressed, file.bytes)[1]
        starts, rows = [0], 0
        with files.open(path) as opened:
            for offset in walk(opened, file.bytes):
                rows += 1
                if offset - starts[-1] >= chunk_bytes:
                    starts.append(offset)
        return self.chunks_of(file, starts, file.bytes), rows

    def _is_compressed(self, files: Files, path: str) -> bool:
        if self.source.compression != "auto":
            return self.source.compression != "none"
        with files.open(path) as file:
            header = file.read(HEADER_BYTES)
        if record_length(header) is not None:
            return False
        is_zlib = header[0] & 15 == 8 and int.from_bytes(header[:2], "big") % 31 == 0
        return header.startswith(b"\x1f\x8b") or is_zlib

    def _names(self, files: Files, path: str) -> list[str]:
        head, _ = _head(files, path, self._is_compressed(files, path))
        examples = [parse_example(data) for _, data in head if isinstance(data, bytes)]
        names = dict.fromkeys(name for example in examples if example for name in example.names())
        if not names:
            damage = next((f": {data.message}" for _, data in head if isinstance(data, Fault)), "")
            raise SourceError(f"{path} holds no tf.train.Example in its first records{damage}")
        return list(names)

    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads the records that start in the chunk's bytes; a row's default key is the digest of its record."""
        part: FileRange = chunk.work
        first = 0
        with files.open(join(self.root(files), chunk.file)) as opened:
            if part.start:
                opened.seek(part.start)
            records = frames(Inflated(opened) if part.size is None else opened, part.start, part.end)
            for batch in batches(records, _size, BLOCK_RECORDS):
                yield make_block(chunk, _raw_rows(chunk, first, batch, columns, key is None), columns, key)
                first += len(batch)


def _head(files: Files, path: str, compressed: bool, file_bytes: int = 0) -> tuple[list[FramedRecord], int]:
    """Reads the records that begin in the first 1 MiB, at most 1,000, and estimates how many are in the file."""
    records, read = list[FramedRecord](), 0
    with files.open(path) as opened:
        file = Inflated(opened) if compressed else opened
        for offset, data in frames(file, 0, None):
            records.append((offset, data))
            if isinstance(data, bytes):
                read = offset + HEADER_BYTES + len(data) + FOOTER_BYTES
                if len(records) == HEAD_RECORDS or read >= HEAD_BYTES:
                    consumed = file.consumed if isinstance(file, Inflated) else read
                    return records, max(1, round(len(records) * file_bytes / consumed))
    return records, len(records)


def _size(record: FramedRecord) -> int:
    return len(record[1]) if isinstance(record[1], bytes) else 0


def _raw_rows(chunk: Chunk, first: int, batch: list[FramedRecord], columns: Columns, with_key: bool) -> TypedRows:
    gathered = {name: ExampleColumn(name, column) for name, column in columns.items()}
    in_place = chunk.work.size is not None and has_images(columns)
    positions, keys, unparsed, faults = list[int](), list[bytes](), list[Reject](), Faults()
    for position, (offset, record) in enumerate(batch, first):
        if isinstance(record, Fault):
            unparsed.append(as_reject(chunk, position, record))
            continue
        key = content_digest(record) if with_key else b""
        example = parse_example(record)
        if example is None:
            unparsed.append(as_reject(chunk, position, NO_EXAMPLE, key.decode() or None))
            continue
        piece = RecordInFile(record, chunk.file, offset + HEADER_BYTES) if in_place else None
        for column in gathered.values():
            column.add(len(positions), example, piece)
        positions.append(position)
        keys.append(key)
    typed = {name: column.typed(len(positions), faults) for name, column in gathered.items()}
    made = pa.array(keys, pa.binary()) if with_key else None
    return TypedRows(typed, np.array(positions, np.int64), made, len(batch), faults, unparsed)


class RecordInFile(NamedTuple):
    """A record in a file that is not compressed."""

    data: bytes
    file: str
    """Relative to the source's root."""
    offset: int
    """The byte of the file where its data begins."""


@dataclass
class _ValuesOfKind:
    """The values of one kind: their rows, how many each row has where there may be many, and all of them."""

    rows: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    flat: list[Any] = field(default_factory=list)


class ExampleColumn:
    """One column of some rows, gathered from one example after another: few parsed ones are in memory at once."""

    def __init__(self, name: str, column: Column) -> None:
        """Takes the column; its name is the feature's, too."""
        self._name, self._column = name, column
        self._many, self._is_image = column.is_list, column.type is ColumnType.IMAGE
        self._parts: dict[str, _ValuesOfKind] = {}
        self._faults: Faults = {}

    def add(self, row: int, example: Example, piece: RecordInFile | None) -> None:
        """Adds the values of a row; `piece` is its record, where images can stay there."""
        kind_and_values = example.values(self._name)
        if kind_and_values is None:
            return
        kind, values = kind_and_values
        if piece and kind == BYTES and self._is_image:
            kind, values = PIECES, [_reference(value, piece) for value in values]
        if (not self._many or (kind == BYTES and self._column.is_blob)) and len(values) != 1:
            if values:
                self._faults[row] = Fault("wrong_type", f"wanted one value, found {len(values)}", self._name)
            return
        part = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = _ValuesOfKind()
        part.rows.append(row)
        if self._many:
            part.lengths.append(len(values))
            part.flat.extend(values)
        else:
            part.flat.append(values[0])

    def typed(self, rows: int, faults: Faults) -> pa.Array:
        """Returns the column, shape [rows], null where a row has no value, or a bad one; the faults are added."""
        for row, fault in self._faults.items():
            faults.setdefault(row, fault)
        groups = [(part.rows, partial(self._typed, kind, part)) for kind, part in self._parts.items()]
        return in_groups(rows, arrow_type(self._column), groups, faults)

    def _typed(self, kind: str, part: _ValuesOfKind, faults: Faults) -> pa.Array:
        count = len(part.rows)
        if kind == SEVERAL:
            several = Fault("wrong_type", "the steps hold values of several types", self._name)
            add_faults(faults, np.ones(count, bool), several)
            return pa.nulls(count, arrow_type(self._column))
        values = pa.array(part.flat, ARROW[kind])
        if self._many and not (kind == BYTES and self._column.is_blob):
            values = as_lists(np.array(part.lengths), values, np.zeros(count, bool))
        return values if kind == PIECES else typed_values(self._name, self._column, values, ("", ""), faults)


def _reference(value: bytes, piece: RecordInFile) -> bytes | None:
    """Refers to a value by its place in its record: where the same bytes come first."""
    if not value:
        return None
    offset = piece.data.find(value[:HEAD])
    while not piece.data.startswith(value, offset):
        offset = piece.data.find(value[:HEAD], offset + 1)
    return to_piece(piece.file, piece.offset + offset, len(value))
