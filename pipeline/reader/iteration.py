"""The owner and the end of an iteration, for all forms of batches.

>>> next(Iteration(iter([1]), close=int))
1
"""

import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from recordmill.pipeline.errors import DatasetError


class Iteration(Iterator[Any]):
    """An iterator of one process, which ends as it ended: a forked process would take answers of its parent's workers.

    Raises:
        DatasetError: another process made it, or it was closed.
        BaseException: the error or Ctrl-C that ended it, again at each further `next`.
    """

    def __init__(self, made: Iterator[Any], close: Callable[[], None]) -> None:
        """Takes an iterator, and what frees its threads, processes and files."""
        self._made, self._process = made, os.getpid()
        self._end: BaseException | None = None
        self._close = weakref.finalize(self, _close_in, self._process, close)

    def __next__(self) -> Any:
        """Returns the next value."""
        if (here := os.getpid()) != self._process:
            raise DatasetError(f"this iteration belongs to process {self._process}: begin one here, in process {here}")
        if self._end is not None:
            raise self._end
        try:
            return self._next()
        except BaseException as error:
            if str(error) == "generator already executing":  # Python's words
                raise DatasetError(
                    "another `next` of this iteration runs: give each thread its own, or take turns"
                ) from None
            # What was raised holds this frame, and so the iteration: the usual end is another one.
            self._end = StopIteration() if isinstance(error, StopIteration) else error
            raise
        finally:
            if self._end is not None:
                self.close()

    def _next(self) -> Any:
        return next(self._made)

    def close(self) -> None:
        """Ends the iteration with its threads, processes, files and memory, as dropping it does."""
        self._end = self._end or DatasetError("this iteration was closed: begin another one")
        if not getattr(self._made, "gi_running", False):  # else the call that runs closes when it returns
            self._close()


def _close_in(process: int, close: Callable[[], None]) -> None:
    if os.getpid() == process:
        close()
