"""A worker process: it makes the batch of each requested step, until its pipe is closed; it imports little."""

import io
import pickle
import traceback
from contextlib import suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.metrics import Counters
from recordmill.transforms.base.buffers import SMALL, BatchMemory, SharedMemory

Piece: TypeAlias = tuple[int, int, int]  # an array of a batch in the shared memory: its number, offset and size


class _BatchPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # NumPy copies arrays of other packages' types, such as bfloat16, into the stream.
        if isinstance(value, np.ndarray) and value.dtype.isbuiltin == 2:
            return np.ndarray.view, (value.view(f"u{value.itemsize}"), value.dtype)
        return NotImplemented


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
            note, failed = "In a worker process:\n" + "".join(traceback.format_exception(error)), True
            try:
                pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
            except Exception:  # the parent could not unpickle it: its message alone
                error = RuntimeError(f"{type(error).__name__}: {error}")
            if not isinstance(error, DatasetError):  # its message is enough
                error.add_note(note)
            pickled, pieces = pickle.dumps(error), []
        return Answer(pickled, pieces, failed, getattr(self._batches, "counters", Counters()).take())

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
        pieces.append((number, offset, len(array)))
        return False


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
