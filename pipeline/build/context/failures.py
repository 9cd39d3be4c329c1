"""Errors of workers on their way to the driver.

Beam passes no exception between processes, only its traceback as text, and inside one process it changes the message.
So a worker leaves the message of a `UserError` in the build's folder, where the driver reads it.

    with leaving_error(folder):                 # in a worker
        ...
    with raising_left_error(folder):            # in the driver, around the job alone: a runner may repeat what failed,
        ...                                     # and then an error that was left means nothing for what follows
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from recordmill.pipeline.dataset.atomic_files import read_report, write_report
from recordmill.pipeline.errors import UserError

ERROR = "error"
"""The file's name; of several workers' errors the last stays."""


class WorkerError(UserError):
    """A worker failed with a `UserError`, whose message this repeats."""


class DeadWorkerError(UserError):
    """A worker process died; the message names the process, the reason, and the remedy."""

    def __init__(self, process: int, status: int) -> None:
        """Takes the exit status as `subprocess` gives it: the negative number of a signal, or an exit code."""
        number = -status if status < 0 else status - 128  # a shell adds 128
        reason = f"ended with status {status}"
        with suppress(ValueError):
            reason = f"died of {signal.Signals(number).name}"
        if number == signal.SIGKILL:
            reason = "was killed (SIGKILL): most likely memory ran out; use fewer --processes, or a larger machine"
        super().__init__(f"worker process {process} {reason}")


@contextmanager
def leaving_error(folder: str) -> Iterator[None]:
    """Leaves the message of a `UserError` in a folder, and raises it."""
    try:
        yield
    except UserError as error:
        with suppress(OSError):  # the folder may be gone, or its disk full: the driver finds that out itself
            write_report(folder, ERROR, {"message": str(error)})
        raise


def left_error(folder: str) -> WorkerError | None:
    """The error that a worker left; None if none did."""
    report = read_report(folder, ERROR)
    return None if report is None else WorkerError(report["message"])


@contextmanager
def raising_left_error(folder: str) -> Iterator[None]:
    """Raises the error that a worker left in a folder in the place of one that the runner raises."""
    try:
        yield
    except Exception as error:
        left = left_error(folder)
        if left is None:
            raise
        raise left from error
