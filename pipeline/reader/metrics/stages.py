"""What the making of batches took and left out: seconds by stage, and skipped records, of all threads and processes.

>>> tally = Tally()
>>> with tally.timed("reading"):
...     pass
>>> sorted(tally.counts)
['cpu', 'reading']
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

STAGES = ("reading", "parsing", "decoding", "finishing")
"""The bytes of records; parsing them; decoding and augmenting pictures; all that makes a batch of the values."""
CPU = "cpu"
SKIPPED = "skipped"


class Tally:
    """Sums by name. Threads may share it; what is sent to another process counts anew there.

    Attributes:
        counts: seconds that passed in each of `STAGES`, seconds of CPU in all of them, and the records left out.
    """

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tally, ()

    def add(self, counts: Mapping[str, float]) -> None:
        """Adds sums, such as those of another process."""
        with self._lock:
            for name, amount in counts.items():
                self.counts[name] += amount

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Counts what is done inside to a stage; stages do not lie in one another."""
        start, worked = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.add({stage: time.perf_counter() - start, CPU: time.thread_time() - worked})

    def sums(self) -> dict[str, float]:
        """Gives the sums as they are now."""
        with self._lock:
            return dict(self.counts)

    def taken(self) -> dict[str, float]:
        """Gives the sums, and begins anew at nothing."""
        with self._lock:
            taken, self.counts = dict(self.counts), defaultdict(float)
        return taken


def tally_of(batches: Any) -> Tally:
    """Gives `batches.tally`, or a new one where it counts nothing."""
    return getattr(batches, "tally", None) or Tally()
