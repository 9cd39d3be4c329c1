"""Memory that a worker process writes batches into and its parent looks at, without a copy and without a name.

It is one anonymous file (`memfd_create`) that both map. Nothing lies in /dev/shm, which in containers often has but
64 MiB, and the kernel frees the file when both processes have ended, however they end. It is one map, not one for each
array, because each of Python's maps holds a file descriptor.

>>> memory = SharedMemory(new_file())
>>> block = memory.take(4096)
>>> memory.array(memory.offset(block), 4096).nbytes
4096
"""

import mmap
import os
import weakref
from collections import defaultdict
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

ADDRESSES = 1 << 40  # 1 TiB of addresses, more than there is memory: pages come when they are written to


def new_file() -> int:
    """Gives the descriptor of a new file in memory; the caller closes it."""
    file = os.memfd_create("recordmill-batches", os.MFD_CLOEXEC)
    os.ftruncate(file, ADDRESSES)
    return file


class SharedMemory:
    """The file, mapped by one process: a worker takes blocks of it, its parent shows them as arrays."""

    def __init__(self, file: int) -> None:
        self._map = mmap.mmap(file, ADDRESSES)
        self._start = _address(self._map)
        self._end = 0
        # Offsets of blocks that were given back, by their size. As in `BatchMemory`, there may be no lock.
        self._free: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, size: int) -> memoryview:
        """Gives a block, page-aligned; its pages go back to the system when the block is dropped.

        Args:
            size: in bytes; the same few sizes each time, since a block is only used again for its own size.
        """
        free = self._free[size]
        try:
            offset = free.pop()
        except IndexError:
            offset, self._end = self._end, self._end + _pages(size)
        block = memoryview(self._map)[offset : offset + size]
        weakref.finalize(block, self._give_back, offset, size).atexit = False
        return block

    def offset(self, buffer: Any) -> int | None:
        """Gives the offset of a buffer in this memory; None where it lies elsewhere."""
        offset = _address(buffer) - self._start
        return offset if 0 <= offset < ADDRESSES else None

    def array(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Gives a view of the memory: uint8 [size]."""
        return np.frombuffer(self._map, np.uint8, size, offset)

    def _give_back(self, offset: int, size: int) -> None:
        with suppress(OSError):  # a system that cannot: its pages stay, for the next block
            self._map.madvise(mmap.MADV_REMOVE, offset, _pages(size))
        self._free[size].append(offset)


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])
