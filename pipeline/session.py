"""A build at the command line: the screen, the noise, the signals and the words for what went wrong.

What TensorFlow, absl and Beam print goes to a log file, which is kept only where something unexpected happened.
"""

import os
import re
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from types import FrameType
from typing import NoReturn

import psutil
from rich.console import Console

from pipeline import storage
from pipeline.display import Display, print_published
from pipeline.errors import UserError
from pipeline.spec import Spec

TENSORFLOW = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",  # our own threads use the cores: pictures cost 8 % less CPU than with TensorFlow's
}
BEAMS_WORD = re.compile(r" \[while running '.*'\]$")
WORKERS_WORD = re.compile(r"^pipeline\.[\w.]*Error: (.*)")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class BuildSession:
    """Owns standard output and error while a build runs, and ends the process on Ctrl-C.

    A build may be killed at any moment without harm, so an interrupt does just that: the worker processes first.
    """

    def __init__(self, output: str, quiet: bool) -> None:
        self._output = output
        self._started = time.monotonic()
        self._screen = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
        self._console = Console(file=self._screen, highlight=False, emoji=False, quiet=quiet)
        self._display = Display(self._console)
        self._log = self._divert_noise()
        for number in SIGNALS:
            signal.signal(number, self._interrupt)

    def _divert_noise(self) -> str:
        for name, value in TENSORFLOW.items():
            os.environ.setdefault(name, value)  # worker processes inherit them
        sys.stdout.flush()
        descriptor, log = tempfile.mkstemp(prefix="recordmill-", suffix=".log")
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        return log

    def run(self, spec: Spec, runner: str, processes: int, beam_options: tuple[str, ...]) -> NoReturn:
        """Builds, shows how far it is, says what was published, and ends the process.

        The process is ended at once: the frameworks' own threads and atexit hooks take seconds, and have nothing to
        save.
        """
        try:
            with self._display:
                from pipeline.build import RunOptions, build  # Beam and TensorFlow: the display is up before they load

                options = RunOptions(runner, processes, beam_options)
                published = build(spec, self._output, options, self._display.start, ignore_signals)
        except UserError as error:
            self._end(1, str(error))
        except Exception as error:
            self._fail(error)
        print_published(self._console, published.folder, published.manifest, published.is_new, self._seconds())
        self._end(0)

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _fail(self, error: Exception) -> NoReturn:
        cause = find_cause(error)
        told = WORKERS_WORD.search(str(error).strip().splitlines()[-1]) if str(error).strip() else None
        if isinstance(cause, UserError):
            self._end(1, BEAMS_WORD.sub("", str(cause)))
        if told:  # of another process only the words come
            self._end(1, BEAMS_WORD.sub("", told[1]))
        with suppress(OSError):  # a full disk
            traceback.print_exc()  # into the log
            sys.stderr.flush()
        last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        if isinstance(cause, OSError) and cause.errno:
            last = [f"{os.strerror(cause.errno)}: {cause.filename or self._output}"]
        self._end(1, f"the build failed: {last[0][:300]}", f"nothing was published; the log is {self._log}", keep=True)

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        self._display.stop()
        kill_children()
        if self._display.folder is not None:
            storage.finish(str(self._display.folder))
        self._end(
            128 + number,
            "stopped: nothing was published, and what was live stays live. Run the same command to build again",
        )

    def _end(self, status: int, *lines: str, keep: bool = False) -> NoReturn:
        kill_children()
        for line in [line for message in lines for line in message.splitlines()]:
            print(f"recordmill: {line}", file=self._screen)
        self._screen.flush()
        if not keep:
            with suppress(OSError):
                os.remove(self._log)
        os._exit(status)


def ignore_signals() -> None:
    """Lets the publishing, which takes a moment, come to its end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def find_cause(error: BaseException) -> BaseException:
    """The first error of a chain: what Beam wraps."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def kill_children() -> None:
    """Ends all processes that this one started."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
