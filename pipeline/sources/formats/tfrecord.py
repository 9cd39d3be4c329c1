"""TFRecord files of `tf.train.Example`s or SequenceExamples as a source: a row is a record.

    source: {format: tfrecord, path: "old/train.tfrecord-*"}

A column is a feature, which is a list: unless `many`, it has one value, or none if missing. Bytes become text, a
category or an image, as asked. Local files are cut at records; compressed files, and those at URLs, are one chunk each.
Images in uncompressed files are delivered as references, without a copy.

`pipeline.dataset.tfrecord` frames records. Damaged data costs its record; a damaged length, the rest of the file.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.examples import SEVERAL, Example, parse_example
from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, compression_of, masked_crc, record_length
from recordmill.pipeline.sources import source_reader
from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.encoded import DamagedDataError, Inflated
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError, add_faults
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.images import to_piece
from recordmill.pipeline.sources.options import TFRecord
from recordmill.pipeline.sources.source_reader import ArchiveReader, Chunk, FileRange, Key, Plan, TypedRows, has_images
from recordmill.pipeline.sources.typing.arrays import arrow_type, as_lists, in_groups
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.columns import Column, Columns

MAX_RECORD_BYTES = 1 << 30  # 1 GiB; a protocol buffer has at most 2
SKIPPED_BYTES = 1 << 20  # skipped at once
BYTES, PIECES = "bytes_list", "pieces"
ARROW = {BYTES: pa.binary(), PIECES: pa.binary(), "float_list": pa.float32(), "int64_list": pa.int64()}
"""Arrow types by kind of values; `PIECES` are ready references to images."""
HEAD = 64  # bytes of an image, enough to find it
HEAD_RECORDS, HEAD_BYTES = 1_000, 1 << 20  # read by the plan
NO_EXAMPLE = Fault("malformed_row", "the record is not a tf.train.Example, or has no features")
ValuesOfKind = tuple[list[int], list[int], list[Any]]  # their rows, the number of each row's, and all values
FramedRecord = tuple[int, bytes | Fault]  # a record's offset in bytes, and its data or fault


class _LostError(Exception):
    """Raised if the rest of the file cannot be found."""


def frames(file: BinaryIO, start: int, end: int | None) -> Iterator[tuple[int, bytes | Fault]]:
    """Yields the byte offset and the data, or fault, of records in `[start, end)`; the file is at the first one."""
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
            yield offset, Fault("damaged_record", f"{reason}; the rest of the file cannot be read")
            return
        yield offset, data
        offset += HEADER_BYTES + length + FOOTER_BYTES


def walk(file: BinaryIO, size: int) -> Iterator[int]:
    """Yields the record offsets of a file of `size` bytes, reading only headers; the last record may be damaged."""
    offset = 0
    while offset < size:
        yield offset
        length = record_length(file.read(HEADER_BYTES))
        if length is None:
            return
        file.seek(length + FOOTER_BYTES, io.SEEK_CUR)
        offset += HEADER_BYTES + length + FOOTER_BYTES


def _record(file: BinaryIO, name: str, header: bytes, left: int | None) -> tuple[int, bytes | Fault]:
    """Returns the length and data of the record with this header; `left` limits its data."""
    length = record_length(header)
    if length is None:
        what = "the file is cut off in" if len(header) < HEADER_BYTES else "wrong checksum of the length of"
        raise _LostError(f"{what} {name}")
    if left is not None and length > left:
        raise _LostError(f"{name} claims {length} bytes, but the file has {max(left, 0)} more")
    if length > MAX_RECORD_BYTES:
        rest = length + FOOTER_BYTES
        while rest and (read := len(file.read(min(rest, SKIPPED_BYTES)))):
            rest -= read
        if rest:
            raise _LostError(f"the file is cut off in {name}")
        return length, Fault("too_large", f"{name} is longer than 1 GiB")
    data, footer = file.read(length), file.read(FOOTER_BYTES)
    if len(footer) < FOOTER_BYTES:
        raise _LostError(f"the file is cut off in {name}")
    if int.from_bytes(footer, "little") != masked_crc(data):
        return length, Fault("damaged_record", f"wrong checksum of the data of {name}")
    return length, data


class TFRecordReader(ArchiveReader[TFRecord]):
    """Reads files of TFRecord."""

    endings: ClassVar[tuple[str, ...]] = (".tfrecord*", ".tfrec", ".record*")
    looks_at: ClassVar[str] = " in its first records"

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts local files at records and counts rows; estimates other files by their first records."""
        cut_file = partial(self._cut_file, files, root, self.chunk_bytes(columns, chunk_bytes))
        cuts = source_reader.at_once(cut_file, inputs)
        chunks = [chunk for file, _ in cuts for chunk in file]
        names = self._names(files, f"{root}/{inputs[0].path}")
        rows, referred = sum(rows for _, rows in cuts), self.referred_bytes(columns, chunks)
        return Plan(chunks, rows, names=names, referred_bytes=referred)

    def _cut_file(self, files: Files, root: str, chunk_bytes: int, file: FileInfo) -> tuple[list[Chunk], int]:
        path = f"{root}/{file.path}"
        compressed = self._is_compressed(files, path)
        if compressed or "://" in path:
            size = None if compressed else file.bytes
            chunks = FileRange.chunks_of(file, [FileRange(0, size, size)])
            return chunks, _head(files, path, compressed, file.bytes)[1]
        starts, rows = [0], 0
        with files.open(path) as opened:
            for offset in walk(opened, file.bytes):
                rows += 1
                if offset - starts[-1] >= chunk_bytes:
                    starts.append(offset)
        return FileRange.chunks_of(file, [FileRange(start, file.bytes, file.bytes) for start in starts]), rows

    def _is_compressed(self, files: Files, path: str) -> bool:
        if self.source.compression != "auto":
            return self.source.compression != "none"
        with files.open(path) as file:
            header = file.read(HEADER_BYTES)
        return record_length(header) is None and compression_of(header) is not None

    def _names(self, files: Files, path: str) -> list[str]:
        head, _ = _head(files, path, self._is_compressed(files, path))
        examples = [parse_example(data) for _, data in head if isinstance(data, bytes)]
        names = dict.fromkeys(name for example in examples if example for name in example.names())
        if not names:
            damage = next((f": {data.message}" for _, data in head if isinstance(data, Fault)), "")
            raise SourceError(f"{path} holds no tf.train.Example in its first records{damage}")
        return list(names)

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads the records that start in the chunk; the default key is the record's digest."""
        part: FileRange = chunk.work
        first, said = 0, self.said(chunk)
        file = chunk.file if part.size is not None and has_images(columns) else None
        with files.open(self.place(files, chunk)) as opened:
            if part.start:
                opened.seek(part.start)
            records = frames(Inflated(opened) if part.size is None else opened, part.start, part.end)
            for batch in batches(records, lambda at: len(at[1]) if isinstance(at[1], bytes) else 0, 8192):
                yield _typed_rows(batch, first, file, columns, key is None, said)
                first += len(batch)

    def place(self, files: Files, chunk: Chunk) -> str:
        """Returns the path of a chunk's file."""
        return f"{self.root(files)}/{chunk.file}"

    def said(self, chunk: Chunk) -> "Said":
        """Returns what is known of a chunk's records besides their bytes."""
        return Said()


class Said:
    """Facts about the records of a chunk, by their numbers in it, besides their bytes: here none."""

    def reads(self, position: int) -> bool:
        """Whether a record is a row."""
        return True

    def key_of(self, position: int, record: bytes, example: Example | None) -> bytes:
        """Returns the default key: the record's digest."""
        return content_digest(record)

    def columns(self, position: int) -> Mapping[str, bytes]:
        """Returns values of columns besides the record's features, which they hide."""
        return {}


def _head(files: Files, path: str, compressed: bool, file_bytes: int = 0) -> tuple[list[FramedRecord], int]:
    """Reads the records of the first 1 MiB, at most 1,000, and estimates the file's number of records."""
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


def _typed_rows(
    batch: list[FramedRecord], first: int, file: str | None, columns: Columns, with_keys: bool, said: Said
) -> TypedRows:
    """Types records, the first of the number `first` in their chunk; takes their file if images can stay in it."""
    gathered = {name: ExampleColumn(name, column) for name, column in columns.items()}
    positions, keys, faults = list[int](), list[bytes](), Faults()
    broken, broken_keys = Faults(), dict[int, str | None]()
    for position, (offset, record) in enumerate(batch):
        if not said.reads(first + position):
            continue
        if isinstance(record, Fault):
            broken[position] = record
            continue
        example = parse_example(record)
        key = said.key_of(first + position, record, example) if with_keys else b""
        if example is None:
            broken[position], broken_keys[position] = NO_EXAMPLE, key.decode() or None
            continue
        piece = None if file is None else RecordInFile(record, file, offset + HEADER_BYTES)
        besides = said.columns(first + position)
        for column in gathered.values():
            column.add(len(positions), example, piece, besides)
        positions.append(position)
        keys.append(key)
    typed = {name: column.typed(len(positions), faults) for name, column in gathered.items()}
    return TypedRows(typed, len(batch), faults, np.array(positions, np.int64), keys, broken, broken_keys)


class RecordInFile(NamedTuple):
    """A record in an uncompressed file."""

    data: bytes
    file: str  # relative to the source's root
    offset: int  # the offset of the data in the file, in bytes

    def reference(self, value: bytes) -> bytes | None:
        """Refers to a value by the first occurrence of its bytes; None if empty."""
        if not value:
            return None
        offset = self.data.find(value[:HEAD])
        while not self.data.startswith(value, offset):
            offset = self.data.find(value[:HEAD], offset + 1)
        return to_piece(self.file, self.offset + offset, len(value))


class ExampleColumn:
    """A column of some rows, gathered example by example, which keeps few parsed ones in memory."""

    def __init__(self, name: str, column: Column) -> None:
        self._name, self._column = name, column
        self._many, self._is_image = column.is_list, column.is_file
        self._parts: dict[str, ValuesOfKind] = {}
        self._faults: Faults = {}

    def add(self, row: int, example: Example, piece: RecordInFile | None, besides: Mapping[str, bytes]) -> None:
        """Adds a row's values; `piece` is its record, if images can stay there; `besides` are values by column."""
        given = besides.get(self._name)
        kind_and_values = example.values(self._name) if given is None else (BYTES, [given])
        if kind_and_values is None:
            return
        kind, values = kind_and_values
        if piece and kind == BYTES and self._is_image:
            kind, values = PIECES, list(map(piece.reference, values))
        if (not self._many or (kind == BYTES and self._column.is_blob)) and len(values) != 1:
            if values:
                self._faults[row] = Fault("wrong_type", f"wanted one value, found {len(values)}", self._name)
            return
        rows, lengths, flat = self._parts.get(kind) or self._parts.setdefault(kind, ([], [], []))
        rows.append(row)
        lengths.append(len(values))
        flat.extend(values)

    def typed(self, rows: int, faults: Faults) -> pa.Array:
        """Returns the column, shape [rows], null where missing or bad; adds faults."""
        for row, fault in self._faults.items():
            faults.setdefault(row, fault)
        groups = [(part[0], partial(self._typed, kind, part)) for kind, part in self._parts.items()]
        return in_groups(rows, arrow_type(self._column), groups, faults)

    def _typed(self, kind: str, part: ValuesOfKind, faults: Faults) -> pa.Array:
        _, lengths, flat = part
        count = len(lengths)
        if kind == SEVERAL:
            several = Fault("wrong_type", "the steps hold values of several types", self._name)
            add_faults(faults, np.ones(count, bool), several)
            return pa.nulls(count, arrow_type(self._column))
        values = pa.array(flat, ARROW[kind])
        if self._many and not (kind == BYTES and self._column.is_blob):
            values = as_lists(np.array(lengths), values, np.zeros(count, bool))
        return values if kind == PIECES else typed_values(self._name, self._column, values, ("", ""), faults)
