"""The meter of a loop over batches, and the counters of what makes them."""

import io
import pickle
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from recordmill import with_progress
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.metrics import Counters, Figures, Meter
from recordmill.transforms.base.stored import Ragged
from tests.messages import assert_names, raises


class Clock:
    """A clock that stands still unless it is told to move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Batches:
    """Batches of 8 rows: each is waited for, then worked on."""

    def __init__(self, number: int, wait: float, work: float) -> None:
        self.clock, self.counters = Clock(), Counters()
        self.meter = Meter(self.counters, self.clock)
        self.step = 100
        self._times = (number, wait, work)

    def __iter__(self) -> Iterator[Any]:
        number, wait, work = self._times
        for _ in range(number):
            with self.meter.waiting():
                self.clock.now += wait
            self.counters.add({"decoding": 3 * wait, "reading": wait})
            self.step += 1
            batch = {"image": np.zeros((8, 2, 2))}, np.zeros(8)
            self.meter.count(batch)
            yield batch
            self.clock.now += work


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("batch", "rows"), [
    (({"image": np.zeros((3, 2)), "label": np.zeros(3)}, np.zeros(3)), 3),
    ({"text": Ragged(np.zeros(7), np.array([0, 3, 7]))}, 2),
    (({"key": np.array([b"a"], object)}, np.zeros(1), np.ones(1)), 1),
    (({}, np.zeros(5)), 5),
    ({}, 0),
])  # fmt: skip
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
    assert_names(Meter().figures().line(0), "step 0", "0 rows/s", "0 %")  # nothing was counted


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
    for line in lines:
        assert_names(line, " · 800 rows/s · ", "1 %", "decoding (75 %)")
    batches = Batches(11, wait=0.0, work=0.001)
    batches.step = 1_199_990
    list(batches)
    assert batches.meter.figures().line(batches.step).startswith("step 1,200,001 · 7,273 rows/s · ")


def test_on_a_terminal_a_line_replaces_the_one_before_and_none_is_left_open() -> None:
    out, line = Terminal(), r" · 8 rows/s · [^\r\n]*\x1b\[K"
    list(with_progress(Batches(30, wait=0.0, work=1.0), every=10, out=out))
    assert re.fullmatch(rf"\rstep 111{line}\rstep 121{line}\n", out.getvalue())
    out = Terminal()
    batches = with_progress(Batches(100, wait=0.0, work=1.0), every=10, out=out)
    for _ in range(20):
        next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert out.getvalue().endswith("\x1b[K\n")


def test_progress_writes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    list(with_progress(Batches(5, wait=0.0, work=1.0), every=2))
    assert capsys.readouterr().err.startswith("step 103 · 8 rows/s")
    with raises(DatasetError, "as_numpy", "list"):
        with_progress([])  # type: ignore[arg-type]


@pytest.mark.parametrize(("counts", "longest"), [
    ({"decoding": 3, "parsing": 1, "skipped": 9}, ("decoding", 0.75)),
    ({"reading": 2, "parsing": 1, "finishing": 1}, ("reading", 0.5)),
    ({"skipped": 2}, None),
    ({}, None),
])  # fmt: skip
def test_the_longest_stage_is_named_with_its_share(counts: dict[str, float], longest: Any) -> None:
    assert Figures(1.0, 1, 1, 0.0, counts).longest_stage == longest


def test_stages_are_timed_and_counts_taken_once() -> None:
    counters = Counters()
    with counters.timed("reading"):
        time.sleep(0.05)
    with pytest.raises(KeyError), counters.timed("parsing"):
        raise KeyError
    totals = counters.totals()
    assert totals["reading"] >= 0.05
    assert 0 < totals["parsing"]
    assert pickle.loads(pickle.dumps(counters)).totals() == {}, "they begin anew in another process"
    assert counters.take() == totals
    assert counters.take() == {}
