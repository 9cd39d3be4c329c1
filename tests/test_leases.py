"""Leases: one holder at a time, the dead are known at once or after a while, and who lost a lease is told."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import psutil
import pytest

from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.leases import (
    Holder,
    LeaseLostError,
    census,
    hold,
    take,
    take_over,
    this_process,
)
from recordmill.pipeline.versions.stores.base import Conflict, Content, OutputError, Store
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import emulators
from tests.constants import constants
from tests.forked import wait_until, wait_until_ended
from tests.messages import assert_names, raises

NAME = "1ea5e00000000000"  # of no other file: its threads are looked for by this name
FORK = multiprocessing.get_context("fork")


class Clock:
    """The clock of a process that waits: it moves when the process sleeps, and costs no time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Whoever waits for a lease does so by this clock; whoever holds one beats quickly."""
    clock = Clock()
    monkeypatch.setattr(leases, "time", clock)
    with constants(leases, BEAT_SECONDS=0.05):
        yield clock


@pytest.fixture
def writes(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Gets an entry at each attempt to write the lease."""
    attempts, write = list[None](), store.write_if

    def counted(*arguments: Any) -> str:
        attempts.append(None)
        return write(*arguments)

    monkeypatch.setattr(store, "write_if", counted)
    return attempts


def beats() -> bool:
    """Whether a thread of this process beats for a lease."""
    return any(thread.name == f"lease {NAME}" for thread in threading.enumerate())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "out"))


def put(store: Store, holder: Holder, name: str = NAME) -> None:
    """Writes a lease, also where another thread writes it at the same moment."""
    while True:
        found = store.read_tagged(f".leases/{name}.json")
        with suppress(Conflict):
            store.write_if(f".leases/{name}.json", json.dumps(asdict(holder)).encode(), found.tag if found else None)
            return


def is_alive(store: Store, name: str) -> bool:
    return name in census(store)[0]


def foreign(**changes: Any) -> Holder:
    return replace(this_process(), host="elsewhere", process=1, token="theirs", since="yesterday", **changes)


def test_a_lease_says_who_holds_it_and_goes_with_its_holder(store: Store) -> None:
    with hold(store, NAME) as lease:
        lease.check()
        found = json.loads((Path(store.url) / f".leases/{NAME}.json").read_bytes())
        assert found["process"] == os.getpid()
        assert found["host"] in str(leases.holders(store)[NAME])
        assert is_alive(store, NAME)
    assert os.listdir(store.url) == []
    assert not is_alive(store, NAME)


def test_it_goes_after_an_error_too(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), hold(store, NAME):
        raise ZeroDivisionError
    assert os.listdir(store.url) == []


def test_it_beats(store: Store) -> None:
    with hold(store, NAME) as lease:
        wait_until(lambda: leases.holders(store)[NAME].beat > 1)
        lease.check()


def test_a_living_process_is_waited_for_and_named_once(store: Store, clock: Clock) -> None:
    told: list[str] = []
    first = take(store, NAME)

    def end_soon(holder: Holder) -> None:
        told.append(str(holder))
        clock.on_sleep = lambda: first.release() if clock.now > 3 else None

    with hold(store, NAME, on_wait=end_soon) as lease:
        lease.check()
    (line,) = told
    assert line.startswith(f"process {os.getpid()} on ")
    assert ", since 20" in line


def _hold(output: str, ready: Event) -> None:
    take(open_store(output), NAME)
    ready.set()
    time.sleep(60)


@pytest.mark.parametrize("reaped", [True, False])
def test_a_killed_holder_is_known_at_once(store: Store, reaped: bool, clock: Clock) -> None:
    ready = FORK.Event()
    process = FORK.Process(target=_hold, args=(store.url, ready))
    process.start()
    assert ready.wait(120)
    assert is_alive(store, NAME)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    if reaped:
        process.join()
    else:
        wait_until_ended([psutil.Process(process.pid)])  # a zombie of the kernel: dead, but not yet waited for
    assert not is_alive(store, NAME)
    with hold(store, NAME, on_wait=lambda holder: pytest.fail(f"waits for {holder}")) as lease:
        lease.check()
    assert clock.now == 0
    process.join()


@pytest.mark.parametrize(
    ("holder", "dead"),
    [
        (lambda me: me, False),
        (lambda me: replace(me, process=2**22 + 1), True),  # beyond the largest number of a process
        (lambda me: replace(me, started="1"), True),  # the number was given again
        (lambda me: replace(me, started="1", host="elsewhere"), False),
        (lambda me: replace(me, started="1", boot="another boot"), False),
        (lambda me: replace(me, started="1", boot=me.boot.replace("pid:[", "pid:[1")), False),  # a container
        (lambda me: replace(me, boot=""), False),
        (lambda me: replace(me, process="../self"), False),
    ],
)
def test_who_is_known_to_be_dead(holder: Callable[[Holder], Holder], dead: bool) -> None:
    read = leases._holder(Content(leases._text(holder(this_process())), "tag"))
    assert read is not None
    assert read.is_dead() is dead


def test_another_host_is_waited_for_until_its_beat_stops(store: Store, clock: Clock) -> None:
    put(store, foreign())
    told: list[str] = []
    with hold(store, NAME, on_wait=lambda holder: told.append(str(holder))):
        assert 60 <= clock.now < 61
    assert told == ["process 1 on elsewhere, since yesterday"]


def test_another_host_that_beats_is_alive_whatever_the_clocks(store: Store, clock: Clock) -> None:
    def beat() -> None:
        """Beats every time that the other looks, for three times its patience; then is silent."""
        if clock.now < 180:
            put(store, foreign(beat=int(clock.now * 2)))

    put(store, foreign())
    clock.on_sleep = beat
    assert is_alive(store, NAME)
    take(store, NAME).release()
    assert 239 <= clock.now < 241


def test_clocks_are_never_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, foreign())
    monkeypatch.setattr(time, "time", lambda: pytest.fail("asks for the time of day"))
    with hold(store, NAME) as lease:
        lease.check()


@pytest.mark.parametrize("text", ["{half", "[]", "3", '{"host": 1}'])
def test_a_lease_that_nobody_can_read_is_waited_for(store: Store, text: str) -> None:
    store.write_if(f".leases/{NAME}.json", text.encode(), None)
    told: list[str] = []
    with hold(store, NAME, on_wait=lambda holder: told.append(str(holder))) as lease:
        lease.check()
    (holder,) = told
    assert_names(holder, "unknown")


def test_who_comes_back_after_a_long_silence_is_fenced(store: Store) -> None:
    with constants(leases, BEAT_SECONDS=1000):
        zombie = take(store, NAME)
    put(store, foreign())  # has taken it over
    with raises(LeaseLostError, "process 1 on elsewhere", store.url):
        zombie.check()
    zombie.release()
    assert leases.holders(store)[NAME].token == "theirs"


def test_a_beat_never_takes_a_lease_back(store: Store) -> None:
    with hold(store, NAME):
        put(store, foreign())  # under the store's lock: a beat may be between its comparison and its replacement
        wait_until(lambda: not beats())
        assert leases.holders(store)[NAME].token == "theirs"
    assert leases.holders(store)[NAME].token == "theirs"


def test_an_output_that_is_gone_is_a_lost_lease(store: Store, tmp_path: Path, writes: list[None]) -> None:
    with hold(store, NAME) as lease:
        os.rename(store.url, tmp_path / "gone")
        with raises(LeaseLostError, "lease", "gone"):
            lease.check()
        tried = len(writes)
        wait_until(lambda: len(writes) > tried + 1 or not beats())
        assert not Path(store.url).exists()


def test_a_store_that_is_away_for_a_moment_costs_no_lease(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[None] = []

    def fail(*_: Any) -> str:
        failed.append(None)
        raise OutputError("the network is away")

    with hold(store, NAME) as lease:
        with monkeypatch.context() as patch:
            patch.setattr(store, "write_if", fail)
            wait_until(lambda: len(failed) > 1)
        before = leases.holders(store)[NAME].beat
        wait_until(lambda: leases.holders(store)[NAME].beat > before)
        lease.check()


def test_of_two_who_take_over_one_wins(store: Store) -> None:
    dead = foreign()
    put(store, dead)
    first, second = take_over(store, NAME, dead), take_over(store, NAME, dead)
    assert first is not None
    assert second is None
    first.release()


def test_the_living_and_the_dead_are_told_apart_together(store: Store, clock: Clock) -> None:
    waited: list[str] = []
    mine = take(store, "mine")
    put(store, foreign(), "silent")
    put(store, foreign(), "silent-too")
    put(store, replace(this_process(), process=2**22 + 1), "killed")
    living, dead = census(store, on_wait=lambda holder: waited.append(holder.host))
    assert (set(living), set(dead)) == ({"mine"}, {"silent", "silent-too", "killed"})
    assert 60 <= clock.now < 61  # and not one after another
    assert waited == ["elsewhere"] * 2
    assert set(leases.holders(store)) == {"mine", "silent", "silent-too", "killed"}
    mine.release()


def test_many_who_want_one_have_it_one_after_another(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import sys\nfrom recordmill.pipeline.versions.leases import hold\n"
        "from recordmill.pipeline.versions.stores.open_store import open_store\n"
        "with hold(open_store(sys.argv[1]), 'x'), open(sys.argv[2], 'a') as log:\n"
        "    print('begin', file=log, flush=True)\n    print('end', file=log, flush=True)\n"
    )
    command = [sys.executable, "-c", program, store.url, str(log)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert log.read_text().split() == ["begin", "end"] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [emulators.s3, pytest.param(lambda: emulators.gcs(conditions=True), marks=pytest.mark.nightly)],
    ids=["s3", "gcs"],
)
@constants(leases, BEAT_SECONDS=0.2)
def test_on_object_stores(start: Callable[[], Any]) -> None:
    with start() as url:
        store = open_store(url)
        put(store, foreign())
        told: list[str] = []
        with hold(store, NAME, on_wait=lambda holder: told.append(holder.host)) as lease:
            lease.check()
            wait_until(lambda: leases.holders(store)[NAME].beat > 0)
            put(store, foreign())
            with pytest.raises(LeaseLostError):
                lease.check()
        assert told == ["elsewhere"]
        assert leases.holders(store)[NAME].token == "theirs"
