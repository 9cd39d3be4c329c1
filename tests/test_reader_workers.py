"""Batches of worker processes: the same as here, in memory that nobody writes to while it is held; no trace is left."""

import gc
import itertools
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import psutil
import pytest

from recordmill import Dataset
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader import workers as worker_module
from recordmill.pipeline.reader.worker_process import Maker
from recordmill.pipeline.reader.workers import default_workers, in_processes, pickled_task
from recordmill.transforms.base.buffers import SharedMemory, new_file
from recordmill.transforms.base.stored import ArraySpec, Ragged, arrays_of
from tests.constants import constants
from tests.forked import wait_until_ended
from tests.messages import assert_names, raises
from tests.test_reader_input import assert_equal
from tests.worker_batches import LARGE, Damaged, Each, ManyThings, Pids

ROOT = Path(__file__).parents[1]


def made(batches: Any, steps: int, workers: int = 1) -> list[Any]:
    return [batch for _, batch in in_processes(batches, iter(range(steps)), workers)]


def test_the_batches_are_those_that_would_be_made_here() -> None:
    here = ManyThings()
    for step, batch in in_processes(ManyThings(), iter([5, 0, 3, 1]), workers=2):
        assert_equal(batch, here(step))
        assert isinstance(batch[0]["ragged"], Ragged)
        assert all(each.flags.writeable for each in arrays_of(batch) if isinstance(each, np.ndarray))


def test_steps_come_in_their_order_of_all_workers_and_a_few_ahead() -> None:
    taken: list[int] = []
    steps = (taken.append(step) or step for step in itertools.count(10))  # type: ignore[func-returns-value]
    batches = in_processes(Each("uneven"), steps, workers=2)
    found = [next(batches) for _ in range(7)]
    assert [step for step, _ in found] == [made for _, (made, _) in found] == list(range(10, 17))
    assert len({process for _, (_, process) in found}) == 2
    assert len(taken) == 7 + 2 * 2 - 1
    batches.close()


def test_memory_is_used_again_but_not_while_a_view_of_it_is_held() -> None:
    batches = in_processes(Each("large"), iter(range(40)), 1)
    places = {next(batches)[1].ctypes.data for _ in range(20)}
    assert len(places) < 6
    assert all(place % mmap.PAGESIZE == 0 for place in places)
    held = [batch.reshape(2, -1)[1:, ::LARGE] for _, batch in batches]
    gc.collect()
    assert [view.item() for view in held] == list(range(20, 40))


def test_a_worker_imports_the_numpy_reader_alone_and_its_counts_are_summed_here() -> None:
    batches = Each("modules")
    modules, _, _ = made(batches, 3)
    assert "numpy" in modules
    assert not {"tensorflow", "keras", "apache_beam", "pydantic", "pyarrow", "yaml", "pytest"} & set(modules)
    assert batches.counters.counts["skipped"] == 0 + 1 + 2


def test_a_worker_loads_the_kinds_that_it_reads(dataset: Dataset) -> None:
    task = pickled_task(dataset.training_input(batch_size=2, features=["price"], label=None).source.open())
    code = "import pickle, sys; pickle.load(sys.stdin.buffer); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], input=task, capture_output=True, check=True, cwd=ROOT).stdout
    kinds = {name.rpartition(".")[2] for name in loaded.decode().split() if name.endswith("_stored")}
    assert kinds == {"values_stored", "image_stored"}, "images come first, whatever is read"


@pytest.mark.parametrize(("name", "error", "facts"), [
    ("fails", Damaged, ("record 3",)),
    ("is_killed", DatasetError, ("process 0", "signal 9 (Killed)", "fewer workers")),
    ("exits", DatasetError, ("process 0", "status 3")),
])  # fmt: skip
def test_errors_come_out_here_after_the_good_batches(name: str, error: type[Exception], facts: tuple[str, ...]) -> None:
    batches = in_processes(Each(name), iter(range(9)), 1)
    assert [next(batches)[0] for _ in range(3)] == [0, 1, 2]
    with raises(error, *facts):
        next(batches)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [("breaks", IndexError, "list index out of range"), ("is_odd", RuntimeError, "Odd: 1, 2")],
)
def test_an_unforeseen_exception_has_its_place(name: str, error: type, said: str) -> None:
    answer = Maker(pickled_task(Each(name)), SharedMemory(new_file())).answer(3, [])
    raised = pickle.loads(answer.pickled)
    assert answer.failed
    assert (type(raised), str(raised)) == (error, said)
    assert "worker_batches.py" in "".join(raised.__notes__)


@pytest.mark.parametrize(
    ("task", "why"), [(lambda step: step, "<lambda>"), (sys.__stdin__, "_io.TextIOWrapper")], ids=["lambda", "file"]
)
def test_what_cannot_be_sent_is_refused(task: Any, why: str) -> None:
    with raises(DatasetError, why, "workers=0"):
        pickled_task(task)


def children() -> set[str]:
    return {str(child.pid) for child in psutil.Process().children()}


def channels() -> set[str]:
    """The sockets and pieces of shared memory that this process has open: what leads to a worker."""
    opened = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was that of this listing
            opened.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {target for target in opened if target.startswith(("socket:", "/dev/shm/", "/memfd:"))}


@pytest.mark.first(1)
@pytest.mark.parametrize("end", [lambda batches: batches.close(), lambda batches: None, lambda batches: list(batches)])
def test_nothing_is_left_when_the_iterator_ends(end: Callable[[Any], Any]) -> None:
    gc.collect()
    before = children() | channels()
    batches = in_processes(Each("large"), iter(range(3)), 1)
    _, array = next(batches)
    (worker,) = children() - before
    mine = channels() - before
    assert mine
    end(batches)
    del batches
    assert array[-1] == 0
    del array
    gc.collect()
    assert worker not in children()
    assert not mine & channels()


SCRIPT = """
import sys
from recordmill.pipeline.reader.workers import in_processes
from tests.worker_batches import Each

class Mine:
    def __call__(self, step):
        return step

batches = in_processes({task}, iter(range(100)), 1)
print(next(batches)[1], flush=True)
{then}
"""


def script(task: str, then: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT.format(task=task, then=then)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_a_script_needs_no_guard_and_ends_in_mid_iteration() -> None:
    with script("Each('process')") as done:
        said, errors = done.communicate(timeout=60)
    assert (done.returncode, errors) == (0, "")
    wait_until_ended(processes(int(said)))


def test_a_file_where_the_program_was_started_is_no_module_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "signal.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert made(Each("process"), 1)[0] != os.getpid()


def test_a_class_of_a_script_is_refused() -> None:
    with script("Mine()") as done:
        _, errors = done.communicate(timeout=60)
    assert_names(errors, "DatasetError", "`Mine`", "workers=0")


@pytest.mark.parametrize("when", ["it waits", "it works"])
def test_a_worker_ends_when_its_parent_is_killed(when: str) -> None:
    then = "import time; time.sleep(60)" if when == "it waits" else "next(batches)"
    with script("Each('waits')" if when == "it works" else "Each('process')", then) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until_ended(processes(worker))


def processes(number: int) -> list[psutil.Process]:
    """The process of a number, unless it has ended."""
    with suppress(psutil.NoSuchProcess):
        return [psutil.Process(number)]
    return []


def test_blocks_are_apart_and_used_again_for_their_size() -> None:
    file = new_file()
    memory = SharedMemory(file)
    first, second = memory.take(5000), memory.take(4096)
    first[:], second[:] = b"a" * 5000, b"b" * 4096
    places = memory.offset(first), memory.offset(second)
    assert places == (0, 8192)
    assert memory.offset(np.zeros(8)) is None
    assert memory.array(0, 5000).tobytes() == b"a" * 5000
    del first
    assert memory.array(0, 5000).tobytes() == bytes(5000), "its pages went back to the system"
    assert memory.array(8192, 4096).tobytes() == b"b" * 4096
    assert memory.offset(memory.take(5000)) == 0
    os.close(file)


def test_a_default_timeout_of_the_program_changes_nothing() -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(60)
    try:
        assert len(made(ManyThings(), 3)) == 3
    finally:
        socket.setdefaulttimeout(before)


def test_threads_make_the_batches_until_the_processes_are_ready(tmp_path: Path) -> None:
    batches = in_processes(Pids(tmp_path / "go"), itertools.count(), 2, threads=2)
    made = [next(batches) for _ in range(9)]
    assert {maker for _, maker in made} == {os.getpid()}
    (tmp_path / "go").touch()
    while len({maker for _, maker in made}) < 3:
        made.append(next(batches))
    batches.close()
    assert [step for step, _ in made] == list(range(len(made)))
    is_here = [maker == os.getpid() for _, maker in made]
    assert is_here == sorted(is_here, reverse=True)


@pytest.mark.parametrize(("cores", "at_once"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 3)])
def test_processes_start_a_few_at_a_time_and_none_after_the_end(cores: int, at_once: int, tmp_path: Path) -> None:
    before = children()
    with constants(worker_module, cores=lambda: cores):
        batches = in_processes(Pids(tmp_path / "go"), itertools.count(), 3, threads=1)
        while len(children() - before) < at_once:
            next(batches)
        for _ in range(50):
            next(batches)
        assert len(children() - before) == at_once
        batches.close()
    assert children() == before


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python", "", None])
def test_threads_replace_processes_without_python(
    program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    assert_threads_stay(Each("process"), program or repr(program), caplog)


def test_threads_replace_processes_that_do_not_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "go").touch()
    assert_threads_stay(Pids(tmp_path / "go", ends=True), "ended with status 3", caplog)


def assert_threads_stay(task: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    batches, decided = in_processes(task, itertools.count(), 2, threads=1, may_stay=True), list[Any]()
    while not caplog.records:
        decided.append(next(batches))
    decided += [next(batches) for _ in range(5)]
    batches.close()
    assert decided == [(step, os.getpid()) for step in range(len(decided))]
    (warning,) = caplog.messages
    assert_names(warning, reason, "threads")
    for threads in (0, 1):
        with raises(DatasetError, "workers=0", reason):
            deque(in_processes(task, itertools.count(), 2, threads), maxlen=0)


def test_threads_replace_impossible_processes() -> None:
    unpicklable = lambda step: step  # noqa: E731
    with raises(DatasetError, "worker processes", "workers=0"):
        list(in_processes(unpicklable, iter(range(3)), 2, threads=1))
    assert list(in_processes(unpicklable, iter(range(3)), 2, threads=1, may_stay=True)) == [(0, 0), (1, 1), (2, 2)]
    with constants(worker_module.subprocess, Popen=MagicMock(side_effect=OSError("no more processes"))):
        here = in_processes(Each("process"), iter(range(3)), 2, threads=1, may_stay=True)
        assert set(dict(here).values()) == {os.getpid()}
        with raises(DatasetError, "no more processes", "workers=0"):
            list(in_processes(Each("process"), iter(range(3)), 2))


@pytest.mark.parametrize(("decodes", "steps", "free", "wanted"), [
    (True, 100, 1 << 40, 16),
    (True, 10, 1 << 40, 0),
    (True, 100, 350 << 20, 3),
    (True, 100, 1 << 20, 0),
    (False, 100_000, 1 << 40, 8),
    (False, 100_000, 350 << 20, 3),
    (False, 100, 1 << 40, 0),
])  # fmt: skip
def test_the_default_number_of_processes(decodes: bool, steps: int, free: int, wanted: int) -> None:
    spec = {"image": ArraySpec((32, 224, 224, 3), "uint8")}
    element = spec, ArraySpec((32,), "int64")
    source: Any = SimpleNamespace(decodes=decodes, steps_together=1, element_spec=element, batch_records=32)
    with constants(worker_module, cores=lambda: 16, free_bytes=lambda: free):
        assert default_workers(source, steps) == wanted
    with constants(worker_module, cores=lambda: 1):
        assert default_workers(source, steps) == 0
