"""What a disk that is full, or that refuses to be written, raises: told as one line, however it comes wrapped.

Beam wraps errors of its workers, of other processes only their words come; TensorFlow and Arrow have types of their
own. So the words of the operating system are looked for too.
"""

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
    """The error as one line for the user; None where a disk has no part in it.

    Args:
        error: what a build raised.
        folder: what was written, where the error names no file.
    """
    chain = _chain(error)
    if any(isinstance(cause, UserError) for cause in chain):
        return None
    for cause in chain:
        for number, remedy in REMEDIES.items():
            if _is_one(cause, number):
                place = _file(cause, number) or folder
                return DiskError(f"{os.strerror(number)}: {place}: {remedy}, then run the same command")
    return None


def _chain(error: BaseException) -> list[BaseException]:
    """The innermost error first: what it was raised from, or while."""
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or one.__context__
    return chain[::-1]


def _is_one(error: BaseException, number: int) -> bool:
    return getattr(error, "errno", None) == number or os.strerror(number) in str(error)


def _file(error: BaseException, number: int) -> str | None:
    if isinstance(error, OSError) and error.filename:
        return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    named = re.search(rf"{re.escape(os.strerror(number))}: (?:'[^'\n]+' -> )?'([^'\n]+)'", str(error))
    return named[1] if named else None
