"""Temporary files out of other users' reach.

TensorFlow's AutoGraph writes modules into the temporary folder and imports them, and Python loads their compiled form
from `__pycache__` there, whoever wrote it. So a building process keeps its temporary files, and its children's, in a
private subfolder: `recordmill-temp-…`, with mode 0700. The folder is locked while its process lives, and removed at its
end; the next process removes those left by killed ones.
"""

import atexit
import fcntl
import os
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from recordmill.pipeline.errors import UserError, check_utf8

PREFIX = "recordmill-temp-"
TMPDIR = "TMPDIR"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class _TemporaryFiles:
    """This process's place for temporary files, shared by all threads: `tempfile.tempdir` and the environment."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._mutex = threading.Lock()
        self._users, self._process = 0, 0
        self._usual: tuple[str | None, str | None] = None, None

    def begin(self) -> None:
        with self._mutex:
            if not self._users:
                self._usual = tempfile.tempdir, os.environ.get(TMPDIR)
                if self.folder is None or self._process != os.getpid() or not self.folder.is_dir():
                    self.folder, self._process = _new_folder(), os.getpid()
                tempfile.tempdir = os.environ[TMPDIR] = str(self.folder)
            self._users += 1

    def end(self) -> None:
        with self._mutex:
            self._users -= 1
            if not self._users:
                tempfile.tempdir, variable = self._usual
                os.environ.pop(TMPDIR, None)
                os.environ |= {} if variable is None else {TMPDIR: variable}

    def remove(self) -> None:
        if self.folder is not None and self._process == os.getpid():  # a fork's parent still needs it
            shutil.rmtree(self.folder, ignore_errors=True)


_files = _TemporaryFiles()
atexit.register(_files.remove)


@contextmanager
def private_temporary_files() -> Iterator[None]:
    """Puts temporary files of this process and its children into a private folder, until the block ends.

    The folder stays until the process ends: other threads and caches may have files in it.
    Raises: UserError: the folder cannot be made.
    """
    _files.begin()
    try:
        yield
    finally:
        _files.end()


def use_private_folder() -> None:
    """Uses the folder until the process ends. Raises: UserError: the folder cannot be made."""
    _files.begin()


def remove_private_folder() -> None:
    """Removes the folder: for a process that ends without Python's `atexit`."""
    _files.remove()


def end_by_signal(number: int, frame: FrameType | None) -> None:
    """Removes the folder, and ends the process by the signal's default action."""
    _files.remove()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def usual_folder() -> str:
    """Returns the folder for temporary files that outlive the process."""
    current = tempfile.gettempdir()
    return str(Path(current).parent) if current == str(_files.folder) else current


def _new_folder() -> Path:
    try:
        usual = check_utf8(tempfile.gettempdir())
        _remove_dead(Path(usual))
        while True:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=usual))  # its mode is 0700
            # The lock lasts until this process ends. Without locks in a file system, a killed process's folder stays.
            with suppress(OSError):
                fcntl.flock(os.open(folder, FOLDER), fcntl.LOCK_EX)
            if folder.is_dir():  # else another process removed it before the lock
                return folder
    except OSError as error:
        where = error.filename or "/tmp"  # noqa: S108 - named, not used
        raise UserError(f"cannot make a folder in {where} ({error.strerror}): free some space, or set TMPDIR") from None


def _remove_dead(usual: Path) -> None:
    """Removes the folders of killed processes; never another user's, never a link."""
    for folder in usual.glob(f"{PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(folder, FOLDER)
            try:
                status = os.fstat(descriptor)
                if (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), stat.S_IRWXU):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
