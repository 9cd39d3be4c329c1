"""Files that cannot be read: a file that is not there is a reject, a machine or a network that fails ends the build."""

import errno
import os

from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.globs import escape

MISSING = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG
}  # fmt: skip
"""Errors of one file; any other error, such as a lost connection, is the machine's, and no reject."""


def why_absent(error: OSError, full: str, files: Files) -> str | None:
    """Says why a file could not be read, if it is the file; `full` is its path. None if it is the machine."""
    if error.errno in MISSING:
        return os.strerror(error.errno or 0)
    if error.errno is None and not files.match(escape(full)):  # of a URL
        return os.strerror(errno.ENOENT)
    return None
