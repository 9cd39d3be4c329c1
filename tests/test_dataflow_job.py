"""A job's name, its page, the size of its graph, and the cause of its failure in the service's messages."""

import re

import pytest

from recordmill.pipeline.build.beam import dataflow
from recordmill.pipeline.build.runners.job import RunnerError
from tests.messages import assert_names, raises

KEY = "4f1c9a2e" + 56 * "0"
TRACEBACK = """Traceback (most recent call last):
  File "/opt/recordmill/pipeline/build/worker/read_chunk.py", line 17, in read
    raise ValueError("the row is secret")
ValueError: the row is secret
"""


@pytest.mark.parametrize(("spec", "name"), [
    ("emoji", "recordmill-emoji-4f1c9a2e"),
    ("My_Emoji!", "recordmill-my-emoji-4f1c9a2e"),
    ("語", "recordmill-4f1c9a2e"),
    ("x" * 42 + "_" + "y" * 80, f"recordmill-{'x' * 42}-4f1c9a2e"),
    ("x" * 80, f"recordmill-{'x' * 43}-4f1c9a2e"),
])  # fmt: skip
def test_a_jobs_name(spec: str, name: str) -> None:
    assert dataflow.job_name(spec, KEY) == name
    assert re.fullmatch(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", name)
    assert dataflow.is_job_of(name, KEY)


@pytest.mark.parametrize("name", ["recordmill-emoji-4f1c9a2f", "other-emoji-4f1c9a2e", "recordmill-4f1c9a2e-2"])
def test_a_job_of_another_build(name: str) -> None:
    assert not dataflow.is_job_of(name, KEY)


@pytest.mark.parametrize(("messages", "cause"), [
    ([], "no reason"),
    (["Quota exceeded", "The work item was attempted 4 times"], "Quota exceeded"),
    (["The work item was attempted 4 times"], "The work item was attempted 4 times"),
    (["see https://ada:secret@host/a"], "see https://***@host/a"),
    ([TRACEBACK, "Workflow failed"], "ValueError in pipeline/build/worker/read_chunk.py, line 17"),
])  # fmt: skip
def test_the_cause_of_a_failure(messages: list[str], cause: str) -> None:
    found = dataflow.cause_of(messages)
    assert_names(found, cause)
    assert "secret" not in found


def test_machines_see_no_local_disk() -> None:
    dataflow.check_reachable("gs://bucket/a", ["gs://bucket/b", "s3://bucket/c"])
    with raises(RunnerError, "--output", "gs://BUCKET/FOLDER", "/tmp/out"):
        dataflow.check_reachable("/tmp/out", ["gs://bucket/b"])
    with raises(RunnerError, "cannot read /data/a.csv", "gcloud storage cp -r"):
        dataflow.check_reachable("gs://bucket/a", ["gs://bucket/b", "/data/a.csv"])
