"""The base of all errors that are shown to the user as one clear line, without a traceback."""

import difflib
from collections.abc import Iterable
from typing import ClassVar

from recordmill.pipeline.exit_codes import ExitCode
from recordmill.pipeline.redaction import redacted


class UserError(Exception):
    """An error that the user can fix; the message says what, where and what to do next.

    It may be logged anywhere: URLs in it have no passwords and queries, and it holds no value of a row.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.ERROR
    """The status that the command ends with."""

    def __init__(self, message: object = "") -> None:
        super().__init__(redacted(str(message)))


class DatasetError(UserError, ValueError):
    """A dataset cannot be read as requested."""


class WrongValueError(ValueError):
    """An option that contradicts another one; `path` leads from the place of the check to the option."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = path


def did_you_mean(name: str, known: Iterable[str], form: str = "`{}`") -> str:
    """Ends a message about an unknown name with `; did you mean `x`?`, or with nothing if no known name is close.

    >>> did_you_mean("vocabulry", ["kind", "vocabulary"])
    '; did you mean `vocabulary`?'
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {form.format(close[0])}?" if close else ""
