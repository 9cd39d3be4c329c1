"""The failures that end a build: those of disks, as one line for the user; and a watch over workers and limits."""

import errno
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from recordmill.pipeline.build.context.reports import DeadWorkerError
from recordmill.pipeline.errors import UserError

REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EROFS: "make it writable",
    errno.EACCES: "give the permission",
    errno.EPERM: "give the permission",
}
LOOK_SECONDS = 0.5


class DiskError(UserError):
    """A disk is full or not writable; the message says where, and what to do."""


def disk_error(error: BaseException, folder: str) -> DiskError | None:
    """Returns the error as one line with its file, or else the folder; None if no disk caused it.

    Beam 2.77 brings only the text of another process' traceback, TensorFlow 2.21's `OpError` and Arrow's errors only
    the operating system's words, and `shutil.Error` a list of texts.
    """
    chain: list[BaseException] = []  # with causes and contexts, the innermost first
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.insert(0, link)
        link = link.__cause__ or link.__context__
    if any(isinstance(cause, UserError) for cause in chain):
        return None
    for cause in chain:
        for number, remedy in REMEDIES.items():
            if getattr(cause, "errno", None) == number or os.strerror(number) in str(cause):
                path = _file(cause, number) or folder
                return DiskError(f"{os.strerror(number)}: {path}: {remedy}, then run the same command")
    return None


def _file(error: BaseException, number: int) -> str | None:
    """Returns the file of a failure: an attribute, or the quoted path in its text."""
    if isinstance(error, OSError) and error.filename:
        return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    named = re.search(rf"{re.escape(os.strerror(number))}: (?:'[^'\n]+' -> )?'([^'\n]+)'", str(error))
    return named[1] if named else None


class Watch:
    """Calls a check at most twice a second; its error, or a dead worker, ends the build."""

    def __init__(self, end: Callable[[UserError], None]) -> None:
        """`end` is called once, by the watch's thread."""
        self._end, self._pause, self._called = end, 0.0, float("-inf")
        self._check: Callable[[], None] = lambda: None
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

    def follow(self, check: Callable[[], None], pause_seconds: float = 0.0) -> None:
        """Sets a quick check, called at most every `pause_seconds`; its UserError ends the build."""
        self._check, self._pause = check, pause_seconds

    def look(self) -> None:
        """Calls the check, unless that was a moment ago. Raises: UserError, DeadWorkerError."""
        if self._dead_worker is not None:
            raise self._dead_worker
        if time.monotonic() - self._called >= self._pause:
            self._called = time.monotonic()
            with suppress(OSError):  # the folder is gone: the build will notice
                self._check()

    def dead_worker(self, timeout_seconds: float) -> DeadWorkerError | None:
        """Waits for a worker's death at most so long: a job may fail before its worker's status is read."""
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
