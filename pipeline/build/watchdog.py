"""Watches a running build from a thread of its own: the runner may hang for ever, and reports nothing before the end.

    with Watch(end) as watch:           # end(error) ends the process
        watch.add(check)                # check() raises UserError if the build must end

A thread that waits for a worker process raises `DeadWorkerError`, which `threading.excepthook` brings here.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from recordmill.pipeline.build.context.reports import DeadWorkerError
from recordmill.pipeline.errors import UserError

LOOK_SECONDS = 0.5
Check = Callable[[], None]


@dataclass
class _Paced:
    """A check, and the least seconds between two calls."""

    check: Check
    pause: float
    called: float = float("-inf")

    def __call__(self) -> None:
        if time.monotonic() - self.called >= self.pause:
            self.called = time.monotonic()
            self.check()


class Watch:
    """Calls checks twice a second; the first that raises, or a dead worker, ends the build."""

    def __init__(self, end: Callable[[UserError], None]) -> None:
        """Takes a function that the watch's thread calls once."""
        self._end = end
        self._checks: list[_Paced] = []
        self._dead_worker: DeadWorkerError | None = None
        self._has_died = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._excepthook = threading.excepthook
        threading.excepthook = self._thread_failed
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        threading.excepthook = self._excepthook

    def add(self, check: Check, pause_seconds: float = 0.0) -> None:
        """Adds a check, which is quick and raises UserError if the build must end; called no more often than given."""
        self._checks.append(_Paced(check, pause_seconds))

    def look(self) -> None:
        """Calls all checks once.

        Raises:
            UserError: the error of a check, or a DeadWorkerError.
        """
        if self._dead_worker is not None:
            raise self._dead_worker
        for check in list(self._checks):
            with suppress(OSError):  # a folder that was removed: the build itself notices
                check()

    def dead_worker(self, timeout_seconds: float) -> DeadWorkerError | None:
        """The death of a worker, waiting for one at most so long: a job may fail before its worker's status is read."""
        self._has_died.wait(timeout_seconds)
        return self._dead_worker

    def _run(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            try:
                self.look()
            except UserError as error:
                self._end(error)
                return

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        if isinstance(failure.exc_value, DeadWorkerError):
            self._dead_worker = failure.exc_value
            self._has_died.set()
        else:
            self._excepthook(failure)
