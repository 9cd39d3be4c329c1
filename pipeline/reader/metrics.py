"""Throughput of an input: rows per second, the loop's waiting time, and the slowest stage.

Time begins with the first batch: starting up is not counted.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import sub
from typing import Any, NamedTuple

from recordmill.transforms.base.stored import Ragged, arrays_of

STAGES = ("reading", "parsing", "decoding", "finishing")
"""Reading records; parsing them; decoding and augmenting images; making arrays of the values."""
SKIPPED = "skipped"
FETCHED, CACHED, REQUESTS, RETRIES, WAITED = "bytes_fetched", "bytes_cached", "requests", "retries", "fetch_seconds"
"""The cost of remote shards: bytes from the store, record bytes from the cache, requests, retries, and the seconds that
batches waited for the store, in all threads."""


class Counters:
    """Thread-safe sums: seconds by stage, skipped records, the cost of remote shards; a pickled copy starts at zero."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Counters, ()

    def add(self, counts: Mapping[str, float]) -> None:
        """Adds counts, such as another process'."""
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
        """Returns the counts, and resets them."""
        with self._lock:
            counts, self.counts = dict(self.counts), defaultdict(float)
        return counts


class Figures(NamedTuple):
    """Measurements up to a moment, or between two moments."""

    seconds: float
    batches: int
    rows: int
    waited: float  # seconds that the loop waited for batches
    counts: dict[str, float]  # the totals of `Counters`

    def since(self, earlier: "Figures") -> "Figures":
        """Returns the measurements between two moments."""
        counts = {name: count - earlier.counts.get(name, 0) for name, count in self.counts.items()}
        seconds, batches, rows, waited = map(sub, self[:4], earlier[:4])
        return Figures(seconds, batches, rows, waited, counts)

    @property
    def rows_per_second(self) -> float:
        """Rows per second, waiting included; 0 if no time has passed."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def waited_share(self) -> float:
        """The share of the time that the loop waited, 0 to 1."""
        return min(1.0, self.waited / self.seconds) if self.seconds > 0 else 0.0

    @property
    def longest_stage(self) -> tuple[str, float] | None:
        """The slowest stage, and its share of all stages, 0 to 1; None if nothing was timed."""
        spent = {stage: self.counts.get(stage, 0.0) for stage in STAGES}
        total = sum(spent.values())
        stage = max(STAGES, key=spent.__getitem__)
        return (stage, spent[stage] / total) if total > 0 else None

    def line(self, step: int) -> str:
        """Returns the figures as a line of text."""
        waited = f"waited for input {round(100 * self.waited_share)} % of the time"
        parts = [f"step {step:,}", f"{self.rows_per_second:,.0f} rows/s", waited]
        if longest := self.longest_stage:
            parts.append(f"making batches is mostly {longest[0]} ({round(100 * longest[1])} %)")
        if self.counts.get(REQUESTS):
            fetched, requests, retries = (self.counts.get(name, 0) for name in (FETCHED, REQUESTS, RETRIES))
            repeated = f", {retries:,.0f} of them repeated" if retries else ""
            parts.append(f"fetched {fetched / 1e6:,.0f} MB in {requests:,.0f} requests{repeated}")
        return " · ".join(parts)


class Meter:
    """Measures one loop over batches, from the step `start` to `step`, the next; counts given `batches` and `rows`."""

    def __init__(
        self, counters: Counters | None = None, clock: Callable[[], float] = time.perf_counter, step: int = 0
    ) -> None:
        """Takes the counters of the batches' maker, a clock in seconds, and the step of the first batch."""
        self._counters, self._clock = counters or Counters(), clock
        self.start = self.step = step
        self._first: Figures | None = None
        self._waited, self.batches, self.rows = 0.0, 0, 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time inside as waiting."""
        start = self._clock()
        try:
            yield
        finally:
            self._waited += self._clock() - start

    def count(self, batch: Any) -> None:
        """Counts a batch, and the rows in its first array, or its ragged lists."""
        first, *_ = *arrays_of(batch), ()
        self.batches += 1
        self.rows += len(first.splits) - 1 if isinstance(first, Ragged) else len(first)
        self._first = self._first or self._now()

    def figures(self) -> Figures:
        """Returns the measurements since the first batch, which is not counted."""
        return self._now().since(self._first or self._now())

    def _now(self) -> Figures:
        return Figures(self._clock(), self.batches, self.rows, self._waited, self._counters.totals())
