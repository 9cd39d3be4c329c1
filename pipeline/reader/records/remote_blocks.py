"""A cache of ranges of remote files, for records that are read piece by piece.

Threads share it: while one reads a range, the others wait for it.

>>> blocks = RecentBlocks(read=lambda ranges: [bytes(each.end - each.start) for each in ranges])
>>> [len(data) for data in blocks.get([Range("s3://data/a.tfrecord", 0, 3)])]
[3]
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

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
        """Gives the bytes of ranges, which all differ.

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
