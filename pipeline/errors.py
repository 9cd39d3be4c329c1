"""The base of all errors that are told to the user as they are, one clear line, no traceback; and a word they share."""

import difflib
from collections.abc import Iterable

from recordmill.pipeline.redaction import redacted


class UserError(Exception):
    """Something that the user can mend; the message says what, where and what to do next.

    URLs in it are told without passwords and queries, and no value of a row is in it: it may be logged anywhere.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(redacted(str(message)))


class DatasetError(UserError, ValueError):
    """A dataset cannot be read as it was asked for; the message is one clear line for the user."""


class WrongValueError(ValueError):
    """An option that contradicts another one; `path` leads from the place of the check to the option."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = path


def did_you_mean(name: str, known: Iterable[str], form: str = "`{}`") -> str:
    """The end of a message about an unknown name: `; did you mean `x`?`, or nothing where no known name is near.

    >>> did_you_mean("vocabulry", ["kind", "vocabulary"])
    '; did you mean `vocabulary`?'
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {form.format(close[0])}?" if close else ""
