"""A worker process of the local runner: Beam's own, but it ends with its driver.

    exec python -P worker_process.py DRIVER

It is run as a file, with `-P`: neither the current folder nor this one, whose `statistics.py` is ours, may stand in for
modules of Python's. DRIVER is the number of the process that started it. On Linux the kernel kills it when the thread
that started it ends, which waits for it and so ends with the driver alone. Elsewhere a worker may outlive a driver that
was killed; what it writes then goes nowhere (`pipeline.build.attempts`).
"""

import ctypes
import importlib
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with(driver: int) -> None:
    """Asks the kernel to kill this process when its parent dies; ends it at once where that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != driver:
        os._exit(1)


def main() -> None:
    """Works for the driver until it has no more to do."""
    die_with(int(sys.argv[1]))
    sys.path.append(str(Path(__file__).parents[1]))  # our packages, where they are not installed
    importlib.import_module("apache_beam.runners.worker.sdk_worker_main").main(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # TensorFlow may crash when an interpreter that used it ends, after all was done well


if __name__ == "__main__":
    main()
