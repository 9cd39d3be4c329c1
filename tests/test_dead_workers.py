"""A dead worker or driver is noticed at once, reported in one line, and the same command resumes."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil
import pytest

from recordmill.pipeline.build.context.reports import DeadWorkerError
from recordmill.pipeline.build.runners.child_process import end, start_worker, waiting_workers
from recordmill.pipeline.cli.session import Watch
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions.history import read_history
from tests.forked import python, start_python, wait_until, wait_until_ended
from tests.listening import listening, ports
from tests.messages import assert_names, raises

COMMAND = ["-m", "recordmill", "build", "dataset.yaml", "--output", "out", "--processes", "2"]
SPEC = """
name: numbers
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 100}
shards: 4
features: {number: {kind: number}, text: {kind: text}}
"""


KILLED = ("(SIGKILL)", "memory", "fewer --processes")


@pytest.mark.parametrize(("status", "facts"), [(-9, KILLED), (137, KILLED), (-11, ("SIGSEGV",)), (1, ("status 1",))])
def test_a_dead_worker_is_one_line(status: int, facts: tuple[str, ...]) -> None:
    message = str(DeadWorkerError(7, status))
    assert_names(message, "worker process 7 ", *facts)
    assert message.splitlines() == [message]


class Ended:
    """Receives the error of a watch."""

    def __init__(self) -> None:
        self.errors: list[UserError] = []
        self.is_set = threading.Event()

    def __call__(self, error: UserError) -> None:
        self.errors.append(error)
        self.is_set.set()


def die() -> None:
    """Fails as the thread that waits for a worker."""
    raise DeadWorkerError(7, -9)


def test_a_dead_worker_ends_the_build() -> None:
    ended = Ended()
    assert Watch(ended).dead_worker(0) is None
    with Watch(ended) as watch:
        threading.Thread(target=die).start()
        assert ended.is_set.wait(60)
        assert watch.dead_worker(0) is ended.errors[0]
    assert isinstance(ended.errors[0], DeadWorkerError)


def test_a_check_that_raises_ends_the_build_once() -> None:
    ended, looks = Ended(), list[int]()

    def too_many() -> None:
        looks.append(1)
        if len(looks) == 1:
            raise OSError("the folder is gone")
        if len(looks) == 2:
            raise UserError("too many")

    others = set(threading.enumerate())
    with Watch(ended) as watch:
        started = {thread for thread in set(threading.enumerate()) - others if thread.name == "watch"}
        assert started
        watch.follow(too_many)
        assert ended.is_set.wait(60)
        wait_until(lambda: not started & set(threading.enumerate()))
    assert list(map(str, ended.errors)) == ["too many"]
    assert len(looks) == 2
    looks.pop()
    with raises(UserError, "too many"):
        watch.look()


def test_other_threads_fail_as_ever() -> None:
    before, seen = threading.excepthook, list[str]()
    threading.excepthook = lambda failure: seen.append(str(failure.exc_value))
    try:
        with Watch(lambda error: seen.append("ended")) as watch:
            thread = threading.Thread(target=lambda: 1 // 0)
            thread.start()
            thread.join()
            watch.look()
    finally:
        threading.excepthook = before
    assert seen == ["integer division or modulo by zero"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dataset.yaml").write_text(SPEC)
    with open(tmp_path / "rows.jsonl", "w") as file:
        for row in range(30_000):
            text = f"word{row % 97} and more words " * 8
            file.write(json.dumps({"id": str(row), "number": row, "text": text}) + "\n")
    return tmp_path


def workers(driver: psutil.Process) -> list[psutil.Process]:
    """Waits for the two workers of a running build."""
    while True:
        started = [child for child in driver.children() if "child_process.py" in " ".join(child.cmdline())]
        if len(started) == 2:
            return started
        time.sleep(0.05)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[], tuple[ForkServerProcess, list[psutil.Process]]]]:
    """Starts a build that prints to `log.txt`, and waits for its workers."""
    started: list[ForkServerProcess] = []

    def run() -> tuple[ForkServerProcess, list[psutil.Process]]:
        with (folder / "log.txt").open("wb") as log:
            started.append(start_python(*COMMAND, cwd=folder, stdout=log.fileno(), stderr=log.fileno()))
        return started[-1], workers(psutil.Process(started[-1].pid))

    yield run
    for process in started:
        process.kill()
        process.join()


@pytest.mark.slow
@pytest.mark.parametrize("when", [pytest.param("while it starts", marks=pytest.mark.nightly), "while it reads"])
def test_a_killed_worker_ends_the_build(when: str, folder: Path, start: Callable[..., tuple]) -> None:
    """Without this, the runner waits for it for ever."""
    driver, (worker, other) = start()
    if when == "while it reads":
        wait_until(lambda: any(folder.glob("out/.building/*/*/progress/chunk-*.json")))
        sockets = listening([psutil.Process(driver.pid), worker, other])
        assert (ports(sockets), any("/recordmill-" in place for _, place in sockets)) == (set(), True)
    worker.kill()
    killed = time.monotonic()
    driver.join()
    print(f"noticed after {time.monotonic() - killed:.1f} s")
    errors = (folder / "log.txt").read_text()
    assert driver.exitcode == 1
    told = [line for line in errors.splitlines() if line.startswith("recordmill: ")]
    assert len(told) == 2, errors
    first, second = told
    assert_names(first, f"worker process {worker.pid}", "SIGKILL")
    assert_names(second, "the same command")
    assert "Traceback" not in errors
    wait_until_ended([other])
    assert not (folder / "out/LATEST").exists()


def test_a_waiting_worker_is_taken_by_a_job_or_ends() -> None:
    others = {child.pid for child in psutil.Process().children()}
    with waiting_workers(2):
        children = [child for child in psutil.Process().children() if child.pid not in others]
        taken = start_worker()
        assert len(children) == 2
        assert taken.pid in {child.pid for child in children}
    (left,) = (child for child in children if child.pid != taken.pid)
    assert not left.is_running()
    assert taken.poll() is None
    end([taken])


@pytest.mark.nightly
def test_workers_end_with_a_driver_that_is_killed_and_another_goes_on(
    folder: Path, start: Callable[..., tuple]
) -> None:
    driver, both = start()
    wait_until(lambda: any(folder.glob("out/.building/*/*/reports/shard-*.json")) or not driver.is_alive())
    assert driver.is_alive()
    driver.kill()
    wait_until_ended(both)
    done = python(*COMMAND[:-2], cwd=folder)  # the number of processes makes no other build
    assert done.returncode == 0, done.stderr
    assert re.search(r"transform graph and [1-4] of 4", done.stderr)
    assert_names(done.stderr, "Published numbers")
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["LATEST", "history.jsonl", "versions"]
    assert [entry["end"] for entry in read_history(str(folder / "out"))] == ["killed", "published"]
