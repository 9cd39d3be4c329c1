"""A build on the command line: screen, signals and error messages.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import psutil
from rich.filesize import decimal

import recordmill
from recordmill.pipeline.build.context.reports import DeadWorkerError
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.build.runners.job import DryRunFinished
from recordmill.pipeline.build.runners.worker_environment import set_tensorflow_variables
from recordmill.pipeline.cli.display import Display
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


SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING_KEPT = "nothing was published, and nothing was finished yet: the same command starts over"
DEATH_SECONDS = 1.0  # how long to wait for a dead worker's status after a failure
GARBAGE = (20_000, 20, 20)  # Python's 700 or 2,000 objects are few compared to a graph
MOST_BYTES = 256 << 20  # 256 MiB: half a second of CPU for records of 2 kB
MOST_REMOTE_BYTES = 16 << 20  # 16 MiB to fetch
LOOK_SECONDS = 0.5  # between two looks at the limits on rejects
NOISE_BYTES = 16 << 20  # 16 MiB at the end of the output to search for tracebacks


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
        self._noise = self._divert_noise()
        for number in SIGNALS:
            signal.signal(number, self._interrupt)

    def _divert_noise(self) -> int:
        set_tensorflow_variables()  # inherited by worker processes, like the temporary folder
        use_private_folder()
        sys.stdout.flush()
        descriptor, name = tempfile.mkstemp(prefix="recordmill-")
        os.remove(name)  # frameworks may print values of rows and secrets
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        return descriptor

    def run(self, spec: str, options: RunOptions) -> NoReturn:
        """Reads a spec, builds, shows progress and result, and exits without the frameworks' slow atexit hooks."""
        self._processes, self._folder = options.processes, options.work
        gc.disable()  # garbage collection while TensorFlow loads takes a sixth of a small build
        with self._watch:
            try:
                with self._display:
                    published = self._build(spec, options)
            except DryRunFinished as end:
                self._end(code_of(end), str(end))
            except UserError as error:
                self._end(code_of(error), str(error), *getattr(error, "__notes__", ()), *self._kept())
            except Exception as error:
                self._fail(error)
            self._print(published)

    def _print(self, published: "recordmill.Published") -> NoReturn:
        """Prints the published version and its changes, or why it is held back, and exits."""
        if not published.breaches:
            print_published(self._console, published, time.monotonic() - self._started)
        if not self._console.quiet:
            for line in change_lines(self._output, published):
                self._console.print(f"  {line}", soft_wrap=True)
        reasons = [published.reason(self._output)] if published.breaches else []
        self._end(published.exit_code, *reasons, published=published)

    def _build(self, spec: str, options: RunOptions) -> "recordmill.Published":
        """Builds; the imports take half a second, while the screen shows the first line."""
        from recordmill.pipeline.build.build import run
        from recordmill.pipeline.build.journal import Journal

        self._journal = Journal(self._output, options)
        shown = self._display
        listener = Listener(self._begin, shown.note, self._publish, shown.show_stage, shown.show_job)
        parsed = recordmill.load_spec(spec)
        return run(parsed, self._output, options, self._journal.follow(listener, parsed.name), alone=True)

    def _begin(self, plan: "BuildPlan", work: "PlannedBuild") -> None:
        from recordmill.pipeline.build.attempt.failures import RejectLimits

        gc.freeze()  # the modules
        gc.set_threshold(*GARBAGE)
        gc.enable()
        self._work = work
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
        self._end(code_of(error), f"the build failed: {message}", *kept, *self._write_log(error))

    def _write_log(self, error: Exception) -> list[str]:
        """Writes a log of frames without values, readable only by the user; returns a line with its path."""
        noise = os.pread(self._noise, NOISE_BYTES, max(0, os.fstat(self._noise).st_size - NOISE_BYTES))
        try:
            descriptor, log = tempfile.mkstemp(".log", "recordmill-", usual_folder())  # its mode is 0600
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(without_values(noise.decode(errors="replace")) + frames_of(error))
        except OSError:  # a full disk
            return []
        return [f"the log is {log}"]

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
        for message in (*lines, *self._cancel_job()):
            self._say(message)
        for warning in self._journal.end(status, next(iter(lines), None), published) if self._journal else []:
            self._say(warning)
        remove_private_folder()
        os._exit(0 if status is ExitCode.UP_TO_DATE and self._up_to_date_ok else status)

    def _say(self, line: str) -> None:
        with suppress(OSError):
            say(line, self._screen)
            self._screen.flush()

    def _cancel_job(self) -> list[str]:
        """Cancels the job on a cluster, after its submitters are dead; returns a line if that fails."""
        job = self._display.job
        if job is None:
            return []
        try:
            self._say("cancelling the job on the cluster")
            job.cancel()
        except UserError as error:
            return [str(error)]
        return []


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
    from recordmill.pipeline.compare.diff import diff
    from recordmill.pipeline.compare.rows import bytes_to_read

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
