"""Batches made in worker processes, where Python's lock is the limit: the same batches, in the same order.

A worker is a plain `python -c` with a pipe, not `multiprocessing`: a fork is not safe where TensorFlow or JAX runs
threads, and `spawn` imports the user's script again, which then needs a guard. The batch is in memory that worker and
parent share; it is used again when the parent has dropped the last view of it. A worker owns nothing that outlives it,
so it is simply killed in the end, and ends by itself when its parent is killed.

>>> for step, batch in in_processes(batches, iter(range(100)), workers=2):  # doctest: +SKIP
...     ...
"""

import io
import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.parallel import waiting_pair
from recordmill.pipeline.reader.metrics import counters_of
from recordmill.pipeline.reader.worker_process import Answer, SharedMemory, new_file

Made = TypeVar("Made")
Asked = TypeVar("Asked")

AHEAD = 2  # batches of a worker: one in the making, and one that waits or is next
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
pipe, file, *sys.path = sys.argv[1:]
from recordmill.pipeline.reader.worker_process import main
main(int(pipe), int(file))
"""


def in_processes(
    make: Callable[[Asked], Made], steps: Iterator[Asked], workers: int
) -> Generator[tuple[Asked, Made], None, None]:
    """Yields each step with its batch, in the order of the steps; no steps give nothing.

    The processes end with the iterator, or when it is dropped.

    Args:
        make: gives the batch, or batches, of a step. It is pickled; its `counters`, if it has any, sum what
            all workers count.
        steps: taken one by one as batches are given out.
        workers: the number of processes; at most two batches each are under way.

    Raises:
        DatasetError: `make` cannot be sent to other processes, or a process died.
        Exception: whatever `make` raised, with its own type and message.
    """
    task = pickled_task(make)
    pool: list[_Worker] = []
    try:
        for number in range(workers):
            pool.append(_Worker(number))
        for worker in pool:
            worker.begin(task)
        yield from _in_turn(make, steps, pool)
    finally:
        for worker in pool:
            worker.close()


def _in_turn(
    make: Callable[[Asked], Made], steps: Iterator[Asked], pool: list["_Worker"]
) -> Generator[tuple[Asked, Made], None, None]:
    """Asks the workers in turn, so that the batches come in the steps' order."""
    counters = counters_of(make)
    asked: deque[tuple[Asked, _Worker]] = deque()

    def oldest() -> tuple[Asked, Made]:
        step, worker = asked.popleft()
        batch, counts = worker.batch()
        counters.add(counts)
        return step, batch

    for step, worker in zip(steps, cycle(pool), strict=False):
        worker.ask(step)
        asked.append((step, worker))
        if len(asked) >= AHEAD * len(pool):
            yield oldest()
    while asked:
        yield oldest()


def pickled_task(task: Any) -> bytes:
    """Pickles the task of worker processes.

    Raises:
        DatasetError: a function or a class of it cannot be imported by another process.
    """
    stream = io.BytesIO()
    try:
        _TaskPickler(stream, protocol=5).dump(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DatasetError(f"this cannot be sent to worker processes ({error}): {_ADVICE}") from error
    return stream.getvalue()


_ADVICE = "put it into a module that both can import, or read with threads alone, workers=0"


class _TaskPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Pickle names a function by its module. Another process' `__main__` is another one.
        if getattr(value, "__module__", None) == "__main__" and hasattr(value, "__qualname__"):
            raise DatasetError(f"`{value.__qualname__}` cannot be sent to worker processes from a script: {_ADVICE}")
        return NotImplemented


class _Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._dropped: deque[int] = deque()  # numbers of arrays whose memory the worker may use again
        mine, its = waiting_pair()
        file = new_file()
        try:
            self._memory = SharedMemory(file)
            self._process = _start(its.fileno(), file)
        finally:
            os.close(file)
            its.close()
        self._pipe = Connection(mine.detach())

    def begin(self, task: bytes) -> None:
        """Sends the task."""
        with suppress(ConnectionError):  # it has died, which `batch` raises after the batches that it made
            self._pipe.send_bytes(task)

    def ask(self, step: Any) -> None:
        """Requests a batch, and releases memory that the worker may use again."""
        dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
        with suppress(ConnectionError):
            self._pipe.send((step, dropped))

    def batch(self) -> tuple[Any, dict[str, float]]:
        """Waits for the oldest batch that was requested, and returns it with the worker's counts since the last one."""
        try:
            answer: Answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise self._died() from None
        views = [self._view(*piece) for piece in answer.pieces]
        batch = pickle.loads(answer.pickled, buffers=views)  # noqa: S301 - our own process'
        if answer.failed:
            raise batch
        return batch, answer.counters

    def close(self) -> None:
        """Ends the process; arrays in use stay."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()

    def _view(self, number: int, offset: int, size: int) -> object:
        view = self._memory.array(offset, size)
        # The collector calls it at any point of any thread: a single operation, and no lock.
        weakref.finalize(view, self._dropped.append, number).atexit = False
        return view

    def _died(self) -> DatasetError:
        status = self._process.wait()
        if status >= 0:
            return DatasetError(f"worker process {self._number} ended with status {status}; its output is above")
        died = f"worker process {self._number} died of signal {-status} ({signal.strsignal(-status)})"
        return DatasetError(f"{died}: {_DEATHS.get(-status, 'workers=0 reads without processes')}")


_MEMORY = "out of memory? take fewer workers, or a smaller batch_size"
_DEATHS: dict[int, str] = {signal.SIGKILL: _MEMORY, signal.SIGBUS: _MEMORY}


def _start(pipe: int, file: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", COMMAND, str(pipe), str(file), *sys.path]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(pipe, file))  # noqa: S603
