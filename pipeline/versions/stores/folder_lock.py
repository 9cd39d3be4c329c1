"""The lock of an output's folder: a file `.lock` in it, taken with flock.

The holder removes the file at the end; a waiting process then locks a removed file, notices it and retries. The kernel
releases a killed process's lock. Anybody able to open a file, even only for reading, can lock it: so only users with
write access to the folder may open this one.
"""

import logging
import os
import pwd
import stat
import time
from contextlib import suppress
from pathlib import Path

from recordmill.pipeline import parallel
from recordmill.pipeline.dataset.paths import has_one_name
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.versions.stores.base import OutputError, UnsettledOutputError

LOG = logging.getLogger("recordmill")
LOCK_FILE = ".lock"
PATIENCE_SECONDS = 300.0  # until the wait is an error: a lock is held only for a few writes
NOTE_SECONDS = 5.0  # until the wait is reported
OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH  # other users' access to a file
LOCKS = Path("/proc/locks")  # Linux


def take_lock(folder: Path) -> int:
    """Waits for the lock of a folder; returns its descriptor.

    Raises: UnsettledOutputError: another process does not release it. OutputError: the file is another user's and too
    widely accessible, or a pipe, or has a second name. OSError: the folder cannot be written.
    """
    path, began, is_noted = folder / LOCK_FILE, time.monotonic(), False
    while (descriptor := _try(path)) is None:
        waited = time.monotonic() - began
        if waited >= PATIENCE_SECONDS:
            held = f"{_holder(path)} has held {path} for {waited:,.0f} seconds"
            raise UnsettledOutputError(f"{held}: end it if it hangs or is not a build, and run the same command again")
        if waited >= NOTE_SECONDS and not is_noted:
            LOG.warning(printable(f"waiting for {path}, held by {_holder(path)}"))
            is_noted = True
        time.sleep(min(0.5, max(0.01, waited / 4)))
    return descriptor


def _try(path: Path) -> int | None:
    """Takes the lock; returns None if another process holds it."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR)
    except PermissionError:
        if not os.access(path.parent, os.W_OK):
            raise
        return None  # held by a user without a shared group, such as root
    try:
        _restrict(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return parallel.take_lock(descriptor, path)


def _restrict(descriptor: int, path: Path) -> None:
    """Restricts the lock file to users with write access to the folder; an earlier release let all readers open it.

    Raises: OutputError: it is another user's and too widely accessible; or has a second name.
    """
    file, folder = os.fstat(descriptor), os.stat(path.parent)
    if not has_one_name(file):
        raise OutputError(f"{path} is a pipe, a device, or has a second name elsewhere: remove it")
    writers = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    mode = stat.S_IRUSR | stat.S_IWUSR | writers | writers << 1  # to read as well
    try:
        if writers and file.st_gid != folder.st_gid:
            os.fchown(descriptor, -1, folder.st_gid)
        if stat.S_IMODE(file.st_mode) != mode:
            os.fchmod(descriptor, mode)
    except OSError:  # another user's file, or a file system with fixed modes
        if file.st_uid != os.geteuid() and file.st_mode & OTHERS & ~mode:
            raise OutputError(f"{path} is {_user(file.st_uid)}'s, and readers could lock it: remove it") from None


def _holder(path: Path) -> str:
    """Names the lock's holder if it is a process on this host."""
    with suppress(OSError, ValueError):
        status = os.stat(path)
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for _, kind, *fields in map(str.split, LOCKS.read_text("ascii").splitlines()):
            if kind == "FLOCK" and fields[3] == place and int(fields[2]) > 0:
                process = int(fields[2])
                return f"process {process} of {_user(os.stat(f'/proc/{process}').st_uid)}"
    return "an unknown process"


def _user(number: int) -> str:
    with suppress(KeyError):
        return f"user {pwd.getpwuid(number).pw_name}"
    return f"user {number}"
