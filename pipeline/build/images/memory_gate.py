"""Tries a failed action once more with nothing else under way in the process, before its error counts.

Under memory pressure decoders call a good image damaged: TensorFlow's libjpeg says "Invalid JPEG data" where
an allocation failed. Alone it has the memory, or fails again.

>>> retry_alone(lambda: 7, "count", (ValueError,))
7
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import tensorflow as tf

from recordmill.pipeline.parallel import cores
from recordmill.pipeline.sources.files import OutOfMemoryError

NO_MEMORY = (MemoryError, tf.errors.ResourceExhaustedError)
Result = TypeVar("Result")


class MemoryGate:
    """Admits threads while memory lasts, or one thread exclusively. Not reentrant."""

    def __init__(self, limit: int = 0) -> None:
        """Takes the bytes that threads may need together; one that needs more waits until no other needs any."""
        self._limit, self._bytes = limit, 0
        self._changed = threading.Condition()
        self._together, self._waiting, self._is_alone = 0, 0, False

    @contextmanager
    def together(self, needs: int = 0) -> Iterator[None]:
        """Waits while a thread is alone or waits to be, or the others' needs leave no room for so many bytes."""
        with self._changed:
            self._changed.wait_for(lambda: self._admits(needs))
            self._together += 1
            self._bytes += needs
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._bytes -= needs
                self._changed.notify_all()

    def _admits(self, needs: int) -> bool:
        has_room = not (self._bytes and needs) or self._bytes + needs <= self._limit
        return has_room and not (self._is_alone or self._waiting)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until all others are done, and keeps others out."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not (self._is_alone or self._together))
            self._waiting -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


GATE = MemoryGate(max(768 << 20, cores() * (128 << 20)))  # 768 MiB, or 128 MiB a core
"""All work of this process that takes much memory goes through it."""


def retry_alone(
    action: Callable[[], Result],
    purpose: str,
    doubtful: tuple[type[Exception], ...] = (),
    needs: int = 0,
    gate: MemoryGate = GATE,
) -> Result:
    """Runs an action and returns its result; where memory was short, or after one of `doubtful`, runs it again, alone.

    Args:
        action: the action.
        purpose: the action's name in a message.
        doubtful: other errors that may mean that memory was short.
        needs: about how many bytes of memory it takes.
        gate: the gate that the action goes through.

    Raises:
        OutOfMemoryError: memory is short even alone.
    """
    try:
        try:
            with gate.together(needs):
                return action()
        except (*NO_MEMORY, *doubtful):
            with gate.alone():
                return action()
    except NO_MEMORY:
        raise OutOfMemoryError(purpose) from None
