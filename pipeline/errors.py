"""The base of all errors that are shown to the user as one clear line, without a traceback."""

import difflib
from collections.abc import Collection, Iterable
from itertools import islice
from typing import ClassVar

from recordmill.pipeline.exit_codes import ExitCode
from recordmill.pipeline.safe_text import cut

MOST_MESSAGE = 10_000
"""Characters of a message: a hundred lines on a spec; a manifest may hold a name of a million."""
LONGEST_NEAR = 64  # characters: to compare two names costs the square of that
MOST_NEAR = 1_000  # names that are compared
SHOWN_NAMES = 20


class UserError(Exception):
    """An error that the user can fix; the message says what, where and what to do next.

    It may be logged anywhere: URLs in it have no passwords and queries, it holds no value of a row, and of a message
    that is too long for a screen the middle is left out.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.ERROR
    """The status that the command ends with."""

    def __init__(self, message: object = "") -> None:
        super().__init__(cut(message, MOST_MESSAGE))


class DatasetError(UserError, ValueError):
    """A dataset cannot be read as requested."""


class WrongValueError(ValueError):
    """An option that contradicts another one; `path` leads from the place of the check to the option."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = path


def did_you_mean(name: str, known: Iterable[str], form: str = "`{}`") -> str:
    """Ends a message about an unknown name with `; did you mean `x`?`, or with nothing if no known name is close.

    Only the first 1,000 known names of at most 64 characters are compared.

    >>> did_you_mean("vocabulry", ["kind", "vocabulary"])
    '; did you mean `vocabulary`?'
    """
    if len(name) > LONGEST_NEAR:
        return ""
    short = (other for other in known if len(other) <= LONGEST_NEAR)
    close = difflib.get_close_matches(name, list(islice(short, MOST_NEAR)), n=1)
    return f"; did you mean {form.format(close[0])}?" if close else ""


def listed(names: Collection[str], most: int = SHOWN_NAMES) -> str:
    """Lists the first few of some names for a message, each cut.

    >>> listed(["train", "test", "validation"], 2)
    'train, test and 1 more'
    """
    shown = [name if name.isprintable() else ascii(name) for name in map(cut, islice(names, most))]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return (", ".join(shown) or "none") + more
