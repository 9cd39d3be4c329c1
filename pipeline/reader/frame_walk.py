"""Walks a TFRecord file once, block by block: returns its digest, the records' offsets, and the undamaged records.

The walk reports damage with record and byte, and continues: past damaged data by the record's length, which has its own
checksum; past a damaged length to the index's next record.
"""

import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame_head, frame_tails, record_length
from recordmill.pipeline.reader.local_shards import COPIED, Frame

MOST_BYTES = 2 << 30  # 2 GiB: of a record, a protocol buffer's limit
BLOCK = 4 << 20  # 4 MiB: one thread's read from a disk or an object store
Offsets = npt.NDArray[np.uint64]
ReportDamage = Callable[[int, int, str], None]  # takes a record's number, its byte offset, and a message
Pieces = list[tuple[int, int, int]]  # each record's number, and the start and end of its data in a piece of the file


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
            rest = self._size - start - position
            message = f"the file ends inside the header, after {rest:,} of {HEADER_BYTES} bytes"
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
