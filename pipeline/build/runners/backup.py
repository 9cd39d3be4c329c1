"""A backup of a job: a second one for what the first has not finished, on slots that the first no longer uses.

A slow machine holds its share of a job's steps until the end, while the others are idle. Every step commits by a
report, and its bytes follow from the input, so two jobs may do the same step: whichever finishes first ends the other.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from recordmill.pipeline.build.runners.job import CANCEL_SECONDS
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import summary_of

NEVER = float("inf")
T = TypeVar("T")


class OvertakenError(UserError):
    """A job's backup finished first, or the job did; workers of the other may still write the same bytes."""


@dataclass(frozen=True)
class Rest(Generic[T]):
    """The steps that a job has not finished yet, as it runs."""

    count: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Counts the steps of the stage at work that are done, and those that are missing."""
    find: Callable[[], T | None] = lambda: None
    """Finds what a backup does; None where nothing is missing."""


class IdleSlots:
    """Says when a backup begins: once slots are idle, half of the steps are done, and it is worth a job's start.

    That is at once if the other steps take longer than a start, by the pace so far. Otherwise it is when slots have
    been idle for as long: the job is slower than it was.
    """

    def __init__(
        self,
        free_slots: Callable[[], int],
        count: Callable[[], tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes the beginning of the job from the clock, in seconds."""
        self._free_slots, self._count, self._clock = free_slots, count, clock
        self._begun, self._before = clock(), count()
        self._started = self._idle_since = NEVER

    def due(self) -> int:
        """Returns the number of slots for a backup that begins now, or 0; waits anew after one is due."""
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
    """The backup of one job, in a thread of its own."""

    def __init__(self, due: Callable[[], int], run: Callable[[int, Callable[[], None]], bool]) -> None:
        """Starts nothing yet.

        Args:
            due: as `IdleSlots.due`.
            run: runs a backup on so many slots, with a check for `job.watched`; returns if there was anything to do.
        """
        self._due, self._run = due, run
        self._thread = threading.Thread()
        self.has_begun = self._has_finished = self._job_has_ended = False

    def check(self) -> None:
        """Begins a backup that is due: a check of the job. Raises: OvertakenError: the backup has finished."""
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
        """Ends the backup with the block, which runs the job; a job that fails as its backup finishes is done."""
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
        raise OvertakenError("the same steps were finished by another run of the job")
