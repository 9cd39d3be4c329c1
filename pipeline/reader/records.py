"""The records of shards, checked: by number, from mapped files or an object store, or a file's, in one walk.

Numbers count over all shards in order, from 0. Each shard has an index of offsets: reading needs no search, and never
trusts a length in a damaged file. The walk reports damage with record and byte, and continues: past damaged data by the
record's length, which has its own checksum; past a damaged length to the index's next record. TensorFlow's framing
(`record_reader.cc`): length (uint64), its masked CRC-32C, data, the data's masked CRC-32C.
"""

import hashlib
import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    PackIndex,
    frame_head,
    frame_tails,
    record_length,
)
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.parallel import cores
from recordmill.pipeline.reader.block_cache import BlockCache
from recordmill.pipeline.reader.local_shards import COPIED, Frame, LocalShards, Numbers, ShardFile, by_shard, place_key
from recordmill.pipeline.reader.metrics import Counters
from recordmill.pipeline.reader.remote import RemoteShards
from recordmill.transforms.base.stored import RowError

__all__ = ["Numbers", "RecordPlace", "Records", "ShardFile"]

MOST_BYTES = 2 << 30  # 2 GiB: of a record, a protocol buffer's limit
BLOCK = 4 << 20  # 4 MiB: one thread's read from a disk or an object store
Offsets = npt.NDArray[np.uint64]
ReportDamage = Callable[[int, int, str], None]  # takes a record's number, its byte offset, and a message
Pieces = list[tuple[int, int, int]]  # each record's number, and the start and end of its data in a piece of the file


class RecordPlace(NamedTuple):
    """The place of a record."""

    file: str
    record: int  # its number in the shard, from 0
    offset: int  # the byte at which its header begins

    def __str__(self) -> str:
        """Names the place in a message."""
        return f"record {self.record} of {self.file}, at byte {self.offset:,}"


class Records:
    """The records of shards. May be pickled, forked, and used by many threads at once.

    The first read opens the files; dropping or closing the object closes them, and a later read reopens them.

    Args:
        shards: in the records' order; local files, URLs, empty shards.
        blocks: for URLs read roughly in order: the ascending numbers of the first record of each block. Blocks are read
            whole and cached. None: each record is read alone, for random access.
        cache: holds the blocks; by default the user's.
        counters: count the requests.
    """

    def __init__(
        self,
        shards: Sequence[ShardFile],
        blocks: Numbers | None = None,
        cache: BlockCache | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._shards = tuple(shards)
        self._blocks, self._cache, self._counters = blocks, cache, counters
        self._firsts = np.cumsum([0, *(shard.records for shard in self._shards)], dtype=np.int64)
        self._first_rows = np.cumsum([0, *(shard.rows for shard in self._shards)], dtype=np.int64)
        self._bytes = np.array([shard.bytes for shard in self._shards], np.uint64)
        self._chooses = any(shard.kept for shard in self._shards)
        self._files: LocalShards | RemoteShards = LocalShards(self._shards)
        if any("://" in path for shard in self._shards for path, _ in shard.sizes()):
            cuts = None
            if blocks is not None:  # each shard's first records of blocks, from 0
                bounds = zip(self._firsts[:-1], self._firsts[1:], strict=True)
                within = [blocks[slice(*np.searchsorted(blocks, both))] - both[0] for both in bounds]
                cuts = [np.union1d([0], of_shard) for of_shard in within]
            self._files = RemoteShards(self._shards, cuts, cache or BlockCache(), counters or Counters())

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return Records, (self._shards, self._blocks, self._cache, self._counters)

    def __enter__(self) -> "Records":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all maps and indexes."""
        self._files.close()

    def read(self, numbers: Numbers) -> list[bytes | memoryview]:
        """Reads records by number, int64 [rows], in any order, and checks them.

        Returns:
            each record's data; large records are views, which keep their map alive.

        Raises:
            RowError: a record or its index is damaged; the first such row.
            DatasetError: a shard or its index is missing or has another size.
            IndexError: a number is out of range.
        """
        shards, records = self._locate(numbers)
        if (intact := self._files.intact(shards, records)) is not None:
            return intact
        places = shards.tolist(), records.tolist()
        forgotten: Counter[int] = Counter()
        while True:
            try:
                return self._checked(numbers, self._files.frames(*places))
            except RowError as error:
                forgotten[error.row] += 1  # first the cached index may be damaged, then the cached block
                if forgotten[error.row] > 2 or not self._files.forget(*([part[error.row]] for part in places)):
                    raise

    def fetch_ahead(self, numbers: Numbers) -> None:
        """Begins to fetch the blocks of remote records to be read next: int64 [rows]. Raises: as `read`."""
        if self._blocks is not None:
            blocks = np.searchsorted(self._blocks, numbers, side="right")
            numbers = numbers[np.sort(np.unique(blocks, return_index=True)[1])]  # the first of each block
            self._files.fetch_ahead(*(part.tolist() for part in self._locate(numbers)))

    def _checked(self, numbers: Numbers, frames: Sequence[Frame]) -> list[bytes | memoryview]:
        payloads = [frame[HEADER_BYTES:-FOOTER_BYTES] for frame in frames]
        heads: list[Any] = [frame[:HEADER_BYTES] for frame in frames]  # Any: for mypy, `join` takes no arrays
        tails: list[Any] = [frame[-FOOTER_BYTES:] for frame in frames]
        if b"".join(heads) != b"".join(map(frame_head, map(len, payloads))) or b"".join(tails) != frame_tails(payloads):
            self.sizes(numbers)  # raises if the index is wrong
            advice = self._shards[0].advice
            for row, (head, data, tail) in enumerate(zip(heads, payloads, tails, strict=True)):
                head = bytes(head)
                length = int.from_bytes(head[:8], "little")
                if length != len(data):
                    raise RowError(row, f"its header says {length:,} bytes, the index {len(data):,}: {advice}")
                if record_length(head) is None:
                    raise RowError(row, f"the checksum of its length is wrong: {advice}")
                if bytes(tail) != frame_tails([data]):
                    raise RowError(row, f"the checksum of its data ({length:,} bytes) is wrong: {advice}")
        return [data if isinstance(data, bytes) else data.data for data in payloads]

    def sizes(self, numbers: Numbers) -> Numbers:
        """Returns the size of each record's data, int64 [rows], from the indexes. Raises: RowError: one is damaged."""
        shards, records = self._locate(numbers)
        starts, ends = np.empty(len(numbers), np.uint64), np.empty(len(numbers), np.uint64)
        for shard, rows in by_shard(shards):
            index = np.frombuffer(self._files.index(shard), np.uint64)
            starts[rows], ends[rows] = index[records[rows]], index[records[rows] + 1]
        # Unsigned: for descending offsets the difference is wrong, but the first condition has caught them.
        possible = (starts <= ends) & (ends - starts >= HEADER_BYTES + FOOTER_BYTES) & (ends <= self._bytes[shards])
        if not possible.all():
            row = int(np.argmin(possible))
            file = self._shards[shards[row]]
            place = f"{file.index} places it at bytes {starts[row]:,} to {ends[row]:,}"
            raise RowError(row, f"{place}, impossible in a file of {file.bytes:,} bytes: {file.advice}")
        return (ends - starts).astype(np.int64) - (HEADER_BYTES + FOOTER_BYTES)

    def pieces(self, rows: Numbers) -> PackIndex:
        """Returns packed rows by number, int64 [rows], with the numbers of their records. Raises: DatasetError."""
        shards = np.searchsorted(self._first_rows[1:], rows, side="right")
        of_shards, parts = by_shard(shards), [PackIndex.none()]
        for shard, some in of_shards:
            index, file = self._files.pack(shard), self._shards[shard]
            try:
                part = index.take(rows[some] - self._first_rows[shard], file.records)
            except DatasetError as error:
                raise DatasetError(f"{file.pack and file.pack.file} is damaged: {error}") from None
            parts.append(part._replace(records=part.records + self._firsts[shard]))
        order = np.concatenate([rows[:0], *(some for _, some in of_shards)])
        return PackIndex.joined(parts).take(np.argsort(order), len(self))

    def rows_of(self, numbers: Numbers) -> Numbers:
        """Returns the packed rows with pieces of records, ascending; int64 both. Raises: DatasetError."""
        found, of_shards = [numbers[:0]], by_shard(np.searchsorted(self._firsts[1:], numbers, side="right"))
        for shard, some in of_shards:
            index = self._files.pack(shard)
            pieces = np.flatnonzero(np.isin(index.records, numbers[some] - self._firsts[shard]))
            rows = np.searchsorted(index.splits, pieces, side="right") - 1
            found.append(np.unique(rows) + self._first_rows[shard])
        return np.concatenate(found)

    def where(self, number: int) -> RecordPlace:
        """Returns the place of a record, for messages. Raises: DatasetError, IndexError as `read`."""
        (shard,), (record,) = self._locate(np.array([number]))
        return RecordPlace(self._shards[shard].file, int(record), self._files.index(int(shard))[record])

    def keys(self, numbers: Numbers) -> list[bytes]:
        """Returns the keys of adopted records that do not hold them: their places."""
        shards, records = self._locate(numbers)
        places = zip(shards.tolist(), records.tolist(), strict=True)
        return [place_key(self._shards[shard], record) for shard, record in places]

    def bits_of(self, numbers: Numbers) -> bytes:
        """Returns a bit for each record in the index of the only shard: 1 for these, by number (`ShardFile.kept`)."""
        chosen = np.zeros(self._shards[0].indexed, np.uint8)
        chosen[self._locate(numbers)[1]] = 1
        return np.packbits(chosen, bitorder="little").tobytes()

    def check(self) -> tuple[ShardFile, ...]:
        """Checks all sizes, and the ends of each index; returns the shards with their tags. Raises: DatasetError."""
        self._shards = tuple(self._files.check())
        for number, shard in enumerate(self._shards):
            if shard.records:
                index = self._files.index(number)
                if not shard.ends_at(index[0], index[-1]):
                    goes = f"{shard.index} goes from byte {index[0]:,} to {index[-1]:,}"
                    size = f"{shard.bytes:,}, the size of {shard.file}"
                    raise DatasetError(f"{goes}, expected 0 to {size}: {shard.advice}")
        return self._shards

    def verify(self) -> None:
        """Compares every shard's SHA-256 with the manifest's, several at once. Raises: DatasetError."""
        with ThreadPoolExecutor(cores()) as threads:
            digests = threads.map(self._files.sha256, range(len(self._shards)))
            try:
                for shard, digest in zip(self._shards, digests, strict=True):
                    if digest != shard.sha256:
                        other = f"{shard.file} has the SHA-256 {digest}, expected {shard.sha256}"
                        raise DatasetError(f"{other}: {shard.advice}")
            finally:
                threads.shutdown(cancel_futures=True)  # after an error

    def _locate(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Returns each record's shard, and its number in the shard's index."""
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            wrong = numbers.min() if numbers.min() < 0 else numbers.max()
            raise IndexError(f"record {wrong} does not exist: the records are 0 to {len(self) - 1}")
        shards = np.searchsorted(self._firsts[1:], numbers, side="right")  # never an empty shard
        records = numbers - self._firsts[shards]
        for shard in np.unique(shards).tolist() if self._chooses else ():
            if self._shards[shard].kept:
                of_shard = shards == shard
                records[of_shard] = self._files.kept(shard)[records[of_shard]]
        return shards, records


class FrameBatch(NamedTuple):
    """Undamaged records of a block, with their numbers in the shard (from 0) and byte offsets in the file."""

    numbers: list[int]
    offsets: list[int]
    records: list[bytes | memoryview]

    def keep(self, rows: Sequence[int]) -> "FrameBatch":
        """Keeps the records at these positions."""
        return FrameBatch(*([column[row] for row in rows] for column in self))  # type: ignore[arg-type, index]


class FrameWalk:
    """One walk over an open file of `size` bytes, in the memory of a block and the largest record.

    `index` must rise from 0 to `size`. `report` is called with each damage.
    """

    def __init__(self, file: BufferedReader, size: int, index: Offsets | None, report: ReportDamage) -> None:
        self._file, self._size, self._report = file, size, report
        self._index = np.zeros(0, np.int64) if index is None else index.astype(np.int64)
        self._digest = hashlib.sha256()
        self.offsets = array("Q")  # the offsets of the records so far, and at the end the file's size
        self.is_whole = True  # False if damage hides an offset
        self.lost = size  # the byte at which the last such damage begins; the file's size without any
        self._number, self._taken = 0, 0

    @property
    def sha256(self) -> str:
        """The digest of the whole file, in hex, after the walk."""
        return self._digest.hexdigest()

    def taken(self) -> int:
        """Returns the bytes read since the last call."""
        taken, self._taken = self._taken, 0
        return taken

    def batches(self) -> Iterator[FrameBatch]:
        """Yields the records with correct checksums, one block at a time; a batch is valid until the next one.

        Raises: OSError: the file cannot be read to its end.
        """
        buffer = bytearray()
        data, start, position = memoryview(buffer), 0, 0  # a piece of the file, its offset, the next record's position
        while start + len(data) < self._size:
            rest = data[position:]
            start, position = start + min(position, len(data)), max(0, position - len(data))
            length = _length(rest[:HEADER_BYTES])
            of_first = 0 if length is None else min(HEADER_BYTES + length + FOOTER_BYTES, self._size) - len(rest)
            wanted = max(BLOCK, of_first)  # a block, or the rest of the first record
            if len(buffer) < len(rest) + wanted:
                grown = bytearray(len(rest) + wanted)
                grown[: len(rest)] = rest
                buffer = grown
            else:
                buffer[: len(rest)] = rest
            read = self._file.readinto(memoryview(buffer)[len(rest) : len(rest) + wanted])
            if not read:
                break  # another process truncated the file: the caller reports its size
            data = memoryview(buffer)[: len(rest) + read]
            self._digest.update(data[len(rest) :])
            self._taken += read
            spans, position = self._cut(data, start, position)
            yield self._checked(data, start, spans)
        if start + position < self._size:
            left = self._size - start - position
            message = f"the file ends inside the header, after {left:,} of {HEADER_BYTES} bytes"
            self._lose(start + position, message)
        self.offsets.append(self._size)

    def _cut(self, data: memoryview, start: int, position: int) -> tuple[Pieces, int]:
        """Finds the records from a position on; also returns the position of the one after them."""
        spans = self._as_indexed(data, start, position)
        position = spans[-1][2] + FOOTER_BYTES if spans else position
        while position + HEADER_BYTES <= len(data):
            length = _length(data[position : position + HEADER_BYTES])
            if length is None:
                self._lose(start + position, "the length has a wrong checksum, or is above 2 GiB")
                position = self._after(start + position) - start
                continue
            end = position + HEADER_BYTES + length + FOOTER_BYTES
            if start + end > self._size:
                missing = f"{start + end - self._size:,} of {length:,} bytes"
                self._lose(start + position, f"the file ends inside the record: {missing} are missing")
                position = self._size - start
            elif end > len(data):
                break
            else:
                self.offsets.append(start + position)
                spans.append((self._number, position + HEADER_BYTES, end - FOOTER_BYTES))
                self._number += 1
                position = end
        return spans, position

    def _as_indexed(self, data: memoryview, start: int, position: int) -> Pieces:
        """Cuts the data by the index if all headers agree with it: three times as fast."""
        first, last = np.searchsorted(self._index, [start + position, start + len(data)], side="right").tolist()
        bounds = (self._index[max(0, first - 1) : last] - start).tolist()
        if len(bounds) < 2 or bounds[0] != position or first - 1 != self._number:
            return []
        heads = b"".join([data[bound : bound + HEADER_BYTES] for bound in bounds[:-1]])
        lengths = [end - begin - HEADER_BYTES - FOOTER_BYTES for begin, end in itertools.pairwise(bounds)]
        if min(lengths) < 0 or heads != b"".join(map(frame_head, lengths)):
            return []
        self.offsets.extend(bound + start for bound in bounds[:-1])
        numbers = itertools.count(self._number)
        self._number += len(lengths)
        return [
            (number, bound + HEADER_BYTES, bound + HEADER_BYTES + length)
            for number, bound, length in zip(numbers, bounds, lengths, strict=False)
        ]

    def _lose(self, offset: int, message: str) -> None:
        self.is_whole, self.lost = False, offset
        self._report(self._number, offset, message)

    def _after(self, offset: int) -> int:
        """Returns the offset of the index's next record; without one, the file's end."""
        number = int(np.searchsorted(self._index, offset, side="right"))
        if number >= len(self._index):
            if len(self._index) < 2 and self._size > offset:
                self._report(self._number, offset, "the rest of the file was not checked: the index is also damaged")
            return self._size
        self.offsets.append(offset)
        self._number = number
        return int(self._index[number])

    def _checked(self, data: memoryview, start: int, spans: Pieces) -> FrameBatch:
        """Returns the records with correct checksums of their data, and reports the others."""
        view = np.frombuffer(data, np.uint8)
        frames: list[Frame] = [
            bytes(data[begin:end]) if end - begin <= COPIED else view[begin:end] for _, begin, end in spans
        ]
        records = [frame if isinstance(frame, bytes) else frame.data for frame in frames]
        offsets = [start + begin - HEADER_BYTES for _, begin, _ in spans]
        batch = FrameBatch([number for number, *_ in spans], offsets, records)
        expected = frame_tails(frames)
        tails = b"".join([data[end : end + FOOTER_BYTES] for *_, end in spans])
        if tails == expected:
            return batch
        right = np.frombuffer(tails, "<u4") == np.frombuffer(expected, "<u4")
        for row in np.flatnonzero(~right).tolist():
            message = f"the data ({len(records[row]):,} bytes) has a wrong checksum"
            self._report(batch.numbers[row], offsets[row], message)
        return batch.keep(np.flatnonzero(right).tolist())


def _length(header: memoryview) -> int | None:
    """Returns the bytes of a record's data; None if damaged, or more than a protocol buffer may have."""
    length = record_length(header)
    return None if length is None or length > MOST_BYTES else length
