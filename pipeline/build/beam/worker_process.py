"""A worker process of the local runner: Beam's own, but it ends with its driver.

    exec python -P worker_process.py DRIVER

It runs as a file, with `-P`: modules in the current folder or in this one must not replace those of Python. DRIVER is
the number of the process that started it. On Linux the kernel kills it when the thread that started it ends; that
thread waits for it, and so ends with the driver alone. Elsewhere a worker may outlive a driver that was killed, and
then writes to paths that no longer exist (`pipeline.build.attempts`).
"""

import importlib
import os
import sys
from pathlib import Path


def main() -> None:
    """Works for the driver until the driver has no more work."""
    sys.path.append(str(Path(__file__).parents[4]))  # the folder of the package, if it is not installed
    importlib.import_module("recordmill.pipeline.build.runners.die_with_parent").die_with(int(sys.argv[1]))
    importlib.import_module("apache_beam.runners.worker.sdk_worker_main").main(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # TensorFlow may crash when an interpreter that used it ends, after all was done well


if __name__ == "__main__":
    main()
