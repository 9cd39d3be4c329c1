"""When a job gets a backup, and which of the two ends the other."""

import threading
from collections.abc import Callable, Iterator

import pytest

from recordmill.pipeline.build.runners.job import Backup, IdleSlots, JobFailedError, OvertakenError
from recordmill.pipeline.errors import UserError
from tests.forked import wait_until
from tests.messages import assert_names

Look = tuple[float, int, int, int]
"""A second, the slots that are free then, and the job's steps that are done and missing."""
STARTED = (20.0, 0, 1, 99)
"""The job showed its first report after 20 s."""


@pytest.mark.parametrize(
    ("looks", "due"),
    [
        ([(5.0, 4, 0, 100), (9.0, 4, 0, 100), (300.0, 4, 0, 100)], 0),  # it has not started, whatever is free
        ([STARTED, (60.0, 0, 90, 10), (900.0, 0, 99, 1)], 0),  # no slot is free
        ([STARTED, (60.0, 3, 99, 1)], 0),  # one step more takes less than a start
        ([STARTED, (60.0, 3, 99, 1), (79.0, 3, 99, 1)], 0),
        ([STARTED, (60.0, 3, 99, 1), (80.0, 3, 99, 1)], 3),  # idle for as long as a start took
        ([STARTED, (60.0, 3, 99, 1), (70.0, 0, 99, 1), (80.0, 3, 99, 1)], 0),  # others used them meanwhile
        ([STARTED, (220.0, 3, 80, 20)], 3),  # 80 in 200 s, so 20 take longer than a start, were they not slow
        ([STARTED, (220.0, 1, 92, 8)], 0),
        ([STARTED, (220.0, 4, 40, 60), (990.0, 4, 49, 51)], 0),  # slots that come at the beginning of a job
        ([STARTED, (220.0, 4, 100, 0), (990.0, 4, 100, 0)], 0),  # nothing is missing
        ([STARTED, (60.0, 3, 99, 1), (80.0, 3, 99, 1), (99.0, 3, 99, 1)], 0),  # it waits anew
    ],
)
def test_a_backup_is_due(looks: list[Look], due: int) -> None:
    now: Look = (0.0, 4, 0, 100)
    idle = IdleSlots(lambda: now[1], lambda: now[2:], lambda: now[0])
    found = 0
    for now in looks:  # noqa: B007 - the functions above read it
        found = idle.due()
    assert found == due


def test_an_attempt_that_goes_on_starts_with_its_own_first_step() -> None:
    now: Look = (0.0, 2, 90, 10)
    idle = IdleSlots(lambda: now[1], lambda: now[2:], lambda: now[0])
    looks = [((5.0, 2, 90, 10), 0), ((20.0, 0, 91, 9), 0), ((30.0, 1, 92, 8), 0), ((50.0, 1, 92, 8), 1)]
    for now, due in looks:  # noqa: B007 - the functions above read it
        assert idle.due() == due


class Job:
    """A job that ends by an event, or earlier by a check."""

    def __init__(self, error: UserError | None = None) -> None:
        self.ended, self.was_overtaken, self._error = threading.Event(), False, error

    def run(self, check: Callable[[], None]) -> bool:
        try:
            while not self.ended.wait(0.01):
                check()
        except OvertakenError:
            self.was_overtaken = True
            raise
        if self._error:
            raise self._error
        return True


@pytest.fixture
def due() -> Iterator[int]:
    return iter([2, *([0] * 10_000)])


def test_a_backup_that_finishes_first_ends_the_job(due: Iterator[int]) -> None:
    job, other, slots = Job(), Job(), list[int]()
    backup = Backup(due.__next__, lambda free, check: slots.append(free) or other.run(check))
    other.ended.set()
    with backup.beside():
        job.run(backup.check)
    assert (slots, job.was_overtaken, backup.has_begun) == ([2], True, True)


def test_a_job_that_finishes_first_ends_its_backup(due: Iterator[int]) -> None:
    other = Job()
    backup = Backup(due.__next__, lambda free, check: other.run(check))
    with backup.beside():
        backup.check()
        backup.check()
    assert other.was_overtaken


def test_a_job_that_fails_as_its_backup_finishes_is_done(due: Iterator[int]) -> None:
    backup = Backup(due.__next__, lambda free, check: True)
    with backup.beside():
        backup.check()
        wait_until(lambda: not any(thread.name == "backup" for thread in threading.enumerate()))
        raise JobFailedError("cancelled")


def test_a_backup_that_fails_leaves_the_job_alone(due: Iterator[int], caplog: pytest.LogCaptureFixture) -> None:
    other = Job(JobFailedError("a worker process died"))
    other.ended.set()
    backup = Backup(due.__next__, lambda free, check: other.run(check))
    with backup.beside():
        backup.check()
    backup.check()
    (message,) = caplog.messages
    assert_names(message, "second run", "a worker process died")


@pytest.mark.parametrize("error", [OSError("no network"), UserError("the cluster does not answer")])
def test_nobody_who_does_not_answer_ends_the_job(error: Exception) -> None:
    def due() -> int:
        raise error

    Backup(due, lambda free, check: True).check()
