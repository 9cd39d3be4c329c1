"""The files of a shard: TFRecord, with a writer of one file and its index; and the indexes of packed rows.

A frame is a header (the data's length as uint64, the length's masked CRC-32C), the data, and a footer (the data's
masked CRC-32C), all little-endian, like `tf.io.TFRecordWriter`'s (`record_writer.cc`). An index holds the records' byte
offsets and the file's size as little-endian uint64.

A pack index lists rows of a fixed number of ids as records: little-endian uint32 of `rows + 1` splits, the number of
pieces before each row; then the pieces' records, their first ids, and their numbers of ids. A piece is a whole record,
or a part of one longer than a row.

Rows are made by best-fit decreasing (Johnson 1973) over groups of neighbouring records: the longest first, each into
the fullest row with room. A group leaves about half a row empty, so it has 256 rows or more; and a reader of a bucket
fetches neighbours together. In a row, records keep their order, and rows that of their first records.

>>> record_length(frame(b"abc")[:HEADER_BYTES])
3
>>> made = pack(np.array([3, 2, 1, 0, 2, 9]), 4, split=False)
>>> [piece.tolist() for piece in np.split(made.records, made.splits[1:-1])], made.sizes.tolist()
([[0, 2], [1, 4], [5]], [3, 1, 2, 2, 4])
"""

import hashlib
import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.manifest_parts import PackFile
from recordmill.pipeline.dataset.paths import ADVICE, replacing
from recordmill.pipeline.errors import DatasetError
from recordmill.transforms.base.stored import positions_of, splits_of

HEADER_BYTES, FOOTER_BYTES = 12, 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_length = struct.Struct("<Q").pack
_crc = struct.Struct("<I").pack
Create = Callable[[str], AbstractContextManager[BinaryIO]]
GROUP_IDS, GROUP_ROWS = 4 << 20, 256  # ids of a group at least, some 10 MiB of records; and rows
Numbers = npt.NDArray[Any]


def masked_crc(data: bytes) -> int:
    """Returns the masked CRC-32C of data, as TFRecord defines it."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(1 << 13)
def frame_head(length: int) -> bytes:
    """Returns the header of data of `length` bytes."""
    data = _length(length)
    return data + _crc(masked_crc(data))


def record_length(header: bytes | memoryview) -> int | None:
    """Returns the bytes of a record's data by its header; None if truncated or damaged."""
    length = int.from_bytes(header[:8], "little")
    return length if header == frame_head(length) else None


def compression_of(head: bytes) -> str | None:
    """Names the compression of a file by its first bytes: `gzip`, `zlib`, or None; a record may begin like zlib."""
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    return "zlib" if head[:1] and head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0 else None


def frame_tails(records: Sequence[bytes | npt.NDArray[np.uint8]]) -> bytes:
    """Returns the joined footers of records, 4 bytes each."""
    sums = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
    return (((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(0xA282EAD8)).astype("<u4").tobytes()


def frame(record: bytes) -> bytes:
    """Returns a record with its header and its footer."""
    return b"".join(_frame_parts(record))


def _frame_parts(record: bytes) -> tuple[bytes, bytes, bytes]:
    return frame_head(len(record)), record, _crc(masked_crc(record))


class ShardWriter:
    """Writes a shard and its index, by `create` (`Store.create`), which appear after a block without an error."""

    def __init__(self, path: str, index: str, create: Create = replacing) -> None:
        self._path, self._index, self._create = path, index, create
        self._sha256 = hashlib.sha256()
        self._offsets = [0]

    def __enter__(self) -> "ShardWriter":
        self._files = ExitStack()
        self._file = self._files.enter_context(self._create(self._path))
        self._files.push(self._write_index)  # before the shard gets its name
        return self

    def write(self, records: list[bytes]) -> None:
        """Appends records in order."""
        data = b"".join(chain.from_iterable(map(_frame_parts, records)))
        for record in records:
            self._offsets.append(self._offsets[-1] + HEADER_BYTES + len(record) + FOOTER_BYTES)
        self._sha256.update(data)
        self._file.write(data)

    def __exit__(self, *error: Any) -> None:
        self._files.__exit__(*error)

    def _write_index(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with self._create(self._index) as file:
                file.write(self._index_data())

    def _index_data(self) -> bytes:
        return np.array(self._offsets, "<u8").tobytes()

    @property
    def records(self) -> int:
        """The number of records written."""
        return len(self._offsets) - 1

    @property
    def bytes(self) -> int:
        """The file's size."""
        return self._offsets[-1]

    @property
    def sha256(self) -> str:
        """The file's digest, in hex."""
        return self._sha256.hexdigest()

    def index_entry(self) -> dict[str, Any]:
        """Returns `bytes` and `sha256` of the index, for the manifest."""
        data = self._index_data()
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


class PackIndex(NamedTuple):
    """Rows of pieces: row i holds the pieces `splits[i]` to `splits[i + 1] - 1`; whole numbers all."""

    splits: Numbers
    records: Numbers  # the pieces' records in the shard
    firsts: Numbers  # the pieces' first ids in their records
    sizes: Numbers  # the pieces' numbers of ids

    def to_bytes(self) -> bytes:
        """Returns the file's content."""
        return b"".join(part.astype("<u4").tobytes() for part in self)

    def describe(self, length: int, file: str, cut: int, empty: int) -> PackFile:
        """Describes the index, written as `file`, for the manifest."""
        digest, figures = hashlib.sha256(self.to_bytes()).hexdigest(), (len(self.records), int(self.sizes.sum()))
        return PackFile(length, file, digest, len(self.splits) - 1, *figures, cut, empty)

    @classmethod
    def of_bytes(cls, data: Any, described: PackFile) -> "PackIndex":
        """Reads an index, uint32; `take` checks its rows. Raises: DatasetError: it has another size."""
        if len(data) != described.bytes:
            raise DatasetError(f"{described.file} has {len(data):,} bytes, expected {described.bytes:,}: {ADVICE}")
        numbers = np.frombuffer(data, "<u4")
        return cls(numbers[: described.rows + 1], *numbers[described.rows + 1 :].reshape(3, -1))

    @classmethod
    def none(cls) -> "PackIndex":
        """Returns an index without rows."""
        return cls(*(np.zeros(size, np.int64) for size in (1, 0, 0, 0)))

    @classmethod
    def joined(cls, parts: Sequence["PackIndex"]) -> "PackIndex":
        """Joins the rows of several indexes, with their records' numbers as they are."""
        counts = np.concatenate([np.diff(part.splits) for part in parts])
        return cls(splits_of(counts), *map(np.concatenate, zip(*(part[1:] for part in parts), strict=True)))

    def take(self, rows: Numbers, records: int) -> "PackIndex":
        """Returns some rows, of a shard with `records`. Raises: DatasetError: the index is damaged."""
        starts, ends = self.splits[rows].astype(np.int64), self.splits[rows + 1].astype(np.int64)
        if not (starts <= ends).all() or ends.max(initial=0) > len(self.records):
            raise DatasetError(f"its rows have impossible pieces: {ADVICE}")
        pieces = positions_of(starts, ends - starts)
        taken = PackIndex(splits_of(ends - starts), *(part[pieces].astype(np.int64) for part in self[1:]))
        if taken.records.max(initial=-1) >= records:
            raise DatasetError(f"it has a row of record {taken.records.max():,}, the last is {records - 1:,}: {ADVICE}")
        return taken

    def without(self, removed: Collection[int], records: int) -> "PackIndex":
        """Leaves some of a shard's records out of its rows, and renumbers the others."""
        kept = np.ones(records, bool)
        kept[list(removed)] = False
        left, numbers = self.without_pieces(np.flatnonzero(~kept[self.records])), np.cumsum(kept) - 1
        counts = np.diff(left.splits)
        return left._replace(splits=splits_of(counts[counts > 0]), records=numbers[left.records])

    def without_pieces(self, pieces: Numbers) -> "PackIndex":
        """Leaves pieces out by their numbers, and keeps all rows; some may become empty."""
        stay = np.ones(len(self.records), bool)
        stay[pieces] = False
        return PackIndex(splits_of(stay)[self.splits], *(part[stay] for part in self[1:]))


def rows_together(width: int) -> int:
    """Returns the number of rows in a group, or somewhat less."""
    return max(GROUP_ROWS, GROUP_IDS // width)


def pack(lengths: Numbers, width: int, *, split: bool) -> PackIndex:
    """Packs a shard's records by their numbers of ids, int64 [records], into rows of `width` ids at most."""
    pieces = np.maximum(-(-lengths // width) if split else np.minimum(lengths, 1), 0)
    records = np.repeat(np.arange(len(lengths)), pieces)
    firsts = (np.arange(len(records)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * width
    sizes = np.minimum(lengths[records] - firsts, width)
    total = int(sizes.sum())
    groups = (np.cumsum(sizes) - sizes) * max(1, total // (rows_together(width) * width)) // max(1, total)
    rows, before = np.empty(len(sizes), np.int64), 0
    for group in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(groups)) + 1):
        rows[group] = before + _best_fit(sizes[group], width)
        before = int(rows[group].max(initial=before - 1)) + 1
    _, first, rows = np.unique(rows, return_index=True, return_inverse=True)
    rows = np.argsort(np.argsort(first))[rows]
    order = np.argsort(rows, kind="stable")
    return PackIndex(splits_of(np.bincount(rows)), records[order], firsts[order], sizes[order])


def _best_fit(sizes: Numbers, width: int) -> Numbers:
    """Returns the row of each piece, from 0; of rows with equal room takes the youngest."""
    rows, made = np.empty(len(sizes), np.int64), 0
    spaces, rows_of = list[int](), dict[int, list[int]]()  # ascending room, and the open rows by it
    order = np.argsort(-sizes, kind="stable")
    for piece, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        at = bisect_left(spaces, size)
        if at == len(spaces):
            room, row, made = width, made, made + 1
        else:
            room = spaces[at]
            row = rows_of[room].pop()
            if not rows_of[room]:
                del rows_of[room], spaces[at]
        rows[piece] = row
        if room > size:
            if room - size not in rows_of:
                insort(spaces, room - size)
            rows_of.setdefault(room - size, []).append(row)
    return rows
