"""Shows a running build as a live line on a terminal, else as plain lines."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

from recordmill.pipeline.build.context.reports import ProgressReader
from recordmill.pipeline.build.run_options import Stage
from recordmill.pipeline.cli.screen import Screen

if TYPE_CHECKING:
    from recordmill.pipeline.build.context.build_context import PlannedBuild
    from recordmill.pipeline.build.plan.plan import BuildPlan
    from recordmill.pipeline.build.runners.job import Job

LOOK_SECONDS = 0.25
RATE_SECONDS = 3.0  # the rate covers the last three seconds
LOOKING, READING, ANALYZING = "looking at the rows", "reading", "analyzing"
BUILDING, PUBLISHING = "building shards", "publishing"


class Display:
    """Polls and shows the build's counters in a thread: `with Display(console) as display: display.start(…)`."""

    def __init__(
        self, console: Screen, clock: Callable[[], float] = time.monotonic, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._console, self._clock, self._look_seconds = console, clock, look_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._reader: ProgressReader | None = None
        self._notes: set[str] = set()
        self._stage: str = Stage.PLAN  # a stage without counters, before and after the work
        self.job: Job | None = None  # the job on a cluster, while it may run
        self._state = State(self._clock())
        stage, details = (TextColumn(f"{{task.{each}}}", markup=False) for each in ("description", "fields[details]"))
        columns = SpinnerColumn(), stage, BarColumn(bar_width=24), TaskProgressColumn(), details
        self._bar = Progress(*columns, console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> "Display":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, plan: "BuildPlan", planned: "PlannedBuild") -> None:
        """Starts to show a build, and prints the plan's notes."""
        for note in plan.notes:
            self.note(note)
        self._state = State(self._clock(), plan.rows, len(plan.chunks))
        self._stage, self._reader = "", ProgressReader(planned.progress)

    def show_stage(self, stage: str) -> None:
        """Shows a stage without counters."""
        self._stage = "" if stage == Stage.WRITE else stage

    def show_job(self, job: "Job | None") -> None:
        """Shows a job's state, and its page once known; None after its end."""
        self.job = job

    def note(self, text: str) -> None:
        """Prints a note to the user, once."""
        if text not in self._notes:
            self._notes.add(text)
            self._console.print(f"note: {text}", soft_wrap=True)

    def stop(self) -> None:
        """Ends the display and clears its line; callable twice, and from a signal handler."""
        self._done.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=1)

    def _watch(self) -> None:
        if self._console.quiet:
            return
        if not self._console.is_terminal:
            self._print_lines()
            return
        number = self._bar.add_task(self._stage, total=None, details="")
        (task,) = self._bar.tasks
        with self._bar:  # draws the first line
            while not self._done.wait(self._look_seconds):
                view = self._look()
                task.total = None if view.share is None else 1.0  # `update` cannot set None
                self._bar.update(number, completed=view.share or 0.0, description=view.stage, details=view.text())
                self._bar.refresh()

    def _print_lines(self) -> None:
        """Prints changed lines, each second in the first minute, then ever more rarely: a few hundred per hour."""
        started = printed = self._clock()
        last: Moment | None = None
        while not self._done.wait(self._look_seconds):
            now = self._clock()
            if self._reader is not None and now - printed >= max(1.0, (now - started) / 60):
                printed, view = now, self._look()
                if last is None or view._replace(left="") != last._replace(left=""):
                    self._console.print(view.line(), soft_wrap=True)
                last = view

    def _look(self) -> "Moment":
        if self._reader is None:
            return Moment(self._stage, None, "")
        counts = self._reader.read()
        view, job = self._state.view(counts, bool(counts.get("analyzed")), self._clock()), self.job
        if job is not None and job.state:
            self.note(f"the job runs at {job.url}")
            view = view._replace(details=f"{view.details}, {job.state}")
        return view._replace(details=self._stage) if view.stage == PUBLISHING and self._stage else view


class Moment(NamedTuple):
    """The state of a build at a time."""

    stage: str
    share: float | None  # the finished part of the stage, 0 to 1; None if unknown
    details: str
    left: str = ""  # the remaining time of the build

    def text(self) -> str:
        """Formats the details and the remaining time."""
        return f"{self.details}, {self.left} left" if self.left else self.details

    def line(self) -> str:
        """Formats a line for a log."""
        return f"{self.stage}: {'' if self.share is None else f'{self.share:.0%}, '}{self.text()}"


class State:
    """Computes stage, finished share, rate and remaining time from counters.

    Looking at, reading and building a record count the same. A look before the read has separate counters, `look_…`.
    """

    def __init__(self, now: float, rows: int = 0, chunks: int = 0) -> None:
        self._rows, self._chunks = rows, chunks
        self._begun = now
        self._history: list[tuple[float, int]] = [(now, 0)]
        self._stage = ""
        self._share = self._whole = 0.0

    def view(self, counts: Mapping[str, int], analyzed: bool, now: float) -> Moment:
        """Returns the state at a time in monotonic seconds."""
        look = {name.removeprefix("look_"): number for name, number in counts.items() if name.startswith("look_")}
        is_look = bool(look) and not analyzed
        shown = look if is_look else counts
        read, refused, dropped = (shown.get(name, 0) for name in ("read", "refused", "dropped"))
        never_built = refused + shown.get("left_out", 0)
        built = shown.get("written", 0) + dropped
        all_read = shown.get("chunks", 0) >= self._chunks
        rows, wanted = read if all_read else max(read, self._rows), read - never_built
        stage = BUILDING if built < wanted else PUBLISHING
        if not all_read:
            stage = LOOKING if is_look else READING
        elif not analyzed:
            stage = ANALYZING
        done, expected = (built, wanted) if stage == BUILDING else (read, rows)
        rate = self._rate(stage, done, now)
        rejected = f"{refused + dropped:,} rejected"
        if stage in (ANALYZING, PUBLISHING):
            return Moment(stage, None, f"{done:,} records, {rejected}")
        # The bar never goes back, even if a step is repeated or rows were underestimated.
        self._share = max(self._share, min(1.0, done / expected if expected else 0.0))
        ended = read if is_look else read + never_built + built + (rows if look else 0)
        passes = 3 if look else 2
        self._whole = max(self._whole, min(1.0, ended / (passes * rows) if rows else 0.0))
        details = f"{done:,} records, {rate:,.0f}/s, {rejected}"
        is_known = 0 < self._whole < 1
        seconds = (now - self._begun) * (1 - self._whole) / self._whole if is_known else 0
        left = "{}:{:02d}".format(*divmod(round(seconds), 60)) if is_known else ""
        return Moment(stage, self._share, details, left)

    def _rate(self, stage: str, done: int, now: float) -> float:
        if stage != self._stage:
            self._stage, self._share, self._history = stage, 0.0, [(now, done)]
        self._history = [(t, n) for t, n in self._history if now - t <= RATE_SECONDS] + [(now, done)]
        (first, before), (last, after) = self._history[0], self._history[-1]
        return (after - before) / (last - first) if last > first else 0.0
