"""Shards in an object store, read by ranges through fsspec.

The records of a call are read in as few requests as their offsets allow, all at once; or by their blocks, which stay in
memory for a while and which threads share. An index is read whole when it is first needed, and kept.

>>> RemoteShards([ShardFile("s3://data/a.tfrecord", "s3://data/a.index", 2, 120, "…")])  # doctest: +SKIP
>>> blocks = RecentBlocks(read=lambda ranges: [bytes(each.end - each.start) for each in ranges])
>>> [len(data) for data in blocks.get([Range("s3://data/a.tfrecord", 0, 3)])]
[3]
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.local_shards import COPIED, Frame, ShardFile, check_size
from recordmill.pipeline.reader.version_files import MISSING, file_system, unreadable

KEPT = 160 << 20  # 160 MiB: two groups of `order.block_shuffle`, for batches made side by side, and some more


class Range(NamedTuple):
    """The bytes of a file from `start` to `end`."""

    path: str
    start: int
    end: int


class RecentBlocks:
    """Keeps the ranges that were used last, up to a number of bytes."""

    def __init__(self, read: Callable[[Sequence[Range]], list[bytes]], kept: int = KEPT) -> None:
        """Takes a function that reads ranges, all at once, and the bytes to keep."""
        self._read, self._kept = read, kept
        self._blocks: OrderedDict[Range, Future[bytes]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, wanted: Sequence[Range]) -> list[bytes]:
        """Returns the bytes of ranges, which all differ.

        Raises:
            Exception: whatever `read` raises, in all threads that waited for it; the next call reads again.
        """
        with self._lock:
            missing = [each for each in wanted if each not in self._blocks]
            futures = [self._blocks.setdefault(each, Future()) for each in wanted]
            for each in wanted:
                self._blocks.move_to_end(each)
            self._bytes += sum(each.end - each.start for each in missing)
            while self._bytes > self._kept and len(self._blocks) > 1:
                self._drop(next(iter(self._blocks)))
        if missing:
            self._fill(missing, dict(zip(wanted, futures, strict=True)))
        return [block.result() for block in futures]

    def clear(self) -> None:
        """Drops all ranges."""
        with self._lock:
            self._blocks.clear()
            self._bytes = 0

    def _fill(self, missing: Sequence[Range], blocks: dict[Range, Future[bytes]]) -> None:
        try:
            for each, data in zip(missing, self._read(missing), strict=True):
                blocks[each].set_result(data)
        except BaseException as error:
            with self._lock:
                for each in missing:
                    if self._blocks.get(each) is blocks[each]:
                        self._drop(each)
            for each in missing:
                if not blocks[each].done():
                    blocks[each].set_exception(error)
            raise

    def _drop(self, each: Range) -> None:
        del self._blocks[each]
        self._bytes -= each.end - each.start


CONNECTIONS = 32  # at once, for one request a file
GAP = 64 << 10  # 64 KiB: reading this much more takes less time than another request


class RemoteShards:
    """`Shards` of URLs.

    Raises:
        DatasetError: the package that reads such URLs is not installed.
    """

    def __init__(self, shards: Sequence[ShardFile], cuts: Sequence[npt.NDArray[np.int64]] | None = None) -> None:
        """Takes the records of each shard with which blocks begin, rising from 0; None to read records alone."""
        self._shards, self._cuts = shards, cuts
        self._indexes: dict[int, memoryview] = {}
        self._blocks = RecentBlocks(read_ranges)
        for shard in shards[:1]:
            file_system(shard.file)

    def index(self, shard: int) -> memoryview:
        """See `Shards`."""
        self._load([shard])
        return self._indexes[shard]

    def frames(self, shards: Sequence[int], records: Sequence[int]) -> list[Frame]:
        """See `Shards`."""
        self._load(list(dict.fromkeys(shards)))
        spans = [self._range(shard, record, record + 1) for shard, record in zip(shards, records, strict=True)]
        rows = [row for row, shard in enumerate(shards) if self._possible(shard, spans[row])]
        frames: list[Frame] = [b""] * len(spans)
        if self._cuts is None:
            holders, data = together([spans[row] for row in rows])
        else:
            holders = [self._block(self._cuts[shards[row]], shards[row], records[row], spans[row]) for row in rows]
            wanted = list(dict.fromkeys(holders))
            data = dict(zip(wanted, self._blocks.get(wanted), strict=True))
        for row, holder in zip(rows, holders, strict=True):
            start, end = spans[row].start - holder.start, spans[row].end - holder.start
            small = end - start <= COPIED
            frames[row] = data[holder][start:end] if small else np.frombuffer(data[holder], np.uint8)[start:end]
        return frames

    def check(self) -> None:
        """See `Shards`. Reads all indexes, as records will be read in any order."""
        files = [file for shard in self._shards for file in shard.sizes()]
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            for (path, expected), size in zip(files, threads.map(_size, files), strict=True):
                check_size(path, size, expected)
        self._load(range(len(self._shards)))

    def sha256(self, shard: int) -> str:
        """See `Shards`."""
        path = self._shards[shard].file
        try:
            with file_system(path).open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except Exception as error:  # a store's library has its own errors, not only OSError
            raise unreadable(path, error) from None

    def close(self) -> None:
        """See `Shards`."""
        self._indexes.clear()
        self._blocks.clear()

    def _range(self, shard: int, first: int, end: int) -> Range:
        """Returns the range of records, by the index."""
        index = self._indexes[shard]
        return Range(self._shards[shard].file, index[first], index[end])

    def _possible(self, shard: int, span: Range) -> bool:
        return span.start < span.end <= self._shards[shard].bytes

    def _block(self, cuts: npt.NDArray[np.int64], shard: int, record: int, span: Range) -> Range:
        """Returns the block of a record; where the index is damaged, the record alone."""
        number = int(np.searchsorted(cuts, record, side="right"))
        end = cuts[number] if number < len(cuts) else self._shards[shard].records
        block = self._range(shard, int(cuts[number - 1]), int(end))
        return block if self._possible(shard, block) and block.start <= span.start and span.end <= block.end else span

    def _load(self, shards: Sequence[int]) -> None:
        missing = [shard for shard in shards if shard not in self._indexes]
        sizes = [self._shards[shard].sizes()[1] for shard in missing]
        # One byte more than it should have shows an index that is too long.
        ranges = [Range(path, 0, size + 1) for path, size in sizes]
        for shard, (path, size), data in zip(missing, sizes, read_ranges(ranges, whole=False), strict=True):
            check_size(path, len(data), size)
            self._indexes[shard] = memoryview(data).cast("Q")


def read_ranges(ranges: Sequence[Range], *, whole: bool = True) -> list[bytes]:
    """Reads ranges of files of one store, all at once.

    Raises:
        DatasetError: a file is missing or cannot be read; with `whole`, a range reaches beyond its file's end.
    """
    if not ranges:
        return []
    paths, starts, ends = (list(part) for part in zip(*ranges, strict=True))
    read: list[bytes] = file_system(ranges[0].path).cat_ranges(paths, starts, ends, on_error="return")
    for wanted, data in zip(ranges, read, strict=True):
        if isinstance(data, Exception):
            raise unreadable(wanted.path, data) from None
        if whole and len(data) != wanted.end - wanted.start:
            raise DatasetError(f"{wanted.path} ends before byte {wanted.end:,}: {MISSING}")
    return read


def together(spans: Sequence[Range]) -> tuple[list[Range], dict[Range, bytes]]:
    """Reads spans, those near each other in one request.

    Returns:
        for each span the range that holds it, and the ranges' bytes.
    """
    order = sorted(range(len(spans)), key=spans.__getitem__)
    merged, member = merge([spans[number] for number in order])
    holders = list(spans)
    for number, holder in zip(order, member, strict=True):
        holders[number] = merged[holder]
    return holders, dict(zip(merged, read_ranges(merged), strict=True))


def merge(ranges: Sequence[Range]) -> tuple[list[Range], list[int]]:
    """Joins sorted ranges of a file that touch, overlap or are less than `GAP` apart.

    Returns:
        the joined ranges, and for each of `ranges` the number of the one that holds it.

    >>> merge([Range("a", 0, 10), Range("a", 10, 30), Range("b", 30, 40)])
    ([Range(path='a', start=0, end=30), Range(path='b', start=30, end=40)], [0, 0, 1])
    """
    merged: list[Range] = []
    member: list[int] = []
    for wanted in ranges:
        if merged and merged[-1].path == wanted.path and wanted.start - merged[-1].end < GAP:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, wanted.end))
        else:
            merged.append(wanted)
        member.append(len(merged) - 1)
    return merged, member


def _size(file: tuple[str, int]) -> int:
    path = file[0]
    try:
        return int(file_system(path).size(path))
    except Exception as error:
        raise unreadable(path, error) from None
