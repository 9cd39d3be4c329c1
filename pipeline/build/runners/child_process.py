"""A child process that ends with its parent: Beam's worker, or any other program.

    python -P child_process.py PARENT                   # becomes Beam's worker, of the variables that it reads as JSON
    python -I child_process.py PARENT COMMAND...        # becomes another program

It runs as a file, with `-P` or `-I`, to keep modules in the current folder or in this one from shadowing Python's.
PARENT is the starting process's number. On Linux the kernel kills the child when the thread that started it ends.
"""

import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
STOP_SECONDS = 5.0


_waiting = list["subprocess.Popen[bytes]"]()


@contextmanager
def waiting_workers(count: int) -> Iterator[None]:
    """Starts workers that load Beam and TensorFlow beside this process; ends those that no job took in the block."""
    _waiting.extend([_start() for _ in range(count)])
    try:
        yield
    finally:
        end(_waiting)
        _waiting.clear()


def start_worker() -> "subprocess.Popen[bytes]":
    """Returns a waiting worker, or a new one; it begins when its variables are written to it."""
    return _waiting.pop() if _waiting else _start()


def _start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-P", __file__, str(os.getpid())], stdin=subprocess.PIPE)  # noqa: S603


def end(children: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Terminates children; kills those still running after `STOP_SECONDS`."""
    for child in children:
        child.terminate()
    until = time.monotonic() + STOP_SECONDS
    while any(child.poll() is None for child in children) and time.monotonic() < until:
        time.sleep(0.05)
    for child in children:
        child.kill()
        child.wait()


if __name__ == "__main__":
    if sys.platform == "linux":  # the kernel kills this process when its parent dies
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it is dead already
        os._exit(1)
    if sys.argv[2:]:
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the caller's own command
    sys.path.append(str(Path(__file__).parents[4]))  # the package's folder, if it is not installed
    gc.disable()  # while modules load
    worker = importlib.import_module("apache_beam.runners.worker.sdk_worker_main")
    importlib.import_module("tensorflow_transform.beam")
    gc.freeze()
    gc.enable()
    if not (variables := sys.stdin.read()):  # no job needs it
        os._exit(0)
    os.environ |= json.loads(variables)
    from recordmill.pipeline.build.runners.worker_environment import limit_arenas

    limit_arenas()
    worker.main(sys.argv)  # until the job ends
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # TensorFlow may crash at interpreter exit, after a successful job
