"""Why a file cannot be read: it is not there, which is a reject, or the machine or the network fails, which is none."""

import errno
import os

from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.globs import escape

MISSING = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG
}  # fmt: skip
"""What is wrong with one file; any other error, such as a lost connection, is wrong with the machine, and no reject."""


def why_absent(error: OSError, full: str, files: Files) -> str | None:
    """Says why a file could not be read, if it is the file; `full` is its path. None if it is the machine."""
    if error.errno in MISSING:
        return os.strerror(error.errno or 0)
    if error.errno is None and not files.match(escape(full)):  # of a URL
        return os.strerror(errno.ENOENT)
    return None
