"""The loop of a worker process: it makes the batch of each requested step, until its pipe is closed.

Arrays that the parent uses are held here, so that their memory is not used again; each request names those that the
parent has dropped.
"""

import pickle
import traceback
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader.metrics import counters_of
from recordmill.pipeline.reader.workers.batch_pickles import pickled_batch
from recordmill.pipeline.reader.workers.shared_memory import SharedMemory
from recordmill.transforms.numpy.buffers import SMALL, BatchMemory


class Piece(NamedTuple):
    """An array of a batch in the shared memory."""

    number: int
    offset: int
    size: int


class Answer(NamedTuple):
    """A batch, or an exception, as it goes through the pipe."""

    pickled: bytes
    pieces: list[Piece]
    failed: bool
    counters: dict[str, float]
    """The worker's counts since its last answer; see `Counters`."""


class Maker:
    """Makes answers to requests."""

    def __init__(self, task: bytes, memory: SharedMemory) -> None:
        self._task = task
        self._batches: Any = None
        self._memory = memory
        self._copies = BatchMemory()
        self._held: dict[int, Any] = {}
        self._numbers = count()

    def answer(self, step: int, dropped: list[int]) -> Answer:
        """Makes the batch of a step; an exception is an answer too."""
        for number in dropped:
            del self._held[number]
        pieces: list[Piece] = []
        failed = False
        try:
            if self._batches is None:
                self._batches = pickle.loads(self._task)  # noqa: S301 - the parent's
            pickled = pickled_batch(self._batches(step), lambda buffer: self._left_outside(buffer, pieces))
        except Exception as error:
            pickled, pieces, failed = _pickled_error(error), [], True
        return Answer(pickled, pieces, failed, counters_of(self._batches).take())

    def _left_outside(self, buffer: pickle.PickleBuffer, pieces: list[Piece]) -> bool:
        """Leaves a large array out of the stream, and holds it."""
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
    """Pickles an exception; one that the parent could not unpickle, as its message alone."""
    note = "In a worker process:\n" + "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    if not isinstance(error, DatasetError):  # whose message is all that a user needs
        error.add_note(note)
    return pickle.dumps(error)


def main(pipe: int, file: int) -> None:
    """Answers requests; the first message is the task. Returns when the parent closes the pipe, or has ended."""
    memory = SharedMemory(file)
    BatchMemory.new_map = memory.take
    with Connection(pipe) as parent:
        try:
            maker = Maker(parent.recv_bytes(), memory)
            while True:
                parent.send(maker.answer(*parent.recv()))
        except (EOFError, ConnectionError):
            return
