"""A job on a cluster: its driver watches it, keeps it alive, and cancels it when the driver gives up.

with watched(job, [lease.check]):           # in the driver, around the job alone
    ...                                     # submits, and waits for the end

A slow machine keeps its share of a job's steps until the end, while the others are idle. Every step commits by a
report, and its bytes follow from the input, so a backup may do the same step: the first to finish ends the other.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.safe_text import summary_of

POLL_SECONDS = 1.0
CHECK_SECONDS = 5.0  # a lease is a file of the output, which may be an object store
CANCEL_SECONDS = 60.0  # the time for a cancelled job to end
NEVER = float("inf")
T = TypeVar("T")


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
        """Cancels the job, unless it has ended or was never submitted, and waits for its end.

        Raises: JobStillRunsError: it does not end in time.
        """

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
    """Calls a function from its own thread until it returns False, or the block ends.

    Each function has its own thread, because a slow store must not delay the job's sign of life.
    """
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


class OvertakenError(UserError):
    """A job or its backup finished first; workers of the other may still write the same bytes."""


@dataclass(frozen=True)
class Rest(Generic[T]):
    """The unfinished steps of a running job."""

    count: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Counts the finished and the missing steps of the current stage."""
    find: Callable[[], T | None] = lambda: None  # finds the work for a backup; None if no step is missing


class IdleSlots:
    """Decides when a backup begins: once slots are idle, half of the steps are done, and it pays for a job's start.

    It pays at once if the missing steps take longer than a start, at the pace so far; otherwise after slots have been
    idle for as long as a start: the job has slowed down.
    """

    def __init__(
        self,
        free_slots: Callable[[], int],
        count: Callable[[], tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Notes the time, in seconds of the clock, as the job's beginning."""
        self._free_slots, self._count, self._clock = free_slots, count, clock
        self._begun, self._before = clock(), count()
        self._started = self._idle_since = NEVER

    def due(self) -> int:
        """Returns the number of slots for a backup to begin now, or 0; after one is due, restarts the wait."""
        now = self._clock()
        if self._started == NEVER:
            self._started = now if self._count() != self._before else NEVER
            return 0
        slots = self._free_slots()
        done, missing = self._count() if slots else (0, 0)
        if not 0 < missing <= done:
            self._idle_since = NEVER
            return 0
        self._idle_since = min(self._idle_since, now)
        if max(now - self._idle_since, (now - self._started) * missing / done) < self._started - self._begun:
            return 0
        self._idle_since = NEVER
        return slots


class Backup:
    """The backup of one job, in its own thread."""

    def __init__(self, due: Callable[[], int], run: Callable[[int, Callable[[], None]], bool]) -> None:
        """Takes `IdleSlots.due`, and a function that runs a backup on its slots with a check, if steps are missing."""
        self._due, self._run = due, run
        self._thread = threading.Thread()
        self.has_begun = self._has_finished = self._job_has_ended = False

    def check(self) -> None:
        """Begins a backup when due; a check for the job. Raises: OvertakenError: the backup has finished."""
        slots = 0
        if not self._thread.is_alive() and not self._has_finished:
            with suppress(OSError, UserError):  # the cluster or the store does not answer now
                slots = self._due()
        if slots:
            self.has_begun = True
            self._thread = threading.Thread(target=self._back_up, args=(slots,), name="backup", daemon=True)
            self._thread.start()
        _check(self._has_finished)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Ends the backup with the block, which runs the job; ignores the job's failure if the backup has finished."""
        try:
            yield
        except UserError:
            if not self._has_finished:
                raise
        finally:
            self._job_has_ended = True
            if self._thread.is_alive():
                self._thread.join(CANCEL_SECONDS)

    def _back_up(self, slots: int) -> None:
        try:
            self._has_finished = self._run(slots, lambda: _check(self._job_has_ended))
        except OvertakenError:
            return
        except Exception as error:
            reason = str(error) if isinstance(error, UserError) else summary_of(error)
            logging.getLogger("recordmill").warning("the second run of the job's rest failed: %s", reason)


def _check(has_other_finished: bool) -> None:
    if has_other_finished:
        raise OvertakenError("another run of the job finished the same steps")
