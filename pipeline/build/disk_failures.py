"""Turns the error of a disk that is full, or that refuses to be written, into one line, however it comes wrapped."""

import errno
import os
import re

from recordmill.pipeline.errors import UserError

REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EROFS: "make it writable",
    errno.EACCES: "give the permission",
    errno.EPERM: "give the permission",
}


class DiskError(UserError):
    """A disk is full, or refuses; the message says where, and what to do."""


def disk_error(error: BaseException, folder: str) -> DiskError | None:
    """The error as one line for the user; None if no disk caused it.

    Args:
        error: the exception that a build raised.
        folder: the folder that was written, in case the error names no file.
    """
    chain = _chain(error)
    if any(isinstance(cause, UserError) for cause in chain):
        return None
    for cause in chain:
        for number, remedy in REMEDIES.items():
            if _is_failure(cause, number):
                path = _file(cause, number) or folder
                return DiskError(f"{os.strerror(number)}: {path}: {remedy}, then run the same command")
    return None


def _chain(error: BaseException) -> list[BaseException]:
    """An error and those that it was raised from, or while handling; the innermost first."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain[::-1]


def _is_failure(error: BaseException, number: int) -> bool:
    """Whether an error is a failure of this number.

    Not all have an attribute `errno`: Beam 2.77 brings only the text of another process' traceback, TensorFlow 2.21's
    `OpError` and Arrow's errors only the operating system's words, and `shutil.Error` a list of texts.
    """
    return getattr(error, "errno", None) == number or os.strerror(number) in str(error)


def _file(error: BaseException, number: int) -> str | None:
    """The file of a failure: an attribute, or of the texts that `_is_failure` reads, the quoted path."""
    if isinstance(error, OSError) and error.filename:
        return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    named = re.search(rf"{re.escape(os.strerror(number))}: (?:'[^'\n]+' -> )?'([^'\n]+)'", str(error))
    return named[1] if named else None
