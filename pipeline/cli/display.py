"""What a person sees of a build: a live line on a terminal, plain lines elsewhere, and what was published."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

from recordmill.pipeline.build.context.progress import ProgressReader
from recordmill.pipeline.cli.screen import Screen
from recordmill.pipeline.dataset.duplicate_messages import warnings
from recordmill.pipeline.dataset.manifest import Manifest

LOOK_SECONDS = 0.25
RATE_SECONDS = 3.0  # the rate is that of the last three seconds


class Plan(Protocol):
    """What the display wants of a plan."""

    @property
    def rows(self) -> int:
        """About how many rows there are."""

    @property
    def chunks(self) -> Sequence[object]:
        """What is read, piece by piece."""

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know of the sources."""


class Display:
    """Polls the build's counters in a thread and shows them.

    >>> with Display(console) as display:        # doctest: +SKIP
    ...     display.start(plan, folder)
    """

    def __init__(self, console: Screen) -> None:
        self._console = console
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._reader: ProgressReader | None = None
        self.folder: Path | None = None
        """The build's folder, once the work has begun."""
        self._state = State(time.monotonic())
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[details]}", markup=False),
            console=console,
            transient=True,
            auto_refresh=False,
        )

    def __enter__(self) -> "Display":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, plan: Plan, folder: str) -> None:
        """Takes the plan of the build that begins now, and its folder; says the plan's notes."""
        for note in plan.notes:
            self.note(note)
        self._state = State(time.monotonic(), plan.rows, len(plan.chunks))
        self.folder = Path(folder)
        self._reader = ProgressReader(str(self.folder / "progress"))

    def note(self, text: str) -> None:
        """Says what a person should know."""
        self._console.print(f"note: {text}", soft_wrap=True)

    def stop(self) -> None:
        """Ends the display and clears its line; may be called twice, and from a signal handler."""
        self._done.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=1)

    def _watch(self) -> None:
        if self._console.quiet:
            return
        if not self._console.is_terminal:
            self._print_lines()
            return
        with self._bar:
            task = self._bar.add_task("", total=1.0, details="")
            while not self._done.wait(LOOK_SECONDS):
                view = self._look()
                self._bar.update(task, completed=view.share, description=view.stage, details=view.details)
                self._bar.refresh()

    def _print_lines(self) -> None:
        """A line every second of the first minute, then ever more rarely: a log of an hour has a few hundred."""
        started = printed = time.monotonic()
        while not self._done.wait(LOOK_SECONDS):
            now = time.monotonic()
            if self._reader is not None and now - printed >= max(1.0, (now - started) / 60):
                printed = now
                view = self._look()
                self._console.print(f"{view.stage}: {view.share:.0%}, {view.details}", soft_wrap=True)

    def _look(self) -> "View":
        if self._reader is None or self.folder is None:
            return View("loading Apache Beam and TensorFlow", 0.0, "")
        try:
            counts = self._reader.read()
        except FileNotFoundError:  # the build is over and its folder gone
            counts = {}
        return self._state.view(counts, (self.folder / "reports" / "analysis.json").exists(), time.monotonic())


class View:
    """One look at a build."""

    def __init__(self, stage: str, share: float, details: str) -> None:
        self.stage, self.share, self.details = stage, min(1.0, share), details


class State:
    """From counters to a view: the stage, the share done, the rate, the time left.

    Reading and building a record count alike: the share is of both together.
    """

    def __init__(self, now: float, rows: int = 0, chunks: int = 0) -> None:
        self._rows, self._chunks = rows, chunks
        self._begun = now
        self._history: list[tuple[float, int]] = [(now, 0)]
        self._stage = ""
        self._share = 0.0

    def view(self, counts: Mapping[str, int], analyzed: bool, now: float) -> View:
        """Gives the view of the counters at a time (monotonic seconds)."""
        read, refused, dropped = (counts.get(name, 0) for name in ("read", "refused", "dropped"))
        left_out = counts.get("left_out", 0)
        built = counts.get("written", 0) + dropped
        all_read = counts.get("chunks", 0) >= self._chunks
        rows = read if all_read else max(read, self._rows)
        stage = self._name_stage(all_read, analyzed, built, read - refused - left_out)
        done = built if stage == "building shards" else read
        rate = self._rate(stage, done, now)
        # What was refused or left out is never built; a repeated step, or an estimate of too few rows, does not turn
        # the bar back.
        share = self._share = max(self._share, (read + refused + left_out + built) / (2 * rows) if rows else 0.0)
        details = f"{done:,} records, {rate:,.0f}/s, {refused + dropped:,} rejected"
        if 0 < share < 1:
            details += f", {_clock((now - self._begun) * (1 - share) / share)} left"
        return View(stage, share, details)

    def _name_stage(self, all_read: bool, analyzed: bool, built: int, wanted: int) -> str:
        if not all_read:
            return "reading"
        if not analyzed:
            return "analyzing"
        return "building shards" if built < wanted else "publishing"

    def _rate(self, stage: str, done: int, now: float) -> float:
        if stage != self._stage:
            self._stage, self._history = stage, [(now, done)]
        self._history = [(t, n) for t, n in self._history if now - t <= RATE_SECONDS] + [(now, done)]
        (first, before), (last, after) = self._history[0], self._history[-1]
        return (after - before) / (last - first) if last > first else 0.0


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def print_published(console: Screen, folder: str, manifest: Manifest, is_new: bool, seconds: float) -> None:
    """Says what a build gave: records by split, rejects by reason, bytes, time and place."""
    if not is_new:
        console.print(
            f"Nothing has changed since version {manifest.version}, which is live in {folder}",
            soft_wrap=True,
        )
        return
    total = sum(split.bytes for split in manifest.splits.values())
    console.print(f"Published {manifest.name} {manifest.version} in {seconds:.1f} s, {_size(total)}", soft_wrap=True)
    for name, split in manifest.splits.items():
        documents = "" if split.documents is None else f" of {_count(split.documents, 'document')}"
        console.print(f"  {name:<12} {split.records:>10,} records{documents} in {_count(len(split.shards), 'shard')}")
    reasons = manifest.rejects.get("by_reason", {})
    console.print(f"  {'rejected':<12} {sum(reasons.values()):>10,} of {manifest.rows['read']:,} rows")
    for reason, count in reasons.items():
        console.print(f"    {reason:<18} {count:>2,}")
    if left_out := manifest.rows.get("duplicates"):
        console.print(f"  {'duplicates':<12} {left_out:>10,} rows left out")
    for warning in warnings(manifest.duplicates):
        console.print(f"  {'duplicates':<12} {warning}: see `recordmill show`", soft_wrap=True)
    console.print(f"  in {folder}", soft_wrap=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _size(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
