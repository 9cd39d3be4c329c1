"""Walks a TFRecord file once, block by block: its digest, each record's place, and the records that are whole.

Damage is told with the record and the byte, and the walk goes on: behind a record whose data are damaged by its length,
which has a checksum of its own; behind a damaged length where the index says that a record begins.

>>> walk = FrameWalk(file, size, index, tell)  # doctest: +SKIP
>>> for batch in walk.batches():               # doctest: +SKIP
...     batch.records
>>> walk.sha256                                # doctest: +SKIP
"""

import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame_head, frame_tails, record_length
from recordmill.pipeline.reader.records.local_shards import COPIED, Frame
from recordmill.pipeline.verify.files import BLOCK

Offsets = npt.NDArray[np.uint64]
Tell = Callable[[int, int, str], None]
"""Takes a record's number, its byte offset, and what is wrong with it."""


Spans = list[tuple[int, int, int]]
"""Of records in a piece of the file, their numbers, and where their data begin and end."""


class Records(NamedTuple):
    """Whole records of a block."""

    numbers: list[int]
    """In the shard, from 0."""
    offsets: list[int]
    """Where each begins in the file, in bytes."""
    records: list[bytes | memoryview]
    """Their data."""

    def keep(self, places: Sequence[int]) -> "Records":
        """The records at these places."""
        return Records(
            [self.numbers[place] for place in places],
            [self.offsets[place] for place in places],
            [self.records[place] for place in places],
        )


class FrameWalk:
    """One walk over one file; memory is that of a block and the largest record."""

    def __init__(self, file: BinaryIO, size: int, index: Offsets | None, tell: Tell) -> None:
        """Takes the open file, its bytes, its index if that can be trusted to be one, and who is told of damage."""
        self._file, self._size, self._tell = file, size, tell
        self._index = np.zeros(0, np.int64) if index is None else index.astype(np.int64)
        self._digest = hashlib.sha256()
        self.offsets = array("Q")
        """Where the records that were met begin, and the file's end."""
        self.is_whole = True
        """Whether every record's place is known by the records themselves."""
        self._number = 0

    @property
    def sha256(self) -> str:
        """The digest of the whole file, in hex, after the walk."""
        return self._digest.hexdigest()

    def batches(self) -> Iterator[Records]:
        """Gives the records whose checksums are right, a block of them at a time.

        Raises:
            OSError: the file cannot be read to its end.
        """
        data, at, place = b"", 0, 0  # a piece of the file, where it begins, and where in it the next record does
        while at + len(data) < self._size:
            data, at, place = data[place:], at + min(place, len(data)), max(0, place - len(data))
            block = self._file.read(max(BLOCK, self._wanted(data)))
            if not block:
                break  # somebody cuts the file at this moment: its size is told by the caller
            self._digest.update(block)
            data += block
            starts, place = self._cut(data, at, place)
            yield self._checked(data, at, starts)
        self._end(at + place)

    def _wanted(self, data: bytes) -> int:
        """How many bytes are missing of the record that the data begin with."""
        length = record_length(data[:HEADER_BYTES])
        return 0 if length is None else min(HEADER_BYTES + length + FOOTER_BYTES, self._size) - len(data)

    def _cut(self, data: bytes, at: int, place: int) -> tuple[Spans, int]:
        """Finds records: of each its number and where its data begin and end; and where the next would begin."""
        found = self._as_indexed(data, at, place)
        place = found[-1][2] + FOOTER_BYTES if found else place
        while place + HEADER_BYTES <= len(data):
            length = record_length(data[place : place + HEADER_BYTES])
            if length is None:
                self._blame(at + place, "the checksum of its length is wrong")
                place = self._after(at + place) - at
                continue
            end = place + HEADER_BYTES + length + FOOTER_BYTES
            if at + end > self._size:
                missing = at + end - self._size
                self._blame(at + place, f"the file ends inside it: {missing:,} of its {length:,} bytes are missing")
                place = self._size - at
            elif end > len(data):
                break
            else:
                self.offsets.append(at + place)
                found.append((self._number, place + HEADER_BYTES, end - FOOTER_BYTES))
                self._number += 1
                place = end
        return found, place

    def _as_indexed(self, data: bytes, at: int, place: int) -> Spans:
        """The records of a piece where the index has them, if all their heads say so too: a third of the time."""
        first, last = np.searchsorted(self._index, [at + place, at + len(data)], side="right").tolist()
        places = (self._index[max(0, first - 1) : last] - at).tolist()
        if len(places) < 2 or places[0] != place or first - 1 != self._number:
            return []
        heads = b"".join([data[start : start + HEADER_BYTES] for start in places[:-1]])
        lengths = [end - start - HEADER_BYTES - FOOTER_BYTES for start, end in itertools.pairwise(places)]
        if min(lengths) < 0 or heads != b"".join(map(frame_head, lengths)):
            return []
        self.offsets.extend(start + at for start in places[:-1])
        number, self._number = self._number, self._number + len(lengths)
        return [
            (number + i, start + HEADER_BYTES, start + HEADER_BYTES + length)
            for i, (start, length) in enumerate(zip(places, lengths, strict=False))
        ]

    def _blame(self, offset: int, message: str) -> None:
        """Tells of a record whose end is not known."""
        self.is_whole = False
        self._tell(self._number, offset, message)

    def _after(self, offset: int) -> int:
        """Where the next record begins by the index; the file's end where that is not known."""
        next_ = int(np.searchsorted(self._index, offset, side="right"))
        if next_ >= len(self._index):
            if len(self._index) < 2 and self._size > offset:
                self._tell(self._number, offset, "it and what follows cannot be told apart: the index is damaged too")
            return self._size
        self.offsets.append(offset)
        self._number = next_
        return int(self._index[next_])

    def _end(self, place: int) -> None:
        if place < self._size:
            self._blame(place, f"the file ends inside its header, after {self._size - place:,} of {HEADER_BYTES} bytes")
        self.offsets.append(self._size)

    def _checked(self, data: bytes, at: int, found: Spans) -> Records:
        view = np.frombuffer(data, np.uint8)
        frames: list[Frame] = [data[start:end] if end - start <= COPIED else view[start:end] for _, start, end in found]
        records = [frame if isinstance(frame, bytes) else frame.data for frame in frames]
        batch = Records([number for number, *_ in found], [at + start - HEADER_BYTES for _, start, _ in found], records)
        expected = frame_tails(frames)
        tails = b"".join([data[end : end + FOOTER_BYTES] for *_, end in found])
        if tails == expected:
            return batch
        right = np.frombuffer(tails, "<u4") == np.frombuffer(expected, "<u4")
        for place in np.flatnonzero(~right).tolist():
            message = f"the checksum of its data ({len(records[place]):,} bytes) is wrong"
            self._tell(batch.numbers[place], batch.offsets[place], message)
        return batch.keep(np.flatnonzero(right).tolist())
