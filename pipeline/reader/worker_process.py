"""A worker process: it makes the batch of each requested step, until its pipe is closed.

Pickle protocol 5 (PEP 574) keeps arrays out of its stream: an answer is a few bytes and the arrays' places in shared
memory. That memory is one anonymous file (`memfd_create`), mapped by worker and parent: no copy, no name. /dev/shm is
avoided, as containers often give it only 64 MiB; and the kernel frees the file when both processes have ended, however
they end. It is one map, because each of Python's maps holds a file descriptor. The worker keeps the arrays that the
parent uses; each request lists those that the parent has dropped.

>>> memory = SharedMemory(new_file())
>>> block = memory.take(4096)
>>> memory.array(memory.offset(block), 4096).nbytes
4096
"""

import io
import mmap
import os
import pickle
import tempfile
import traceback
import weakref
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.metrics import counters_of
from recordmill.transforms.numpy.buffers import SMALL, BatchMemory

ADDRESSES = 1 << 40  # 1 TiB of addresses: pages are allocated when written


def new_file() -> int:
    """Returns the descriptor of a new file in memory, or else of a temporary one; the caller closes it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("recordmill-batches", os.MFD_CLOEXEC)
    else:  # macOS
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, ADDRESSES)
    return file


class SharedMemory:
    """The file, mapped by one process: a worker takes blocks of it, its parent shows them as arrays."""

    def __init__(self, file: int) -> None:
        self._map = mmap.mmap(file, ADDRESSES)
        self._start = _address(self._map)
        self._end = 0
        # Offsets of free blocks, by size. As in `BatchMemory`, locks could deadlock.
        self._free: defaultdict[int, list[int]] = defaultdict(list)

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
            self._map.madvise(mmap.MADV_REMOVE, offset, _pages(size))
        self._free[size].append(offset)


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


class _BatchPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # NumPy copies arrays of other packages' types, such as bfloat16, into the stream.
        if isinstance(value, np.ndarray) and value.dtype.isbuiltin == 2:
            return np.ndarray.view, (value.view(f"u{value.itemsize}"), value.dtype)
        return NotImplemented


class Piece(NamedTuple):
    """An array of a batch in the shared memory."""

    number: int
    offset: int
    size: int


class Answer(NamedTuple):
    """A batch, or an exception, in the pipe."""

    pickled: bytes
    pieces: list[Piece]
    failed: bool
    counters: dict[str, float]  # the worker's counts since its last answer; see `Counters`


class Maker:
    """Makes answers to requests."""

    def __init__(self, task: bytes, memory: SharedMemory) -> None:
        self._task = task
        self._batches: Any = None
        with suppress(Exception):  # the first answer raises it
            self._batches = pickle.loads(task)  # noqa: S301 - the parent's
        self._memory = memory
        self._copies = BatchMemory()
        self._held: dict[int, Any] = {}
        self._numbers = count()

    def answer(self, step: int, dropped: list[int]) -> Answer:
        """Makes the batch of a step; an exception is also an answer."""
        for number in dropped:
            del self._held[number]
        pieces: list[Piece] = []
        failed = False
        try:
            if self._batches is None:
                self._batches = pickle.loads(self._task)  # noqa: S301 - the parent's
            stream, outside = io.BytesIO(), partial(self._left_outside, pieces=pieces)
            _BatchPickler(stream, protocol=5, buffer_callback=outside).dump(self._batches(step))
            pickled = stream.getvalue()
        except Exception as error:
            pickled, pieces, failed = _pickled_error(error), [], True
        return Answer(pickled, pieces, failed, counters_of(self._batches).take())

    def _left_outside(self, buffer: pickle.PickleBuffer, pieces: list[Piece]) -> bool:
        """Keeps a large array out of the stream; returns True to pickle a buffer with the rest."""
        raw = buffer.raw()
        if raw.nbytes < SMALL:
            return True
        array = np.frombuffer(raw, np.uint8)
        offset = self._memory.offset(array)
        if offset is None:
            copy = self._copies.empty(array.shape, array.dtype)
            copy[:] = array
            array = copy
            offset = self._memory.offset(array)
        if offset is None:
            return True
        number = next(self._numbers)
        self._held[number] = array
        pieces.append(Piece(number, offset, len(array)))
        return False


def _pickled_error(error: Exception) -> bytes:
    """Pickles an exception, or its message alone if the parent could not unpickle it."""
    note = "In a worker process:\n" + "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    if not isinstance(error, DatasetError):  # its message is enough
        error.add_note(note)
    return pickle.dumps(error)


def main(pipe: int, file: int) -> None:
    """Answers requests until the parent ends or closes the pipe; the first message is the task."""
    memory = SharedMemory(file)
    BatchMemory.new_map = memory.take
    with Connection(pipe) as parent:
        try:
            maker = Maker(parent.recv_bytes(), memory)
            parent.send_bytes(b"ready")
            while True:
                parent.send(maker.answer(*parent.recv()))
        except (EOFError, ConnectionError):
            return
