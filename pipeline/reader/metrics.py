"""Throughput of an input: rows a second, the share of its time that a loop waits, and the stage that takes longest.

Time begins with the first batch: starting up is not counted.

>>> for features, label in with_progress(train.as_numpy()):  # doctest: +SKIP
...     ...
step 1,200 · 3,512 rows/s · waited for input 2 % of the time · making batches is mostly decoding (75 %)
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recordmill.transforms.contract.stored import Ragged

STAGES = ("reading", "parsing", "decoding", "finishing")
"""Reading the bytes of records; parsing them; decoding and augmenting images; making arrays of the values."""
SKIPPED = "skipped"
FETCHED, CACHED, REQUESTS, RETRIES, WAITED = "bytes_fetched", "bytes_cached", "requests", "retries", "fetch_seconds"
"""The cost of remote shards: bytes that came from the store, bytes of records that came from the cache, requests, those
of them that were repeated, and seconds of all threads in which batches waited for the store."""


class Counters:
    """Seconds by stage, and skipped records, of all threads and processes.

    Threads may share them; pickled to another process, they begin there at zero.

    Attributes:
        counts: seconds in each of `STAGES`, the number of records left out, and what remote shards cost.
    """

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Counters, ()

    def add(self, counts: Mapping[str, float]) -> None:
        """Adds counts, for example another process'."""
        with self._lock:
            for name, amount in counts.items():
                self.counts[name] += amount

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds the time inside to a stage; stages do not nest."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add({stage: time.perf_counter() - start})

    def totals(self) -> dict[str, float]:
        """Returns a copy of the counts."""
        with self._lock:
            return dict(self.counts)

    def take(self) -> dict[str, float]:
        """Returns the counts, and sets them to zero."""
        with self._lock:
            counts, self.counts = dict(self.counts), defaultdict(float)
        return counts


def counters_of(batches: Any) -> Counters:
    """Returns `batches.counters`, or new ones where it counts nothing."""
    return getattr(batches, "counters", None) or Counters()


@dataclass(frozen=True)
class Figures:
    """Measurements up to a moment, or between two."""

    seconds: float
    batches: int
    rows: int
    waited: float
    """Seconds in which the loop waited for a batch."""
    counts: dict[str, float]
    """The totals of `Counters`."""

    def since(self, earlier: "Figures") -> "Figures":
        """Returns the measurements between two moments."""
        return Figures(
            self.seconds - earlier.seconds,
            self.batches - earlier.batches,
            self.rows - earlier.rows,
            self.waited - earlier.waited,
            {name: count - earlier.counts.get(name, 0) for name, count in self.counts.items()},
        )

    @property
    def rows_per_second(self) -> float:
        """Rows by the time, waiting included; 0 where no time has passed."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def waited_share(self) -> float:
        """The part of the time in which the loop waited, 0 to 1."""
        return min(1.0, self.waited / self.seconds) if self.seconds > 0 else 0.0

    @property
    def longest_stage(self) -> tuple[str, float] | None:
        """The stage that most of making batches is, and its share, 0 to 1; None where nothing was timed."""
        spent = {stage: self.counts.get(stage, 0.0) for stage in STAGES}
        total = sum(spent.values())
        stage = max(STAGES, key=spent.__getitem__)
        return (stage, spent[stage] / total) if total > 0 else None

    def line(self, step: int) -> str:
        """Returns the figures as a line of text."""
        waited = f"waited for input {_percent(self.waited_share)} of the time"
        parts = [f"step {step:,}", f"{self.rows_per_second:,.0f} rows/s", waited]
        if longest := self.longest_stage:
            parts.append(f"making batches is mostly {longest[0]} ({_percent(longest[1])})")
        if self.counts.get(REQUESTS):
            fetched, requests, retries = (self.counts.get(name, 0) for name in (FETCHED, REQUESTS, RETRIES))
            repeated = f", {retries:,.0f} of them repeated" if retries else ""
            parts.append(f"fetched {fetched / 1e6:,.0f} MB in {requests:,.0f} requests{repeated}")
        return " · ".join(parts)


class Meter:
    """Measures one loop over batches.

    Attributes:
        batches: how many were given out.
        rows: of all of these.
    """

    def __init__(self, counters: Counters | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        """Takes the counters of what makes the batches, and a clock in seconds."""
        self._counters = counters or Counters()
        self._clock = clock
        self._first: Figures | None = None
        self._waited = 0.0
        self.batches = 0
        self.rows = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time inside as waiting."""
        start = self._clock()
        try:
            yield
        finally:
            self._waited += self._clock() - start

    def count(self, batch: Any) -> None:
        """Counts a batch that is given out: the rows of its first array."""
        self.batches += 1
        self.rows += _rows(batch)
        if self._first is None:
            self._first = self._now()

    def figures(self) -> Figures:
        """Returns the measurements since the first batch came, which is not among the batches."""
        return self._now().since(self._first or self._now())

    def _now(self) -> Figures:
        return Figures(self._clock(), self.batches, self.rows, self._waited, self._counters.totals())


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"


def _rows(batch: Any) -> int:
    """The length of a batch's first array; of ragged lists, how many lists."""
    first = next(_arrays(batch), ())
    return len(first.splits) - 1 if isinstance(first, Ragged) else len(first)


def _arrays(batch: Any) -> Iterator[Any]:
    if isinstance(batch, dict | tuple) and not isinstance(batch, Ragged):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _arrays(part)
    else:
        yield batch
