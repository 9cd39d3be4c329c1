"""A build at the command line: its screen, signals and error messages.

The output of TensorFlow, absl and Beam goes to a file without a name. After an unexpected error a log holds the frames
and the exceptions' types (`cli.safe_tracebacks`), but no messages, which may hold values of rows.
"""

import gc
import os
import signal
import sys
import tempfile
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import psutil

from recordmill.pipeline.build.entry import build
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.build.watchdog import Watch
from recordmill.pipeline.cli.display import Display, print_published
from recordmill.pipeline.cli.safe_tracebacks import frames_of, summary_of, without_values
from recordmill.pipeline.cli.screen import Screen
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.terminal_text import say

if TYPE_CHECKING:
    from recordmill.pipeline.build.context.build_context import PlannedBuild
    from recordmill.pipeline.build.plan import BuildPlan

TENSORFLOW = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",  # our own threads use the cores: images cost 8 % less CPU than with TensorFlow's
    "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN's allocator keeps the memory of the largest image
}
SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING_KEPT = "nothing was published, and nothing was finished yet: the same command begins anew"
DEATH_SECONDS = 1.0  # after a failure, the time in which the status of a worker that died is read
GARBAGE = (20_000, 20, 20)  # Python's 700 objects, or 2,000 later, are few beside those of a graph
NOISE_BYTES = 16 << 20  # 16 MiB: the end of the output, which is searched for tracebacks


class BuildSession:
    """Owns standard output and error while a build runs, and ends the process on Ctrl-C.

    A build may be killed at any moment without harm, so an interrupt does just that: the worker processes first.
    """

    def __init__(self, output: str, quiet: bool) -> None:
        self._output = output
        self._started = time.monotonic()
        self._screen = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
        self._console = Screen(file=self._screen, quiet=quiet)
        self._display = Display(self._console)
        self._watch = Watch(lambda error: self._end(1, str(error), *(self._kept() or [NOTHING_KEPT])))
        self._processes = 1
        self._publishing = False
        self._ending = threading.Lock()
        self._noise = self._divert_noise()
        for number in SIGNALS:
            signal.signal(number, self._interrupt)

    def _divert_noise(self) -> int:
        for name, value in TENSORFLOW.items():
            os.environ.setdefault(name, value)  # worker processes inherit them
        sys.stdout.flush()
        descriptor, name = tempfile.mkstemp(prefix="recordmill-")
        os.remove(name)  # the output of frameworks may hold values of rows and secrets
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        return descriptor

    def run(self, spec: Spec, options: RunOptions) -> NoReturn:
        """Builds, shows the progress, reports what was published, and ends the process.

        The process is ended at once: the frameworks' own threads and atexit hooks take seconds, and have nothing to
        save.
        """
        self._processes = options.processes
        gc.disable()  # to look for garbage among TensorFlow's modules while they load takes a sixth of a small build
        with self._watch:
            try:
                with self._display:
                    listener = Listener(self._begin, self._display.note, self._publish, self._display.show_stage)
                    published = build(spec, self._output, options, listener)
            except UserError as error:
                self._end(1, str(error), *self._kept())
            except Exception as error:
                self._fail(error)
            print_published(self._console, published.folder, published.manifest, published.is_new, self._seconds())
            self._end(0)

    def _begin(self, plan: "BuildPlan", work: "PlannedBuild") -> None:
        from recordmill.pipeline.build.reject_limits import RejectLimits

        gc.freeze()  # the modules
        gc.set_threshold(*GARBAGE)
        gc.enable()
        self._display.start(plan, work.folder)
        self._watch.add(RejectLimits(plan, work))

    def _publish(self) -> None:
        self._publishing = True

    def _kept(self) -> list[str]:
        """Says that finished work is kept, if the build had begun."""
        if self._display.folder is None or not self._display.folder.exists():
            return []
        return [
            "nothing was published; the finished work is kept, and the same command goes on where it stopped "
            f"(`recordmill prune {self._output}` removes it)"
        ]

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _fail(self, error: Exception) -> NoReturn:
        cause: BaseException = error
        while cause.__cause__ is not None:  # Beam wraps errors
            cause = cause.__cause__
        if isinstance(cause, UserError):
            self._end(1, str(cause), *self._kept())
        if self._processes > 1 and (dead := self._watch.dead_worker(DEATH_SECONDS)) is not None:
            self._end(1, str(dead), *(self._kept() or [NOTHING_KEPT]))
        message = summary_of(error)
        if isinstance(cause, OSError) and cause.errno:
            message = f"{os.strerror(cause.errno)}: {cause.filename or self._output}"
        if isinstance(cause, MemoryError):
            message = "memory ran out: use a larger machine, or fewer --processes"
        kept = self._kept() or ["nothing was published"]
        self._end(1, f"the build failed: {message}", *kept, *self._write_log(error))

    def _write_log(self, error: Exception) -> list[str]:
        """Writes a log of the frames without values, readable by the user alone; returns the line that names it."""
        noise = os.pread(self._noise, NOISE_BYTES, max(0, os.fstat(self._noise).st_size - NOISE_BYTES))
        try:
            descriptor, log = tempfile.mkstemp(prefix="recordmill-", suffix=".log")  # its mode is 0600
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(without_values(noise.decode(errors="replace")) + frames_of(error))
        except OSError:  # a full disk
            return []
        return [f"the log is {log}"]

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        stays = "nothing was published, and what was live stays live"
        if self._publishing:
            stays = "what was live stays live, or the new version is"
        kept = f"go on: the finished work is kept (`recordmill prune {self._output}` removes it)"
        self._end(128 + number, f"stopped: {stays}. Run the same command to {kept if self._kept() else 'build again'}")

    def _end(self, status: int, *lines: str) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # one message is enough
        self._ending.acquire()  # held for good: the watch may be ending the process too
        self._display.stop()
        kill_children()
        for message in lines:
            say(message, self._screen)
        self._screen.flush()
        os._exit(status)


def kill_children() -> None:
    """Kills all processes that this one started."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
