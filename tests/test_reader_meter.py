"""The meter of a loop over batches: what it tells, and what it advises."""

import io
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from recordmill.pipeline.reader.metrics.advice import Makers, advice
from recordmill.pipeline.reader.metrics.stages import Tally
from recordmill.pipeline.reader.metrics.throughput import Meter, Progress, with_progress
from recordmill.transforms.contract.ragged import Ragged


class Clock:
    """A clock that stands still unless it is told to move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Batches:
    """Batches of 8 rows: each is waited for, then worked on."""

    def __init__(self, number: int, wait: float, work: float) -> None:
        self.clock, self.tally = Clock(), Tally()
        self.meter = Meter(self.tally, Makers(threads=2, cores=8), self.clock)
        self.step = 100
        self._times = (number, wait, work)

    def __iter__(self) -> Iterator[Any]:
        number, wait, work = self._times
        for _ in range(number):
            with self.meter.waiting():
                self.clock.now += wait
            self.tally.add({"decoding": 2 * wait, "cpu": 2 * wait})
            self.step += 1
            batch = {"image": np.zeros((8, 2, 2))}, np.zeros(8)
            self.meter.count(batch)
            yield batch
            self.clock.now += work


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (({"image": np.zeros((3, 2)), "label": np.zeros(3)}, np.zeros(3)), 3),
        ({"text": Ragged(np.zeros(7), np.array([0, 3, 7]))}, 2),
        (({"key": np.array([b"a"], object)}, np.zeros(1), np.ones(1)), 1),
        (({}, np.zeros(5)), 5),
        ({}, 0),
    ],
)
def test_rows_are_those_of_the_first_array(batch: Any, rows: int) -> None:
    meter = Meter()
    meter.count(batch)
    assert (meter.batches, meter.rows) == (1, rows)


def test_time_begins_with_the_first_batch() -> None:
    batches = Batches(6, wait=1.0, work=3.0)
    figures = [batches.meter.figures() for _ in batches]
    assert (figures[0].seconds, figures[0].rows_per_second, figures[0].waited_share) == (0, 0, 0)
    last = figures[-1]
    assert (last.seconds, last.batches, last.rows, last.waited) == (20, 5, 40, 5)
    assert (last.rows_per_second, last.waited_share) == (2, 0.25)
    assert batches.meter.batches == 6


def test_a_meter_that_has_counted_nothing_tells_so() -> None:
    assert Meter().line(0) == "step 0 · 0 rows/s · waited for input 0 % of the time"


def test_waiting_for_the_end_is_counted_and_the_end_comes_out() -> None:
    clock = Clock()
    meter = Meter(clock=clock)
    meter.count(np.zeros(2))

    def end() -> None:
        with meter.waiting():
            clock.now += 2
            raise StopIteration

    with pytest.raises(StopIteration):
        end()
    assert meter.figures().waited == 2


def test_lines_come_every_few_seconds_and_tell_of_these() -> None:
    out = io.StringIO()
    batches = Batches(2000, wait=0.0001, work=0.0099)
    assert sum(1 for _ in with_progress(batches, every=5, out=out)) == 2000
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("step 60")
    assert all(line.endswith(" · 800 rows/s · waited for input 1 % of the time") for line in lines)


def test_steps_and_rates_have_separators_of_thousands() -> None:
    batches = Batches(11, wait=0.0, work=0.001)
    batches.step = 1_199_990
    list(batches)
    assert batches.meter.line(batches.step).startswith("step 1,200,001 · 7,273 rows/s · ")


def test_on_a_terminal_a_line_replaces_the_one_before() -> None:
    out = Terminal()
    list(with_progress(Batches(30, wait=0.0, work=1.0), every=10, out=out))
    one, two = (f"\rstep {step} · 8 rows/s · waited for input 0 % of the time\x1b[K" for step in (111, 121))
    assert out.getvalue() == f"{one}{two}\n"


@pytest.mark.parametrize(("wait", "warned"), [(0.19, 0), (0.21, 1), (1.0, 1)])
def test_a_bottleneck_is_told_of_once(wait: float, warned: int) -> None:
    out = Terminal()
    list(with_progress(Batches(100, wait=wait, work=1 - wait), every=10, out=out))
    text = out.getvalue()
    share = f"waited for {wait:.0%}".replace("%", " %")
    assert text.count(f"[K\nthe input is the bottleneck, {share} of the time: 100 % of the time of making") == warned
    assert text.count("bottleneck") == warned


def test_no_line_is_left_open_when_the_loop_is_left() -> None:
    out = Terminal()
    batches = with_progress(Batches(100, wait=0.0, work=1.0), every=10, out=out)
    for _ in range(20):
        next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert out.getvalue().endswith("\x1b[K\n")


def test_progress_writes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    batches = Batches(5, wait=0.0, work=1.0)
    progress = Progress(batches.meter, every=2)
    for _ in batches:
        progress.tell(batches.step)
    assert capsys.readouterr().err.startswith("step 103 · 8 rows/s")


FEW = Makers(threads=2, cores=8)
ALL = Makers(threads=8, cores=8)


@pytest.mark.parametrize(
    ("counts", "makers", "said"),
    [
        (
            {"decoding": 3, "parsing": 1, "cpu": 4},
            FEW,
            r"^75 % .* decoding .*: take more threads \(2 of 8 cores work\), or",
        ),
        (
            {"decoding": 3, "parsing": 1, "cpu": 4},
            ALL,
            "^75 % .* decoding and augmenting pictures: build with a smaller",
        ),
        ({"decoding": 3, "cpu": 3}, Makers(8, 2, 8), r"^100 % .*: take more workers \(2 of 8 cores work\), or build"),
        ({"parsing": 3, "reading": 1, "cpu": 4}, ALL, "^75 % .* parsing records: name only the features"),
        ({"finishing": 3, "decoding": 1, "cpu": 4}, ALL, "^75 % .* making arrays of the values: read .*dtype='uint8'"),
        ({"reading": 3, "decoding": 1, "cpu": 1}, ALL, "^75 % .* reading bytes: storage is slow.*shuffle='blocks'"),
        ({"decoding": 6, "finishing": 4, "cpu": 5}, ALL, "^8 threads wait for Python's lock.* workers=8$"),
        ({"decoding": 6, "finishing": 4, "cpu": 5}, Makers(8, 8, 8), "^60 % .* decoding"),
        ({"decoding": 6, "finishing": 4, "cpu": 5}, Makers(16, 0, 8), "^60 % .* decoding"),
        ({}, ALL, "^it is not known"),
    ],
)
def test_advice_follows_from_where_the_time_goes(counts: dict[str, float], makers: Makers, said: str) -> None:
    assert re.search(said, advice(counts, makers)), advice(counts, makers)


def test_stages_are_timed_in_seconds_that_pass_and_seconds_of_work() -> None:
    tally = Tally()
    with tally.timed("reading"):
        time.sleep(0.05)
    with tally.timed("parsing"):
        sum(range(300_000))
    sums = tally.sums()
    assert sums["reading"] >= 0.05
    assert 0 < sums["cpu"] < sums["reading"] + sums["parsing"] - 0.04
    assert tally.taken() == sums
    assert tally.taken() == {}
