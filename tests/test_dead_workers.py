"""A worker process that dies, or whose driver does: noticed at once, told in one line, and the same command goes on."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from recordmill.pipeline.build.context.failures import DeadWorkerError
from recordmill.pipeline.build.watchdog import Watch
from recordmill.pipeline.errors import UserError

COMMAND = [sys.executable, "-m", "recordmill", "build", "dataset.yaml", "--output", "out", "--processes", "2"]
SPEC = """
name: numbers
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 100}
shards: 4
features: {number: {kind: number}, text: {kind: text}}
"""


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (-9, "worker process 7 was killed (SIGKILL): most likely memory ran out; use fewer --processes, or a larger"),
        (137, "worker process 7 was killed (SIGKILL): most likely memory ran out; use fewer --processes, or a larger"),
        (-11, "worker process 7 died of SIGSEGV"),
        (1, "worker process 7 ended with status 1"),
    ],
)
def test_a_dead_worker_is_one_line(status: int, message: str) -> None:
    assert str(DeadWorkerError(7, status)).removesuffix(" machine") == message


class Ended:
    """Receives the error of a watch."""

    def __init__(self) -> None:
        self.errors: list[UserError] = []
        self.is_set = threading.Event()

    def __call__(self, error: UserError) -> None:
        self.errors.append(error)
        self.is_set.set()


def die() -> None:
    """Fails as the thread does that waits for a worker."""
    raise DeadWorkerError(7, -9)


def test_a_dead_worker_ends_the_build() -> None:
    ended = Ended()
    with Watch(ended) as watch:
        threading.Thread(target=die).start()
        assert ended.is_set.wait(60)
        assert watch.dead_worker(0) is ended.errors[0]
    assert isinstance(ended.errors[0], DeadWorkerError)


def test_no_worker_has_died() -> None:
    assert Watch(Ended()).dead_worker(0) is None


def test_a_check_that_raises_ends_the_build_once() -> None:
    ended, looks = Ended(), list[int]()

    def too_many() -> None:
        looks.append(1)
        if len(looks) == 2:
            raise UserError("too many")

    def no_folder() -> None:
        raise OSError("the folder is gone")

    with Watch(ended) as watch:
        watch.add(no_folder)
        watch.add(too_many)
        assert ended.is_set.wait(60)
        watch._thread.join(60)
    assert list(map(str, ended.errors)) == ["too many"]
    assert len(looks) == 2
    looks.pop()
    with pytest.raises(UserError, match="too many"):
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
        for row in range(60_000):
            text = f"word{row % 97} and more words " * 8
            file.write(json.dumps({"id": str(row), "number": row, "text": text}) + "\n")
    return tmp_path


def workers(driver: psutil.Process) -> list[psutil.Process]:
    """The workers of a build that runs, once there are two."""
    while True:
        found = [child for child in driver.children() if "worker_process.py" in " ".join(child.cmdline())]
        if len(found) == 2:
            return found
        time.sleep(0.05)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], list[psutil.Process]]]]:
    """Starts a build and waits for its workers."""
    started: list[subprocess.Popen[str]] = []

    def run() -> tuple[subprocess.Popen[str], list[psutil.Process]]:
        started.append(subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True, cwd=folder))
        return started[-1], workers(psutil.Process(started[-1].pid))

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


def wait_until_they_read(folder: Path) -> None:
    while not list(folder.glob("out/.building/*/*/progress/chunk-*.json")):
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["while it starts", "while it reads"])
def test_a_killed_worker_ends_the_build(when: str, folder: Path, start: Callable[..., tuple]) -> None:
    driver, (worker, other) = start()
    if when == "while it reads":
        wait_until_they_read(folder)
    worker.kill()
    killed = time.monotonic()
    _, errors = driver.communicate(timeout=60)  # without the watch it would hang for ever
    print(f"noticed after {time.monotonic() - killed:.1f} s")
    assert driver.returncode == 1
    told = [line for line in errors.splitlines() if line.startswith("recordmill: ")]
    assert len(told) == 2, errors
    first, second = told
    assert f"worker process {worker.pid} was killed (SIGKILL)" in first
    kept = "nothing was published; the finished work is kept, and the same command goes on"
    assert kept in second or "nothing was finished yet: the same command begins anew" in second
    assert "Traceback" not in errors
    assert psutil.wait_procs([other], timeout=5)[1] == []
    assert not (folder / "out/LATEST").exists()


@pytest.mark.slow
def test_workers_end_with_a_driver_that_is_killed_and_the_same_command_goes_on(
    folder: Path, start: Callable[..., tuple]
) -> None:
    driver, both = start()
    while not list(folder.glob("out/.building/*/*/reports/shard-*.json")):
        assert driver.poll() is None
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    gone, alive = psutil.wait_procs(both, timeout=5)
    assert (len(gone), alive) == (2, [])
    done = subprocess.run(COMMAND, capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"note: going on with an earlier build: the analysis and [1-4] of 4 shards are kept", done.stderr)
    assert "Published numbers" in done.stderr
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["LATEST", "versions"]
