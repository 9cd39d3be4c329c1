"""A build on the command line: a live line on a terminal, else plain lines; signals and error messages.

Output of TensorFlow, absl and Beam goes to an unnamed file. After an unexpected error a log lists frames and exception
types, but no messages, because they may contain values of rows.
"""

import faulthandler
import gc
import logging
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import psutil
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

import recordmill
from recordmill.pipeline.build.context.reports import DeadWorkerError, ProgressReader
from recordmill.pipeline.build.run_options import Listener, RunOptions, Stage
from recordmill.pipeline.build.runners.job import DryRunFinished, Job
from recordmill.pipeline.build.runners.worker_environment import set_tensorflow_variables
from recordmill.pipeline.cli.screen import Screen
from recordmill.pipeline.cli.show import print_published
from recordmill.pipeline.errors import ExitCode, UserError, code_of
from recordmill.pipeline.private_folder import remove_private_folder, use_private_folder, usual_folder
from recordmill.pipeline.safe_text import frames_of, say, summary_of, without_values
from recordmill.pipeline.versions.stores.open_store import is_local

if TYPE_CHECKING:
    from recordmill.pipeline.build.context.build_context import PlannedBuild
    from recordmill.pipeline.build.journal import Journal
    from recordmill.pipeline.build.plan.plan import BuildPlan

RATE_SECONDS = 3.0  # the rate covers the last three seconds
LOOKING, READING, ANALYZING = "looking at the rows", "reading", "analyzing"
BUILDING, PUBLISHING = "building shards", "publishing"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING_KEPT = "nothing was published, and nothing was finished yet: the same command starts over"
DEATH_SECONDS = 1.0  # how long to wait for a dead worker's status after a failure
GARBAGE = (20_000, 20, 20)  # Python's 700 or 2,000 objects are few compared to a graph
MOST_BYTES = 256 << 20  # 256 MiB: half a second of CPU for records of 2 kB
MOST_REMOTE_BYTES = 16 << 20  # 16 MiB to fetch
LOOK_SECONDS = 0.5  # between two looks at the limits on rejects
NOISE_BYTES = 16 << 20  # 16 MiB at the end of the output to search for tracebacks


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

    def show_job(self, job: Job | None) -> None:
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
        if stage != self._stage:
            self._stage, self._share, self._history = stage, 0.0, [(now, done)]
        self._history = [(t, n) for t, n in self._history if now - t <= RATE_SECONDS] + [(now, done)]
        (first, before), (last, after) = self._history[0], self._history[-1]
        rate = (after - before) / (last - first) if last > first else 0.0
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


class BuildSession:
    """Owns standard output and error during a build; Ctrl-C safely kills the workers and the process."""

    def __init__(self, output: str, quiet: bool, up_to_date_ok: bool = False) -> None:
        self._output, self._up_to_date_ok = output, up_to_date_ok
        self._started = time.monotonic()
        self._screen = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
        faulthandler.enable(self._screen)  # a crash of native code says where
        self._console = Screen(file=self._screen, quiet=quiet)
        self._display = Display(self._console)
        logging.getLogger("recordmill").addHandler(_Notes(self._display))
        self._watch = Watch(lambda error: self._end(code_of(error), str(error), *(self._kept() or [NOTHING_KEPT])))
        self._processes = 1
        self._folder: str | None = None
        self._publishing = False
        self._work: PlannedBuild | None = None
        self._journal: Journal | None = None
        self._ending = threading.Lock()
        set_tensorflow_variables()  # inherited by worker processes, like the temporary folder
        use_private_folder()
        sys.stdout.flush()
        self._noise, name = tempfile.mkstemp(prefix="recordmill-")
        os.remove(name)  # frameworks may print values of rows and secrets
        for descriptor in (1, 2):
            os.dup2(self._noise, descriptor)
        for number in SIGNALS:
            signal.signal(number, self._interrupt)

    def run(self, spec: str, options: RunOptions) -> NoReturn:
        """Reads a spec, builds, shows progress, the result and its changes, or why it is held back.

        Exits without the frameworks' slow atexit hooks.
        """
        self._folder = options.work
        gc.disable()  # garbage collection while TensorFlow loads takes a sixth of a small build
        with self._watch:
            try:
                with self._display:
                    # These imports take half a second, while the screen shows the first line.
                    from recordmill.pipeline.build.build import run
                    from recordmill.pipeline.build.journal import Journal

                    self._journal, shown = Journal(self._output, options), self._display
                    listener = Listener(self._begin, shown.note, self._publish, shown.show_stage, shown.show_job)
                    parsed = recordmill.load_spec(spec)
                    follower = self._journal.follow(listener, parsed.name)
                    published = run(parsed, self._output, options, follower, alone=True)
            except DryRunFinished as end:
                self._end(code_of(end), str(end))
            except UserError as error:
                self._end(code_of(error), str(error), *getattr(error, "__notes__", ()), *self._kept())
            except Exception as error:
                self._fail(error)
            if not published.breaches:
                print_published(self._console, published, time.monotonic() - self._started)
            if not self._console.quiet:
                for line in change_lines(self._output, published):
                    self._console.print(f"  {line}", soft_wrap=True)
            reasons = [published.reason(self._output)] if published.breaches else []
            self._end(published.exit_code, *reasons, published=published)

    def _begin(self, plan: "BuildPlan", work: "PlannedBuild") -> None:
        from recordmill.pipeline.build.attempt.failures import RejectLimits

        gc.freeze()  # the modules
        gc.set_threshold(*GARBAGE)
        gc.enable()
        self._work, self._processes = work, plan.processes
        self._display.start(plan, work)
        self._watch.follow(RejectLimits(plan, work), work.workspace.pause)

    def _publish(self) -> None:
        self._publishing = True

    def _kept(self) -> list[str]:
        """Returns a line about finished work, if the build had started."""
        if self._work is None or (is_local(self._output) and not os.path.exists(self._work.workspace.url)):
            return []
        continues = "the finished work is kept, and the same command goes on where it stopped"
        return [f"nothing was published; {continues} ({self._removal()})"]

    def _removal(self) -> str:
        """Names the command that removes finished work, and for a bucket the local folder with rows."""
        here = os.path.dirname(self._work.scratch) if self._work and not is_local(self._output) else ""
        folder = f" --work {shlex.quote(self._folder)}" if self._folder else ""
        local = f", with rows on their way in {here}, as the next build does" if os.path.isdir(here) else ""
        return f"`recordmill versions prune {self._output}{folder}` removes it{local}"

    def _fail(self, error: Exception) -> NoReturn:
        cause: BaseException = error
        while cause.__cause__ is not None:  # Beam wraps errors
            cause = cause.__cause__
        if isinstance(cause, UserError):
            self._end(code_of(cause), str(cause), *self._kept())
        if self._processes > 1 and (dead := self._watch.dead_worker(DEATH_SECONDS)) is not None:
            self._end(code_of(dead), str(dead), *(self._kept() or [NOTHING_KEPT]))
        message = summary_of(error)
        if isinstance(cause, OSError) and cause.errno:
            message = f"{os.strerror(cause.errno)}: {cause.filename or self._output}"
        if isinstance(cause, MemoryError):
            message = "memory ran out: use a larger machine, or fewer --processes"
        kept = self._kept() or ["nothing was published"]
        noise = os.pread(self._noise, NOISE_BYTES, max(0, os.fstat(self._noise).st_size - NOISE_BYTES))
        with suppress(OSError):  # a full disk
            descriptor, log = tempfile.mkstemp(".log", "recordmill-", usual_folder())  # its mode is 0600
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(without_values(noise.decode(errors="replace")) + frames_of(error))
            kept += [f"the log is {log}"]
        self._end(code_of(error), f"the build failed: {message}", *kept)

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        stays = "nothing was published, and what was live stays live"
        if self._publishing:
            stays = "what was live stays live, or the new version is"
        kept = f"go on: the finished work is kept ({self._removal()})"
        again = kept if self._kept() else "build again"
        self._end(ExitCode(128 + number), f"stopped: {stays}. Run the same command to {again}")

    def _end(self, status: ExitCode, *lines: str, published: "recordmill.Published | None" = None) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # prints one message only
        self._ending.acquire()  # never released: the watch may end the process too
        with suppress(OSError):  # of a terminal that was closed
            self._display.stop()
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        for message in lines:
            self._say(message)
        if (job := self._display.job) is not None:  # after its submitters are dead
            try:
                self._say("cancelling the job on the cluster")
                job.cancel()
            except UserError as error:
                self._say(str(error))
        for warning in self._journal.end(status, next(iter(lines), None), published) if self._journal else []:
            self._say(warning)
        remove_private_folder()
        os._exit(0 if status is ExitCode.UP_TO_DATE and self._up_to_date_ok else status)

    def _say(self, line: str) -> None:
        with suppress(OSError):
            say(line, self._screen)
            self._screen.flush()


class _Notes(logging.Handler):
    """Shows Recordmill's warnings instead of logging them to the diverted output."""

    def __init__(self, display: Display) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.note(record.getMessage())


def change_lines(output: str, published: "recordmill.Published") -> Iterator[str]:
    """Yields changes since the former live version, if any; compares rows only if few bytes of shards differ."""
    before, version = published.before, published.manifest.version
    if before is None or before == version:
        return
    from recordmill.pipeline.compare.diff import bytes_to_read, diff

    try:
        old, new = recordmill.open_dataset(output, before), recordmill.open_dataset(output, version)
        size = bytes_to_read(old, new)
        with_rows = size <= (MOST_BYTES if is_local(output) else MOST_REMOTE_BYTES)
        lines = [*diff(old, new, rows=with_rows, values=False).short_lines()]
    except (UserError, OSError) as error:
        lines, with_rows = [f"not compared: {error}"], True
    yield f"since {before}:"
    yield from (f"  {line}" for line in lines or ["  nothing differs"])
    if not with_rows:
        yield f"  rows: {decimal(size)} of shards differ; `recordmill diff {output} {before} {version}` compares them"


class Watch:
    """Calls a check at most twice a second; its error, or a dead worker, ends the build."""

    def __init__(self, end: Callable[[UserError], None]) -> None:
        """`end` is called once, by the watch's thread."""
        self._end, self._pause, self._called = end, 0.0, float("-inf")
        self._check: Callable[[], None] = lambda: None
        self._dead_worker: DeadWorkerError | None = None
        self._has_died = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._excepthook = threading.excepthook
        threading.excepthook = self._thread_failed
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        threading.excepthook = self._excepthook

    def follow(self, check: Callable[[], None], pause_seconds: float = 0.0) -> None:
        """Sets a quick check, called at most every `pause_seconds`; its UserError ends the build."""
        self._check, self._pause = check, pause_seconds

    def look(self) -> None:
        """Calls the check, unless that was a moment ago. Raises: UserError, DeadWorkerError."""
        if self._dead_worker is not None:
            raise self._dead_worker
        if time.monotonic() - self._called >= self._pause:
            self._called = time.monotonic()
            with suppress(OSError):  # the folder is gone: the build will notice
                self._check()

    def dead_worker(self, timeout_seconds: float) -> DeadWorkerError | None:
        """Waits for a worker's death at most so long: a job may fail before its worker's status is read."""
        self._has_died.wait(timeout_seconds)
        return self._dead_worker

    def _run(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            try:
                self.look()
            except UserError as error:
                self._end(error)
                return

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        if isinstance(failure.exc_value, DeadWorkerError):
            self._dead_worker = failure.exc_value
            self._has_died.set()
        else:
            self._excepthook(failure)
