"""Memory for batches: page-aligned, reused after the last view of a batch is gone, and shared between processes.

A large array has its own anonymous memory map. After the array and all its views are gone, the map waits for the next
array of about its size, which saves the kernel clearing new pages. The alignment lets TensorFlow use it without a copy.

>>> memory = BatchMemory()
>>> batch = memory.empty((256, 224, 224, 3), np.uint8)
"""

import math
import mmap as maps
import os
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from mmap import mmap
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.parallel import free_bytes

Array: TypeAlias = npt.NDArray[Any]
Empty: TypeAlias = Callable[[Sequence[int], npt.DTypeLike], Array]
"""Returns an uninitialized array of a shape and a dtype: `numpy.empty`, or `BatchMemory.empty`."""

LARGE = 1 << 30  # 1 GiB
SMALL = 64 << 10  # 64 KiB: below, C's allocator keeps pages
STREAMED = 32  # bytes, see `pixels_read_soon`
SPARE, SPARE_BYTES = 8, 32 << 20  # waiting maps of a size, or 32 MiB: more come from batches that a user collected
# Private to the process, as unnamed maps are on Windows.
PRIVATE = {"flags": maps.MAP_PRIVATE | maps.MAP_ANONYMOUS} if hasattr(maps, "MAP_PRIVATE") else {}


def _private_map(size: int) -> mmap:
    try:
        return mmap(-1, size, **PRIVATE)
    except (OSError, OverflowError):
        raise MemoryError(f"{size:,} bytes") from None


class BatchMemory:
    """Allocates arrays for batches. Threads may share it; a forked process writes to its own pages."""

    new_map: ClassVar[Callable[[int], mmap | memoryview]] = staticmethod(_private_map)
    """Allocates bytes; a worker process takes them from the memory shared with its parent."""

    def __init__(self) -> None:
        _keep_freed_memory()
        # Maps by size in bytes. No lock: the collector can free an array at any point, also inside `empty`.
        self._spare: dict[int, list[mmap | memoryview]] = {}
        self._closed = False

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Returns an uninitialized array; its memory is reused after its last view is gone."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < SMALL or dtype.hasobject:
            return np.empty(shape, dtype)
        if size > LARGE and size > free_bytes():  # the system would end the process when it is filled
            raise MemoryError(f"{size:,} bytes")
        mapped = 1 << (size - 1).bit_length()  # untouched pages are free
        memory: mmap | memoryview
        try:
            memory = self._spare[mapped].pop()
        except LookupError:
            memory = type(self).new_map(mapped)
        # All views keep this array alive: NumPy's chain of bases ends at an array on a foreign buffer.
        root = np.frombuffer(memory, np.uint8, size)
        weakref.finalize(root, _give_back, weakref.ref(self), memory).atexit = False
        return root.view(dtype).reshape(shape)

    def close(self) -> None:
        """Frees waiting memory; memory in use goes with its arrays. `empty` still works."""
        self._closed = True
        self._spare.clear()


def pixels_read_soon(shape: Sequence[int]) -> Array:
    """Returns uint8 memory beside a multiple of 32 bytes, where libjpeg-turbo's rows stay in the cache."""
    size = math.prod(shape)
    memory = np.empty(size + STREAMED, np.uint8)
    start = (STREAMED // 4 - memory.__array_interface__["data"][0]) % STREAMED
    return memory[start : start + size].reshape(shape)


@cache
def _keep_freed_memory() -> None:
    """Makes glibc keep freed memory, once a process: freeing a large piece raises its M_MMAP_THRESHOLD (`mallopt`)."""
    np.empty((32 << 20) - 8192, np.uint8)


def _give_back(owner: "weakref.ref[BatchMemory]", memory: mmap | memoryview) -> None:
    pool = owner()
    if pool is not None and not pool._closed:  # else the map ends here
        waiting = pool._spare.setdefault(len(memory), [])
        if len(waiting) < max(SPARE, SPARE_BYTES // len(memory)):
            waiting.append(memory)


ADDRESSES = 1 << 40  # 1 TiB of addresses: pages are allocated when written


def new_file() -> int:
    """Returns the descriptor of a new file in memory, or else of a temporary one; the caller closes it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("recordmill-batches", os.MFD_CLOEXEC)
    else:  # macOS
        import tempfile

        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, ADDRESSES)
    return file


class SharedMemory:
    """A file in memory, mapped by two processes: a worker takes blocks of it, its parent shows them as arrays.

    The kernel frees it when both have ended. /dev/shm is avoided: containers often give it only 64 MiB. It is one map,
    because each of Python's maps holds a file descriptor.

    >>> memory = SharedMemory(new_file())
    >>> block = memory.take(4096)
    >>> memory.array(memory.offset(block), 4096).nbytes
    4096
    """

    def __init__(self, file: int) -> None:
        self._map = mmap(file, ADDRESSES)
        self._start = _address(self._map)
        self._end = 0
        self._free: defaultdict[int, list[int]] = defaultdict(list)  # offsets of free blocks, by size

    def take(self, size: int) -> memoryview:
        """Returns a page-aligned block; dropping it frees its pages. Only blocks of the same size reuse its place."""
        free = self._free[size]
        try:
            offset = free.pop()
        except IndexError:
            offset, self._end = self._end, self._end + _pages(size)
        block = memoryview(self._map)[offset : offset + size]
        weakref.finalize(block, self._give_back, offset, size).atexit = False
        return block

    def offset(self, buffer: Any) -> int | None:
        """Returns a buffer's offset in this memory; None if elsewhere."""
        offset = _address(buffer) - self._start
        return offset if 0 <= offset < ADDRESSES else None

    def array(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Returns a view of the memory: uint8 [size]."""
        return np.frombuffer(self._map, np.uint8, size, offset)

    def _give_back(self, offset: int, size: int) -> None:
        with suppress(OSError, AttributeError):  # not on every system: the pages stay for the next block
            self._map.madvise(maps.MADV_REMOVE, offset, _pages(size))
        self._free[size].append(offset)


def _pages(size: int) -> int:
    return -(-size // maps.PAGESIZE) * maps.PAGESIZE


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])
