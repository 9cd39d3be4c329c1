"""Errors shown to the user without a traceback, and exit codes for schedulers."""

import difflib
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from itertools import islice
from typing import Any, ClassVar

from recordmill.pipeline.safe_text import cut

MOST_MESSAGE = 10_000
"""Characters of a message: a hundred lines on a spec; a hostile manifest may hold a name of a million."""
LONGEST_NEAR = 64  # characters: the comparison of two names is quadratic
MOST_NEAR = 1_000  # names compared
SHOWN_NAMES = 20


class ExitCode(IntEnum):
    """The exit status of `recordmill`; `build` uses all of them, `plan` also 5, other commands 0, 1, 2, 75, 130."""

    meaning: str  # as the documentation shows it

    def __new__(cls, value: int, meaning: str = "") -> "ExitCode":
        """Makes a code with its meaning."""
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code

    PUBLISHED = 0, "published: a new version is live, or an earlier one is live again; other commands: done"
    ERROR = 1, "error: one line says what is wrong, and a person has to fix it; `verify`: the version is damaged"
    USAGE = 2, "usage: an option or an argument is wrong, or an extra is not installed"
    UP_TO_DATE = 3, "up to date: nothing has changed, or the result equals the live version; nothing was published"
    GATE = 4, "gate: the new version differs too much from the live one and waits for `recordmill versions approve`"
    REJECTS = 5, "rejects: more rows were rejected than the spec allows"
    TRY_AGAIN = (  # EX_TEMPFAIL of sysexits.h: mail and batch systems retry
        75,
        "try again: the inputs or the output changed meanwhile, the data of `--span` is not there yet, credentials "
        "have expired, or a service did not answer; the same command may succeed",
    )
    INTERRUPTED = 130, "stopped by Ctrl-C (128 and SIGINT); the same command goes on"
    TERMINATED = 143, "stopped by SIGTERM (128 and SIGTERM); the same command goes on"


class UserError(Exception):
    """An error that the user can fix; the message names the problem, the place and the remedy.

    The message is safe to log: URLs lose passwords and queries, a long text its middle, and row values are absent.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.ERROR  # the command's exit status

    def __init__(self, message: object = "") -> None:
        super().__init__(cut(message, MOST_MESSAGE))


class DatasetError(UserError, ValueError):
    """A dataset cannot be read as requested."""


class WrongValueError(ValueError):
    """An option contradicts another one; `path` leads from the place of the check to the option."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = path


def check_utf8(path: str) -> str:
    """Returns a path to write into. Raises: UserError: its name is not UTF-8, and libraries refuse it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UserError(f"the name of {path!r} is not UTF-8, and nothing can be written into it: rename it") from None
    return path


def did_you_mean(name: str, known: Iterable[str], form: str = "`{}`") -> str:
    """Returns `; did you mean `x`?` for an unknown name, or "" if none of the first 1,000 known names is close."""
    if len(name) > LONGEST_NEAR:
        return ""
    short = (other for other in known if len(other) <= LONGEST_NEAR)
    close = difflib.get_close_matches(name, list(islice(short, MOST_NEAR)), n=1)
    return f"; did you mean {form.format(close[0])}?" if close else ""


def listed(names: Collection[str], most: int = SHOWN_NAMES) -> str:
    """Lists the first names for a message, each cut: `train, test and 1 more`."""
    shown = [name if name.isprintable() else ascii(name) for name in map(cut, islice(names, most))]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return (", ".join(shown) or "none") + more


UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY_REQUESTS, SERVER_ERROR = 401, 403, 404, 429, 500
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
"""S3's and STS's codes for renewable credentials; GCS answers 401."""
NO_ANSWER = frozenset(
    """ConnectionError ConnectTimeout CredentialRetrievalError HTTPClientError ReadTimeout
    RefreshError RetryError SSOError TransportError gaierror""".split()
)
"""Base classes of errors without an answer or a new token: requests, botocore, google-api-core, google-auth, socket."""


def code_of(error: BaseException) -> ExitCode:
    """Returns an exception's exit code: its class's, or that of a service's failure."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    code = getattr(error, "exit_code", ExitCode.ERROR)
    if code is ExitCode.ERROR and any(map(_is_temporary, _causes(error))):
        return ExitCode.TRY_AGAIN
    return ExitCode(code)


def status_of(error: BaseException) -> int | None:
    """Returns the HTTP status that led to an error; None without an answer."""
    return next((status for cause in _causes(error) if (status := _status(cause)) is not None), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and its causes; Beam keeps those of several files in a dictionary."""
    while error is not None:
        yield error
        details = getattr(error, "exception_details", None)
        for inner in details.values() if isinstance(details, dict) else ():
            yield from _causes(inner if isinstance(inner, BaseException) else None)
        error = error.__cause__


def _is_temporary(error: BaseException) -> bool:
    """Whether a service did not answer, was too busy, or needs new credentials."""
    if _answer(error).get("Error", {}).get("Code") in EXPIRED:
        return True
    status = _status(error)
    if status is not None and (status in (UNAUTHORIZED, TOO_MANY_REQUESTS) or status >= SERVER_ERROR):
        return True
    if isinstance(error, BrokenPipeError):  # of a worker process
        return False
    return isinstance(error, TimeoutError) or any(kind.__name__ in NO_ANSWER for kind in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    status = getattr(error, "code", None) or _answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def _answer(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}
