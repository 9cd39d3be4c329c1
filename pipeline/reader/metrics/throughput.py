"""How fast batches come, and for how much of its time a model's loop waits for them.

The time begins when the first batch is there: what starting up takes is not counted.

>>> for features, label in with_progress(train.as_numpy()):  # doctest: +SKIP
...     ...
step 1,200 · 3,512 rows/s · waited for input 2 % of the time
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TextIO, TypeVar

from recordmill.pipeline.reader.metrics.advice import Makers, advice, percent
from recordmill.pipeline.reader.metrics.stages import Tally
from recordmill.transforms.contract.ragged import Ragged

MUCH = 0.2  # of the time that a model waits: above, the input is the bottleneck
Batch = TypeVar("Batch", covariant=True)


@dataclass(frozen=True)
class Figures:
    """What was measured until a moment, or between two."""

    seconds: float
    batches: int
    rows: int
    waited: float
    """Seconds in which the loop waited for a batch."""
    counts: dict[str, float]
    """As in `Tally`."""

    def since(self, earlier: "Figures") -> "Figures":
        """What was measured between two moments."""
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


class Meter:
    """Measures one loop over batches.

    Attributes:
        batches: how many were given out.
        rows: of all of these.
    """

    def __init__(
        self, tally: Tally | None = None, makers: Makers | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Takes what the making of the batches counts, what makes them, and a clock in seconds."""
        self._tally = tally or Tally()
        self._makers = makers or Makers()
        self._clock = clock
        self._first: Figures | None = None
        self._waited = 0.0
        self.batches = 0
        self.rows = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time of what is done inside as waiting."""
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
        """What was measured since the first batch was there; it is not among the batches."""
        return self._now().since(self._first or self._now())

    def line(self, step: int, figures: Figures | None = None) -> str:
        """Tells figures, by default those of the whole loop, in a line."""
        figures = figures or self.figures()
        waited = percent(figures.waited_share)
        return f"step {step:,} · {figures.rows_per_second:,.0f} rows/s · waited for input {waited} of the time"

    def warning(self, figures: Figures) -> str | None:
        """Says why the input was the bottleneck, and what to do; None where it was not."""
        if figures.waited_share <= MUCH:
            return None
        waited = percent(figures.waited_share)
        return f"the input is the bottleneck, waited for {waited} of the time: {advice(figures.counts, self._makers)}"

    def _now(self) -> Figures:
        return Figures(self._clock(), self.batches, self.rows, self._waited, self._tally.sums())


class Progress:
    """Prints a line every few seconds, and once a warning where the input is the bottleneck.

    On a terminal the line is written over the one before.
    """

    def __init__(self, meter: Meter, every: float = 10.0, out: TextIO | None = None) -> None:
        """Takes what to tell of, the seconds between two lines, and where to write to: by default stderr."""
        self._meter, self._every = meter, every
        self._out = out or sys.stderr
        self._in_place = self._out.isatty()
        self._told = meter.figures()
        self._warned = False
        self._open = False

    def tell(self, step: int) -> None:
        """Prints a line if it is time; call it at each step, whose number it takes."""
        now = self._meter.figures()
        window = now.since(self._told)
        if window.seconds < self._every:
            return
        self._told = now
        self._print(self._meter.line(step, window))
        warning = None if self._warned else self._meter.warning(window)
        if warning:
            self.end()
            self._out.write(f"{warning}\n")
            self._warned = True

    def end(self) -> None:
        """Ends a line that was to be written over."""
        if self._open:
            self._out.write("\n")
            self._open = False

    def _print(self, line: str) -> None:
        self._out.write(f"\r{line}\x1b[K" if self._in_place else f"{line}\n")  # K: clear what is longer of the last one
        self._out.flush()
        self._open = self._in_place


class Metered(Protocol[Batch]):
    """Batches with a meter and the number of steps: `NumpyBatches`."""

    meter: Meter

    @property
    def step(self) -> int:
        """The step of the next batch."""

    def __iter__(self) -> Iterator[Batch]:
        """Gives the batches."""


def with_progress(batches: Metered[Batch], every: float = 10.0, out: TextIO | None = None) -> Iterator[Batch]:
    """Gives the batches, and says every few seconds how fast they come and how long they were waited for.

    Where more than a fifth of a time between two lines was waiting, it says once why, and what to do.

    Args:
        batches: what `as_numpy` gave.
        every: seconds between two lines, at least.
        out: where to write to, by default stderr; on a terminal each line replaces the one before.
    """
    progress = Progress(batches.meter, every, out)
    try:
        for batch in batches:
            progress.tell(batches.step)
            yield batch
    finally:
        progress.end()


def _rows(batch: Any) -> int:
    """The length of a batch's first array; of lists of different lengths, how many lists."""
    first = next(_arrays(batch), ())
    return len(first.splits) - 1 if isinstance(first, Ragged) else len(first)


def _arrays(batch: Any) -> Iterator[Any]:
    if isinstance(batch, dict | tuple) and not isinstance(batch, Ragged):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _arrays(part)
    else:
        yield batch
