"""The base of all errors that are told to the user as they are, one clear line, no traceback; and a word they share."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something that the user can mend; the message says what, where and what to do next."""


def did_you_mean(name: str, known: Iterable[str], form: str = "`{}`") -> str:
    """The end of a message about an unknown name: `; did you mean `x`?`, or nothing where no known name is near.

    >>> did_you_mean("vocabulry", ["kind", "vocabulary"])
    '; did you mean `vocabulary`?'
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {form.format(close[0])}?" if close else ""
