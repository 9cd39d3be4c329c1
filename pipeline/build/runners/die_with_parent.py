"""Becomes another program that the kernel kills when the process that started it ends.

    python -I die_with_parent.py PARENT COMMAND...

PARENT is the number of the process that starts it. On Linux the kernel kills the program when the thread that started
it ends. Elsewhere it may outlive a parent that was killed.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with(parent: int) -> None:
    """Asks the kernel to kill this process when its parent dies; ends it at once if the parent is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the caller's own command
