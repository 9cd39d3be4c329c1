"""The exit codes of the command, in one table: what a scheduler decides by."""

from collections.abc import Iterator
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of `recordmill`; `build` uses all of them, the other commands 0, 1, 2, 75 and 130."""

    PUBLISHED = 0
    ERROR = 1
    USAGE = 2
    UP_TO_DATE = 3
    GATE = 4
    REJECTS = 5
    TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h, which mail and batch systems repeat
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """The meaning, as the documentation shows it."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.PUBLISHED: "published: a new version is live, or an earlier one is live again; other commands: done",
    ExitCode.ERROR: "error: one line says what is wrong, and a person has to mend it; `verify`: the version is damaged",
    ExitCode.USAGE: "usage: an option or an argument is wrong, or an extra is not installed",
    ExitCode.UP_TO_DATE: (
        "up to date: nothing has changed, or the result equals the live version; nothing was published"
    ),
    ExitCode.GATE: (
        "gate: the new version differs too much from the live one and waits for `recordmill versions approve`"
    ),
    ExitCode.REJECTS: "rejects: more rows were rejected than the spec allows",
    ExitCode.TRY_AGAIN: (
        "try again: the inputs or the output changed meanwhile, the data of `--span` is not there yet, or a service "
        "did not answer; the same command may succeed"
    ),
    ExitCode.INTERRUPTED: "stopped by Ctrl-C (128 and SIGINT); the same command goes on",
    ExitCode.TERMINATED: "stopped by SIGTERM (128 and SIGTERM); the same command goes on",
}
TOO_MANY_REQUESTS, SERVER_ERROR = 429, 500
NO_ANSWER = {
    "ConnectionError",
    "ConnectTimeout",
    "HTTPClientError",
    "ReadTimeout",
    "RetryError",
    "TransportError",
    "gaierror",
}
"""The base classes of errors without an answer, in requests, botocore, google-api-core, google-auth and socket."""


def code_of(error: BaseException) -> ExitCode:
    """Returns the exit code that an exception ends the command with: its class's, or that of a service's failure."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    code = getattr(error, "exit_code", ExitCode.ERROR)
    causes = list(_causes(error))
    if code is ExitCode.ERROR and any(map(_is_temporary, causes)):
        return ExitCode.TRY_AGAIN
    return ExitCode(code)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those that it was raised from; Beam keeps those of several files in a dictionary."""
    while error is not None:
        yield error
        details = getattr(error, "exception_details", None)
        for inner in details.values() if isinstance(details, dict) else ():
            yield from _causes(inner if isinstance(inner, BaseException) else None)
        error = error.__cause__


def _is_temporary(error: BaseException) -> bool:
    """Whether a library says that a service did not answer or was too busy."""
    answer = getattr(error, "response", None)
    metadata = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}  # botocore's
    status = getattr(error, "code", None) or metadata.get("HTTPStatusCode")
    if isinstance(status, int) and (status == TOO_MANY_REQUESTS or status >= SERVER_ERROR):
        return True
    if isinstance(error, BrokenPipeError):  # of a worker process
        return False
    return isinstance(error, TimeoutError) or any(kind.__name__ in NO_ANSWER for kind in type(error).__mro__)
