"""Child processes that begin with Beam and TensorFlow loaded: importing both takes longer than a small build.

The server that they are forked from imports and does nothing else. It has one thread, because a fork copies
the half-done work of others (`test_forked.py`): TensorFlow starts threads at its first operation, and Arrow's jemalloc
starts none here. Where a test is about a process that begins from nothing (what it imports, prints or sets before
TensorFlow loads) it starts `python -m recordmill` itself.
"""

import multiprocessing
import os
import pty
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import BinaryIO

import psutil

from tests.needless import without_needless

CHILDREN = multiprocessing.get_context("forkserver")
PRELOADED = ["recordmill.pipeline.cli.session", "recordmill.pipeline.build.make_version", "keras", "tests.test_kills"]
CHILDREN.set_forkserver_preload(PRELOADED)
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # the server inherits it


def python(
    *command: str, cwd: Path, environment: dict[str, str] | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Runs what `python COMMAND` runs, a script or `-m` and a module, in a folder; captures what it prints.

    Raises:
        subprocess.TimeoutExpired: it has not ended after `timeout` seconds, and was killed.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        outputs = stdout.fileno(), stderr.fileno()
        child = start_python(*command, cwd=cwd, environment=environment, stdout=outputs[0], stderr=outputs[1])
        child.join(timeout)
        if child.exitcode is None:
            child.kill()
            raise subprocess.TimeoutExpired(command, timeout, _content(stdout), _content(stderr))
        return subprocess.CompletedProcess(
            command, child.exitcode, _content(stdout).decode(), _content(stderr).decode()
        )


def recordmill(
    *arguments: str, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command `recordmill` in a folder; captures what it prints."""
    return python("-m", "recordmill", *arguments, cwd=cwd, environment=environment)


def start_python(
    *command: str, cwd: Path, stdout: int, stderr: int, environment: dict[str, str] | None = None
) -> ForkServerProcess:
    """Starts what `python COMMAND` runs, with these file descriptors as standard output and error.

    `environment` is this process' by default.
    """
    given = dict(os.environ) if environment is None else environment
    outputs = [Connection(os.dup(descriptor), readable=False) for descriptor in (stdout, stderr)]  # these can be sent
    child = CHILDREN.Process(target=_run, args=(command, str(cwd), given, *outputs))
    child.start()
    for output in outputs:
        output.close()
    return child


def recordmill_in_terminal(
    *arguments: str, cwd: Path, environment: dict[str, str] | None = None
) -> tuple[int | None, str]:
    """Runs the command with both of its outputs on a terminal; gives its status and what the terminal got."""
    driver, terminal = pty.openpty()
    child = start_python(
        "-m", "recordmill", *arguments, cwd=cwd, environment=environment, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    seen = read_terminal(driver)
    child.join()
    return child.exitcode, seen


def read_terminal(driver: int) -> str:
    """Reads all that a terminal gets until the last process that has it open ends; closes it."""
    with os.fdopen(driver, "rb", buffering=0) as file:
        seen = b""
        with suppress(OSError):  # on Linux the end of a terminal is an error
            while more := file.read(65536):
                seen += more
    return seen.decode("utf-8", "surrogateescape")


def wait_until(happened: Callable[[], bool]) -> None:
    """Waits for what has to happen, however busy the machine; what never does meets the time limit of the test."""
    while not happened():
        time.sleep(0.02)


def wait_until_ended(processes: Iterable[psutil.Process]) -> None:
    """Waits until none of some processes runs; a zombie, which only its parent can remove, has ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)  # noqa: B023


def _run(
    command: tuple[str, ...], cwd: str, environment: dict[str, str], stdout: Connection, stderr: Connection
) -> None:
    for descriptor, output in ((1, stdout), (2, stderr)):
        os.dup2(output.fileno(), descriptor)
        output.close()  # or a terminal would stay open for as long as any process that is started here
    without_needless()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # as TMPDIR says now
    if command[0] == "-m":
        sys.path.insert(0, cwd)  # as `python -m` does
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(command[0]).parent))
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()
