"""Failures of the machine, and files that are absent.

No memory, a missing library, a full disk or a lost connection ends a build, which can go on later; the row that met it
is no reject. A file that is not there, or must not be read, is one.

>>> is_machine_fault(MemoryError()), is_machine_fault(ValueError("damaged"))
(True, False)
"""

import errno
import os

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.globs import escape

MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO,
    errno.ESTALE,
}  # fmt: skip
"""A disk that is full or fails, too many open files, no memory."""
ABSENT = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG
}  # fmt: skip
"""Errors of one file."""


class OutOfMemoryError(UserError):
    """Raised where memory is short although nothing else was under way; the message says for what."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"memory was not enough to {what}, even with nothing else under way in the process, and no row is rejected "
            "for that: use a machine with more memory, fewer --processes, or a smaller `max_pixels` of the images"
        )


def is_machine_fault(error: BaseException) -> bool:
    """Whether an error says nothing of the data that was at work."""
    if isinstance(error, OSError):
        return error.errno in MACHINE
    return isinstance(error, MemoryError | ImportError)


def why_absent(error: OSError, full: str, files: Files) -> str | None:
    """Says why a file could not be read, if it is the file; `full` is its path. None if it is the machine."""
    if error.errno in ABSENT:
        return os.strerror(error.errno or 0)
    if error.errno is None and not files.match(escape(full)):  # of a URL
        return os.strerror(errno.ENOENT)
    return None
