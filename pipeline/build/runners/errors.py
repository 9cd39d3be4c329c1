"""The errors of runners that a user can fix before a job begins."""

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode


class RunnerError(UserError):
    """A runner that does not exist, that these options make unsafe, or that cannot be used as it is."""


class DryRunFinished(UserError):  # noqa: N818 - no error
    """A dry run made a job's graph and sent nothing: the end that was asked for; the message describes the job."""

    exit_code = ExitCode.PUBLISHED
