"""Looks at a running build from beside it, twice a second: the runner itself may hang for ever, or tell nothing.

    watch = Watch(end)                  # end(line) ends the process
    watch.add(check)                    # check() raises UserError where the build has to end

A worker process that died is told by the thread that waits for it, through `threading.excepthook`.
"""

import re
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

from recordmill.pipeline.errors import UserError

LOOK_SECONDS = 0.5
ENDED = re.compile(r"Worker subprocess exited with return code (-?\d+)")
Check = Callable[[], None]


class DeadWorkerError(UserError):
    """A worker process died; the message says which, of what, and what to do."""


class Watch:
    """Calls checks in a thread of its own; the first that raises ends the build."""

    def __init__(self, end: Callable[[UserError], None]) -> None:
        """`end` is called once, in the watch's thread."""
        self._end = end
        self._checks: list[Check] = []
        self._dead: DeadWorkerError | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._default = threading.excepthook
        threading.excepthook = self._thread_failed
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        threading.excepthook = self._default

    def add(self, check: Check) -> None:
        """Adds a check, which is quick and raises UserError where the build has to end."""
        self._checks.append(check)

    def look(self) -> None:
        """Calls all checks once.

        Raises:
            UserError: what a check found.
        """
        if self._dead is not None:
            raise self._dead
        for check in list(self._checks):
            with suppress(OSError):  # a folder that has just gone: whoever works in it will tell
                check()

    def _look_on(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            try:
                self.look()
            except UserError as error:
                self._end(error)
                return

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        ended = ENDED.search(str(failure.exc_value))
        if ended:
            self._dead = DeadWorkerError(_told(_process(failure), int(ended[1])))
        else:
            self._default(failure)


def _process(failure: threading.ExceptHookArgs) -> str:
    """The number of the process that Beam's thread waited for, where its frame tells."""
    for frame, _ in traceback.walk_tb(failure.exc_traceback):
        process = getattr(frame.f_locals.get("p"), "pid", None)
        if process is not None:
            return f"worker process {process}"
    return "a worker process"


def _told(who: str, status: int) -> str:
    """What a process' status says: a signal's number, negative, or what it exited with."""
    number = -status if status < 0 else status - 128  # a shell adds 128
    if number == signal.SIGKILL:
        return f"{who} was killed (SIGKILL): most likely memory ran out; use fewer --processes, or a larger machine"
    with suppress(ValueError):
        return f"{who} died of {signal.Signals(number).name}"
    return f"{who} ended with status {status}"
