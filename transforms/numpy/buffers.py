"""Memory for batches: page-aligned, and used again when no view of a batch is left.

A large array has an anonymous memory map of its own. When the array and all its views are gone, the map waits for
the next array of about its size: its pages are there already, so the kernel need not clear new ones. The alignment lets
TensorFlow take an array as it is, without a copy.

>>> memory = BatchMemory()
>>> batch = memory.empty((256, 224, 224, 3), np.uint8)
"""

import math
import mmap as maps
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from mmap import mmap
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Empty: TypeAlias = Callable[[Sequence[int], npt.DTypeLike], Array]
"""Returns an uninitialized array of a shape and a dtype: `numpy.empty`, or `BatchMemory.empty`."""

SMALL = 64 << 10  # 64 KiB: below, the allocator of C keeps pages itself
STREAMED = 32  # bytes, see `pixels_read_soon`
SPARE, SPARE_BYTES = 8, 32 << 20  # maps of a size that wait, or 32 MiB: more came from batches that a user collected


PRIVATE = {"flags": maps.MAP_PRIVATE | maps.MAP_ANONYMOUS} if hasattr(maps, "MAP_PRIVATE") else {}
"""Makes a map private to the process, as one without a name is on Windows."""


def _private_map(size: int) -> mmap:
    try:
        return mmap(-1, size, **PRIVATE)
    except (OSError, OverflowError):
        raise MemoryError(f"{size:,} bytes") from None


class BatchMemory:
    """Returns arrays for batches. Threads may share it; a forked process writes into pages of its own."""

    new_map: ClassVar[Callable[[int], mmap | memoryview]] = staticmethod(_private_map)
    """Returns memory of so many bytes; a worker process takes it from what it shares with its parent."""

    def __init__(self) -> None:
        _keep_freed_memory()
        # Maps by their size in bytes. Single operations on a dict and a list need no lock, and there may be none: the
        # collector can end an array at any point of any thread, also inside `empty`.
        self._spare: dict[int, list[mmap | memoryview]] = {}
        self._closed = False

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Returns an uninitialized array; its memory returns when its last view is gone."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < SMALL or dtype.hasobject:
            return np.empty(shape, dtype)
        memory = self._take(1 << (size - 1).bit_length())  # pages that nothing is written to cost nothing
        # Views hold on to this array: NumPy ends a chain of views at the array that stands on another's buffer.
        root = np.frombuffer(memory, np.uint8, size)
        weakref.finalize(root, _give_back, weakref.ref(self), memory).atexit = False
        return root.view(dtype).reshape(shape)

    def close(self) -> None:
        """Frees the waiting memory; memory in use goes with its arrays. `empty` still gives arrays."""
        self._closed = True
        self._spare.clear()

    def _take(self, size: int) -> mmap | memoryview:
        try:
            return self._spare[size].pop()
        except LookupError:
            return type(self).new_map(size)

    def _keep(self, memory: mmap | memoryview) -> None:
        if not self._closed:
            waiting = self._spare.setdefault(len(memory), [])
            if len(waiting) < max(SPARE, SPARE_BYTES // len(memory)):
                waiting.append(memory)


def pixels_read_soon(shape: Sequence[int]) -> Array:
    """Returns memory for decoded pixels that are read again at once: uint8 of a shape, uninitialized.

    libjpeg-turbo stores rows that begin at a multiple of 32 bytes (of 16 without AVX2) past the processor's cache:
    `vmovntdq` in its jdcolext-avx2.asm. These begin beside one, which takes 6 to 10 % less of an image's time.
    """
    size = math.prod(shape)
    memory = np.empty(size + STREAMED, np.uint8)
    start = (STREAMED // 4 - memory.__array_interface__["data"][0]) % STREAMED
    return memory[start : start + size].reshape(shape)


@cache
def _keep_freed_memory() -> None:
    """Makes glibc keep freed memory for the next allocation, once a process.

    By default it hands larger pieces back to the kernel and faults them in again. A large piece that was freed raises
    the sizes from which it does so (`mallopt`, M_MMAP_THRESHOLD: dynamic, to 32 MiB at most).
    """
    np.empty((32 << 20) - 8192, np.uint8)


def _give_back(owner: "weakref.ref[BatchMemory]", memory: mmap | memoryview) -> None:
    pool = owner()
    if pool is not None:  # else the map ends here
        pool._keep(memory)
