"""Batches made in worker processes, past Python's lock: the same batches, in the same order.

A worker is a plain `python -c` with a pipe, not `multiprocessing`: a fork is unsafe beside TensorFlow's or JAX's
threads, and `spawn` imports the user's script again, which then needs a guard. It makes the batch of each requested
step. Pickle protocol 5 (PEP 574) keeps arrays out of its stream: an answer is a few bytes and the arrays' places in
shared memory, without a copy. The worker keeps the arrays that the parent uses; each request lists those that the
parent has dropped. A worker owns nothing that outlives it: it is killed in the end, and ends by itself when its parent
is killed.
"""

import io
import logging
import math
import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import cycle
from multiprocessing.connection import Connection
from threading import Event, Thread
from typing import Any, TypeAlias, TypeVar

import numpy as np

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.parallel import cores, free_bytes, in_order, waiting_pair
from recordmill.pipeline.reader.batches import BatchSource
from recordmill.pipeline.reader.metrics import Counters
from recordmill.pipeline.reader.worker_process import Answer
from recordmill.transforms.base.buffers import SharedMemory, new_file
from recordmill.transforms.base.stored import ArraySpec, arrays_of

LOG = logging.getLogger("recordmill")
Made = TypeVar("Made")
Asked = TypeVar("Asked")
Pairs: TypeAlias = Generator[tuple[Asked, Made], None, None]
AHEAD = 2  # batches per worker: one in the making, one ready or next
LEAST_IMAGES, LEAST_RECORDS = 2_000, 200_000  # in an iteration: a second's work for one core
MOST_FOR_ROWS = 8  # taking a batch of texts over costs a tenth of making it
WORKER_BYTES = 48 << 20  # 48 MiB: an idle process
SIDE = 512  # assumed for a variable side of an array
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
pipe, file, *sys.path = sys.argv[1:]
from recordmill.pipeline.reader.worker_process import main
main(int(pipe), int(file))
"""
_ADVICE = "put it into an importable module, or read with threads alone, workers=0"
_MEMORY = "out of memory? take fewer workers, or a smaller batch_size"
_DEATHS: dict[int, str] = {signal.SIGKILL: _MEMORY, signal.SIGBUS: _MEMORY}


def in_processes(
    make: Callable[[Asked], Made], steps: Iterator[Asked], workers: int, threads: int = 0, *, may_stay: bool = False
) -> Pairs[Asked, Made]:
    """Yields (step, batch) in the order of the steps; the processes end with the iterator.

    Args:
        make: makes the batch, or batches, of a step. It is pickled; its `counters`, if any, sum all workers' counts.
        steps: consumed as batches are given out.
        workers: the number of processes, with at most two batches each in progress.
        threads: threads of this process that make the batches until the processes are ready.
        may_stay: lets the threads make all batches if processes cannot be started, with a warning.

    Raises:
        DatasetError: `make` does not pickle, a process cannot be started, or one died. Errors of `make` come through.
    """
    try:
        yield from _by_processes(make, steps, workers, threads)
        return
    except NoProcesses as error:
        if not may_stay:
            raise DatasetError(str(error)) from None
        LOG.warning("%s; threads make the batches", error)
    yield from _in_threads(make, steps, threads)


def _by_processes(
    make: Callable[[Asked], Made], steps: Iterator[Asked], workers: int, threads: int
) -> Pairs[Asked, Made]:
    task, pool, closing, started = pickled_task(make), list[_Worker](), Event(), Future[None]()
    at_once = max(1, cores() // 2) if threads else workers
    starter = Thread(target=_start, args=(pool, range(workers), task, at_once, closing, started), daemon=True)
    starter.start()
    try:
        if threads:
            yield from _in_threads(make, iter(lambda: None if started.done() else next(steps, None), None), threads)
        if not threads or started.done():  # else all steps are made
            started.result()
            yield from _in_turn(make, steps, pool)
    finally:
        closing.set()
        for worker in pool:
            worker.kill()  # the starter may wait for it
        starter.join()
        for worker in pool:
            worker.close()


def _in_threads(make: Callable[[Asked], Made], steps: Iterator[Asked], threads: int) -> Pairs[Asked, Made]:
    return in_order(lambda step: (step, make(step)), steps, threads, threads + AHEAD)


class NoProcesses(DatasetError):  # noqa: N818
    """Worker processes cannot be used."""


def _no_start(reason: object) -> NoProcesses:
    return NoProcesses(f"worker processes cannot be started ({reason}): workers=0 reads without them")


def _start(
    pool: list["_Worker"], numbers: range, task: bytes, at_once: int, closing: Event, started: Future[None]
) -> None:
    """Starts processes, at most `at_once` at a time: until it is ready, each takes a core from the threads."""
    try:
        for number in numbers:
            if number >= at_once:
                pool[number - at_once].wait_until_ready()
            pool.append(_Worker(number))
            pool[-1].begin(task)
            if closing.is_set():  # else its end kills this process, too
                return
        for worker in pool[-at_once:]:
            worker.wait_until_ready()
        started.set_result(None)
    except Exception as error:
        started.set_exception(_no_start(error) if isinstance(error, OSError) else error)


def default_workers(source: BatchSource, steps: int) -> int:
    """Returns the default number of processes for an iteration: 0 for threads alone.

    One per core, as Python's lock lets threads fill at most two cores; none if the rows are read before a process has
    started. Memory limits the number, and without images what this process can take over.
    """
    least = LEAST_IMAGES if source.decodes else LEAST_RECORDS
    if cores() == 1 or steps * source.batch_records < least:
        return 0
    wanted = cores() if source.decodes else min(cores(), MOST_FOR_ROWS)
    of_worker = WORKER_BYTES + AHEAD * source.steps_together * sum(map(_bytes, arrays_of(source.element_spec)))
    return min(wanted, free_bytes() // (2 * of_worker))


def _bytes(spec: ArraySpec) -> int:
    size = 2 if spec.dtype == "bfloat16" else 64 if spec.dtype == "bytes" else np.dtype(spec.dtype).itemsize
    return size * math.prod(SIDE if side is None else side for side in spec.shape)


def _in_turn(make: Callable[[Asked], Made], steps: Iterator[Asked], pool: list["_Worker"]) -> Pairs[Asked, Made]:
    """Asks the workers in turn: the batches come in the steps' order."""
    counters = getattr(make, "counters", Counters())
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
    """Pickles the task. Raises: NoProcesses: another process could not import a function or class in it."""
    stream = io.BytesIO()
    try:
        _TaskPickler(stream, protocol=5).dump(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise NoProcesses(f"this cannot be sent to worker processes ({error}): {_ADVICE}") from error
    return stream.getvalue()


class _TaskPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Pickle names a function by its module, and `__main__` differs in another process.
        if getattr(value, "__module__", None) == "__main__" and hasattr(value, "__qualname__"):
            raise NoProcesses(f"`{value.__qualname__}` cannot be sent to worker processes from a script: {_ADVICE}")
        return NotImplemented


class _Worker:
    """A worker process, seen from its parent."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._dropped: deque[int] = deque()  # numbers of arrays with reusable memory
        if not sys.executable or getattr(sys, "frozen", False):  # it would start the program again
            raise OSError(f"sys.executable is {sys.executable!r}, not a Python")
        mine, its = waiting_pair()
        file = new_file()
        try:
            self._memory = SharedMemory(file)
            # -P: a file in the current folder, such as `signal.py`, must not shadow Python's modules.
            command = [sys.executable, "-P", "-c", COMMAND, str(its.fileno()), str(file), *sys.path]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(its.fileno(), file))  # noqa: S603
        finally:
            os.close(file)
            its.close()
        self._pipe = Connection(mine.detach())

    def begin(self, task: bytes) -> None:
        with suppress(ConnectionError):  # it has died: `wait_until_ready` raises
            self._pipe.send_bytes(task)

    def wait_until_ready(self) -> None:
        """Waits until the process has loaded the task. Raises: NoProcesses: it ended."""
        try:
            self._pipe.recv_bytes()
        except (EOFError, ConnectionError):
            self.kill()  # another program may keep running with the pipe closed
            raise _no_start(f"{sys.executable}: {self._died()}") from None

    def ask(self, step: Any) -> None:
        """Requests a batch, and releases reusable memory."""
        dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
        with suppress(ConnectionError):
            self._pipe.send((step, dropped))

    def batch(self) -> tuple[Any, dict[str, float]]:
        """Waits for the oldest requested batch, and returns it with the worker's counts since the last one."""
        try:
            answer: Answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise self._died() from None
        views = []
        for number, offset, size in answer.pieces:
            views.append(self._memory.array(offset, size))
            # The collector may call it at any point in any thread: one atomic operation, no lock.
            weakref.finalize(views[-1], self._dropped.append, number).atexit = False
        batch = pickle.loads(answer.pickled, buffers=views)  # noqa: S301 - our own process'
        if answer.failed:
            raise batch
        return batch, answer.counters

    def kill(self) -> None:
        """Ends the process; arrays in use stay valid."""
        self._process.kill()

    def close(self) -> None:
        """Ends the process and its pipe."""
        self.kill()
        self._pipe.close()
        self._process.wait()

    def _died(self) -> DatasetError:
        status = self._process.wait()
        if status >= 0:
            return DatasetError(f"worker process {self._number} ended with status {status}; its output is above")
        died = f"worker process {self._number} died of signal {-status} ({signal.strsignal(-status)})"
        return DatasetError(f"{died}: {_DEATHS.get(-status, 'workers=0 reads without processes')}")
