"""Errors of workers on their way to the driver.

Beam passes no exception between processes, only its traceback as text, and inside one process it changes the message.
So a worker leaves the message of a `UserError` in the workspace, where the driver reads it. An `OutputError` may pass,
as a store's 503 does: it counts as a failed job, which another attempt may repair.

    with leaving_error(workspace):              # in a worker
        ...
    with raising_left_error(workspace):         # in the driver, around the job alone: a runner may repeat what failed,
        ...                                     # and then an error that was left means nothing for what follows
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from recordmill.pipeline.build.context.workspace import Workspace, read_report, write_report
from recordmill.pipeline.build.runners.job import JobFailedError
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions.stores.base import OutputError

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
def leaving_error(workspace: Workspace) -> Iterator[None]:
    """Leaves the type and the message of a `UserError` in the workspace, and raises it."""
    try:
        yield
    except UserError as error:
        with suppress(OSError, UserError):  # the folder may be gone, or its disk full: the driver finds that out itself
            report = {"message": str(error), "type": type(error).__name__, "passes": isinstance(error, OutputError)}
            write_report(workspace, ERROR, report)
        raise


def left_error(workspace: Workspace, end: str = "") -> WorkerError | JobFailedError | None:
    """Returns the error that a worker left; None if none did.

    Args:
        workspace: the build's.
        end: how the cluster says that the job ended. The message repeats it unless it names the error's type: the
            runner may have repeated what failed and succeeded, and the job have failed of something else.
    """
    report = read_report(workspace, ERROR)
    if report is None:
        return None
    message = report["message"]
    if end and report["type"] not in end:
        message = f"{message}; the job's end: {end}"
    return JobFailedError(message) if report["passes"] else WorkerError(message)


@contextmanager
def raising_left_error(workspace: Workspace) -> Iterator[None]:
    """Raises the error that a worker left in the workspace in the place of one that the runner raises.

    Raises:
        WorkerError: a worker left an error that every attempt would meet.
        JobFailedError: a worker left an error that may pass.
    """
    workspace.delete(f"{ERROR}.json")  # that of an earlier job
    try:
        yield
    except Exception as error:
        left = left_error(workspace, str(error) if isinstance(error, JobFailedError) else "")
        if left is None:
            raise
        raise left from error
