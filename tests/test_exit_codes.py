"""The exit codes of the command: one table, in the code and in the docs; each is seen through the command line.

0 and 2 are in `test_command_line.py` too, 130 and 143 there alone; 5 also in `test_build_again.py`.
"""

import socket
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, UnauthorizedSSOTokenError
from google.api_core.exceptions import Forbidden, ServiceUnavailable, Unauthorized
from google.auth.exceptions import RefreshError

from recordmill.pipeline.build.runners.flink_job import NoFlinkAnswerError
from recordmill.pipeline.build.runners.job import JobFailedError
from recordmill.pipeline.errors import ExitCode, UserError, code_of
from tests.test_import_tiers import ROOT
from tests.test_quick_answers import COMMAND, ROWS, SPEC, build

RAISED = """
from recordmill.pipeline.build import build
from {module} import {name}

def fail(*_, **__):
    raise {name}("as the test says")

build.run = fail
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dataset.yaml").write_text(SPEC)
    (tmp_path / "rows.jsonl").write_text(ROWS)
    return tmp_path


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("recordmill.pipeline.errors.UserError", 1),
        ("recordmill.pipeline.build.attempt.failures.DiskError", 1),
        ("recordmill.pipeline.build.attempt.failures.TooManyRejectsError", 5),
        ("recordmill.pipeline.build.plan.under_way.InputsChangedError", 75),
        ("recordmill.pipeline.versions.leases.LeaseLostError", 75),
        ("recordmill.pipeline.versions.stores.base.UnsettledOutputError", 75),
        ("builtins.TimeoutError", 75),
        ("builtins.ZeroDivisionError", 1),
    ],
)
def test_an_error_ends_the_command_with_its_code(folder: Path, error: str, code: int) -> None:
    module, _, name = error.rpartition(".")
    status, printed = build(folder, RAISED.format(module=module, name=name) + COMMAND)
    assert (status, "recordmill: " in printed) == (code, True), printed


@pytest.mark.parametrize("error", [JobFailedError, NoFlinkAnswerError])
def test_a_cluster_that_failed_is_worth_another_try(error: type[UserError]) -> None:
    assert code_of(error()) is ExitCode.TRY_AGAIN


def test_the_docs_hold_the_table() -> None:
    rows = [f"| {code.value} | {code.meaning} |" for code in ExitCode]
    docs = (ROOT / "docs/builds.md").read_text()
    assert "\n".join(rows) in docs


def from_s3(code: str, status: int) -> ClientError:
    parsed: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(parsed, "GetObject")


def raised_from(cause: Exception) -> UserError:
    error = UserError("the output cannot be read")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (from_s3("AccessDenied", 403), 1),
        (from_s3("InvalidAccessKeyId", 403), 1),
        (from_s3("SignatureDoesNotMatch", 403), 1),
        (from_s3("NoSuchBucket", 404), 1),
        (from_s3("SlowDown", 503), 75),
        (from_s3("TooManyRequests", 429), 75),
        (from_s3("ExpiredToken", 400), 75),
        (from_s3("RequestExpired", 400), 75),
        (NoCredentialsError(), 1),
        (UnauthorizedSSOTokenError(), 75),
        (Forbidden("no right"), 1),
        (Unauthorized("no token"), 75),
        (ServiceUnavailable("busy"), 75),
        (RefreshError("the token has expired"), 75),
        (socket.gaierror(-3, "Temporary failure in name resolution"), 75),
        (ConnectionRefusedError(111, "Connection refused"), 75),
        (BrokenPipeError(32, "Broken pipe"), 1),
        (FileNotFoundError(2, "No such file or directory"), 1),
    ],
)
def test_a_service_that_does_not_answer_or_wants_newer_credentials_is_worth_another_try(
    cause: Exception, code: int
) -> None:
    assert code_of(raised_from(raised_from(cause))) == code


def test_errors_of_several_files_are_looked_into() -> None:
    beam = Exception("Match operation failed")
    beam.exception_details = {"s3://bucket/**": from_s3("InternalError", 500)}  # type: ignore[attr-defined]
    assert code_of(raised_from(beam)) is ExitCode.TRY_AGAIN
