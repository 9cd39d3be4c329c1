"""A job on a cluster: its driver watches it, keeps it alive, and cancels it when the driver gives up.

with watched(job, [lease.check]):           # in the driver, around the job alone
    ...                                     # submits, and waits for the end
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.safe_text import summary_of

POLL_SECONDS = 1.0
CHECK_SECONDS = 5.0  # a lease is a file of the output, which may be an object store
CANCEL_SECONDS = 60.0  # the time for a cancelled job to end


class RunnerError(UserError):
    """A runner is unknown, unusable, or unsafe with these options."""


class DryRunFinished(UserError):  # noqa: N818 - no error
    """A dry run made a job's graph and sent nothing, as asked; the message describes the job."""

    exit_code = ExitCode.PUBLISHED


class JobFailedError(UserError):
    """A job failed, or somebody else cancelled it: another attempt with the finished work may succeed."""

    exit_code = ExitCode.TRY_AGAIN


class JobStillRunsError(UserError):
    """A cancelled job did not end in time."""


class Job(Protocol):
    """A job on a cluster; its name is known before its submission, and finds it at any time."""

    state: str  # the state at the last poll, in the cluster's words; empty before the first sight of the job
    url: str  # the job's page for people; empty before the first sight of the job

    def poll(self) -> None:
        """Reads the state, and shows the cluster that the driver is alive."""

    def cancel(self, timeout_seconds: float = CANCEL_SECONDS) -> None:
        """Cancels the job, if it runs, and waits for its end. Raises: JobStillRunsError: it does not end in time."""

    def failure(self) -> str:
        """Describes in one line why the job failed, without values of rows; empty if the cluster cannot say."""


@contextmanager
def failing_as_job(describe: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Raises a `JobFailedError` for any `Exception` but a `UserError`; `describe` says why in a line, if it can."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise JobFailedError(describe() or f"the job failed: {summary_of(error)}") from error


@contextmanager
def watched(job: Job, checks: Sequence[Callable[[], None]] = ()) -> Iterator[None]:
    """Polls a job while the block submits it and waits for it; cancels it if the block or a check fails.

    `checks` are quick functions that raise a `UserError` to end the job, such as a lease's. Raises: UserError: the
    error of a check. JobFailedError: the block failed with any `Exception` but a `UserError`.
    """
    lost: list[UserError] = []

    def poll() -> bool:
        with suppress(UserError):  # the cluster does not answer: the block itself fails if that lasts
            job.poll()
        return True

    def check() -> bool:
        try:
            for function in checks:
                function()
        except UserError as error:
            lost.append(error)
            with suppress(UserError):
                job.cancel()
        return not lost

    try:
        with _repeated(poll, POLL_SECONDS), _repeated(check, CHECK_SECONDS), failing_as_job(job.failure):
            yield
    except BaseException as error:  # also Ctrl-C, in a program that calls `build`
        first = lost[0] if lost else error
        try:
            job.cancel()
        except UserError as left:
            if isinstance(left, JobStillRunsError) and isinstance(first, JobFailedError):
                raise  # another attempt must not begin meanwhile
            first.add_note(str(left))
        if first is not error:
            raise first from error
        raise


@contextmanager
def _repeated(function: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Calls a function from its own thread until it returns False, or the block ends: a slow store delays no other."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(seconds) and function():
            pass

    thread = threading.Thread(target=run, name=f"job {function.__name__}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(CANCEL_SECONDS)
