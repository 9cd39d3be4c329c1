"""Failures of the machine, never of a row: no memory, a library that is missing, a full disk.

It ends a build, which can go on later; the row that met it is no reject.

>>> is_machine_fault(MemoryError()), is_machine_fault(ValueError("damaged"))
(True, False)
"""

import errno

from recordmill.pipeline.errors import UserError

ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EIO,
        errno.ESTALE,
    }
)
"""A disk that is full or fails, too many open files, no memory."""


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
        return error.errno in ERRNOS
    return isinstance(error, MemoryError | ImportError)
