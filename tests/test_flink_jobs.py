"""Jobs on a cluster: asked, kept alive, cancelled and explained over a real socket, without Beam and without Flink."""

import threading
import time
from collections.abc import Iterator

import pytest

from recordmill.pipeline.build.runners.flink_job import (
    LIFE_SECONDS,
    FlinkError,
    FlinkJob,
    FlinkRest,
    cancel_all,
    job_name,
)
from recordmill.pipeline.build.runners.job import CHECK_SECONDS, JobFailedError, JobStillRunsError, watched
from recordmill.pipeline.errors import UserError
from tests.fake_flink import NOW, FakeFlink, fake_flink
from tests.messages import assert_names, raises

KEY = "4394e53c3270d4f0aaaa"


@pytest.fixture
def flink() -> Iterator[FakeFlink]:
    with fake_flink() as cluster:
        yield cluster


@pytest.fixture
def rest(flink: FakeFlink) -> FlinkRest:
    return FlinkRest(flink.url)


def test_a_cluster_is_read(rest: FlinkRest) -> None:
    seen = rest.overview()
    assert (seen.version, seen.task_managers, seen.slots, seen.free_slots) == ("1.19.3", 2, 4, 3)
    assert rest.slots_per_worker() == 3


@pytest.mark.parametrize("master", ["", "localhost", "localhost:flink", "ftp://localhost:8081", "http://:8081"])
def test_an_address_is_checked(master: str) -> None:
    with raises(FlinkError, f"--flink-master '{master}'", "give HOST:PORT"):
        FlinkRest(master)


def test_what_does_not_answer_as_a_cluster_is_named(flink: FakeFlink, rest: FlinkRest) -> None:
    flink.overview = {"login": "please"}  # type: ignore[dict-item]
    with raises(FlinkError, flink.url, "JSON", "an overview"):
        rest.overview()
    flink.status = 503
    with raises(FlinkError, flink.url, "/v1/overview", "HTTP 503"):
        rest.overview()
    with raises(FlinkError, "http://127.0.0.1:1", "refused", "--flink-master"):
        FlinkRest("127.0.0.1:1").overview()


@pytest.mark.parametrize("takes_numbers", [True, False], ids=["Flink 1.19", "as documented"])
def test_a_job_is_kept_alive_by_the_clock_of_the_cluster(
    flink: FakeFlink, rest: FlinkRest, takes_numbers: bool
) -> None:
    flink.takes_numbers, name = takes_numbers, job_name(KEY)
    flink.run(name)
    job = FlinkJob(rest, name)
    job.poll()
    expires = NOW + round(1000 * LIFE_SECONDS)
    assert flink.asked[-1][2] == (expires if takes_numbers else {"expiredTimestamp": expires})
    assert job.state == "RUNNING"


def test_a_job_before_its_submission_is_left_alone(flink: FakeFlink, rest: FlinkRest) -> None:
    job = FlinkJob(rest, job_name(KEY))
    job.poll()
    job.cancel()
    assert (job.state, job.failure()) == ("", "")
    assert all(method == "GET" for method, _, _ in flink.asked)


def test_cancelling_waits_for_the_end(flink: FakeFlink, rest: FlinkRest) -> None:
    mine, other = flink.run(job_name(KEY)), flink.run(job_name("another build"))
    ended = flink.run(job_name(KEY), "FAILED")
    flink.cancels_in = 2
    assert [job.id for job in cancel_all(rest, "recordmill-4394e53c3270d4f0-")] == [mine]
    assert [flink.state(job) for job in (mine, other, ended)] == ["CANCELED", "RUNNING", "FAILED"]
    assert [path for method, path, _ in flink.asked if method == "PATCH"] == [f"/v1/jobs/{mine}?mode=cancel"]


def test_a_job_that_does_not_end_is_named(flink: FakeFlink, rest: FlinkRest) -> None:
    job = flink.run("recordmill-x")
    flink.cancels_in = 1000
    with raises(JobStillRunsError, "after 0 s", f"http://{flink.url}, job {job}"):
        cancel_all(rest, "recordmill-x", 0.0)


PYTHON_TRACE = """java.util.concurrent.ExecutionException: java.lang.RuntimeException: Error received from SDK harness \
for instruction 4: Traceback (most recent call last):
  File "/venv/recordmill/pipeline/build/worker/read_chunk.py", line 33, in read
    raise ValueError(row)
ValueError: C4nary [while running 'ReadChunks']

\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
Caused by: java.lang.RuntimeException: Error received from SDK harness
"""
DEAD_TRACE = """org.apache.flink.runtime.JobException: Recovery is suppressed by NoRestartBackoffTimeStrategy
\tat org.apache.flink.Handler.handle(Handler.java:3)
Caused by: java.lang.IllegalStateException: call already closed
\tat org.apache.beam.Fn(Fn.java:3)
"""
SLOT_TRACE = """org.apache.flink.runtime.JobException: Recovery is suppressed by NoRestartBackoffTimeStrategy
Caused by: org.apache.flink.runtime.jobmanager.scheduler.NoResourceAvailableException: Could not acquire the minimum \
required resources.
"""
BUFFERS_TRACE = """java.io.IOException: Insufficient number of network buffers: required 512, but only 0 available.
\tat org.apache.flink.runtime.io.network.buffer.NetworkBufferPool.create(NetworkBufferPool.java:1)
"""
ROW_TRACE = "org.example.CoderException: C4nary\n\tat org.example.Coder.encode(Coder.java:1)\n"


@pytest.mark.parametrize(
    ("trace", "facts"),
    [
        (PYTHON_TRACE, ("a worker raised ValueError", "pipeline/build/worker/read_chunk.py, line 33")),
        (DEAD_TRACE, ("worker process died", "call already closed", "RECORDMILL_WORKER_THREADS=1")),
        (
            DEAD_TRACE.replace("call already closed", "CANCELLED: client cancelled"),  # killed in the middle of a call
            ("worker process died", "CANCELLED: client cancelled", "RECORDMILL_WORKER_THREADS=1"),
        ),
        (
            DEAD_TRACE.replace("call already closed", "Process died with exit code 137"),
            ("died", "memory ran out: Process died", "exit code 137"),
        ),
        (SLOT_TRACE, ("NoResourceAvailableException: ", "minimum required resources.")),
        (BUFFERS_TRACE, ("IOException: ", "required 512, but only 0")),
        (ROW_TRACE, ("CoderException (http",)),
    ],
    ids=["python", "dead worker", "killed worker", "out of memory", "slots", "raised by Flink", "another class"],
)
def test_a_failure_is_explained_without_values(
    flink: FakeFlink, rest: FlinkRest, trace: str, facts: tuple[str, ...]
) -> None:
    job = flink.run("recordmill-x", "FAILED")
    flink.exceptions = {"exceptionHistory": {"entries": [{"stacktrace": trace}]}}
    text = FlinkJob(rest, "recordmill-x").failure()
    assert_names(text, f"(http://{flink.url}, job {job})", *facts)
    assert "C4nary" not in text


def test_a_job_that_the_cluster_restarted_is_cancelled_and_explained(flink: FakeFlink, rest: FlinkRest) -> None:
    job = flink.run("recordmill-x")
    flink.jobs[job]["timestamps"] = {"RUNNING": NOW, "RESTARTING": 0}
    watched_job = FlinkJob(rest, "recordmill-x")
    watched_job.poll()
    assert flink.state(job) == "RUNNING"
    flink.jobs[job]["timestamps"]["RESTARTING"] = NOW
    flink.exceptions = {"exceptionHistory": {"entries": [{"stacktrace": DEAD_TRACE}]}}
    watched_job.poll()
    watched_job.cancel()
    assert flink.state(job) == "CANCELED"
    assert_names(watched_job.failure(), "worker process died", "call already closed")


def test_a_job_that_somebody_cancelled_says_so(flink: FakeFlink, rest: FlinkRest) -> None:
    job = flink.run("recordmill-x", "CANCELED")
    assert_names(FlinkJob(rest, "recordmill-x").failure(), "cancelled", f"job {job}")


def test_a_failed_submission_is_a_failed_job_and_leaves_none_running(flink: FakeFlink, rest: FlinkRest) -> None:
    job = flink.run("recordmill-x")
    with raises(JobFailedError, "RuntimeError"), watched(FlinkJob(rest, "recordmill-x")):
        raise RuntimeError("C4nary")
    assert flink.state(job) == "CANCELED"


@pytest.mark.parametrize("error", [UserError("no such row"), KeyboardInterrupt()], ids=["user error", "Ctrl-C"])
def test_other_errors_stay_and_end_the_job(flink: FakeFlink, rest: FlinkRest, error: BaseException) -> None:
    job = flink.run("recordmill-x")
    with pytest.raises(type(error)) as raised, watched(FlinkJob(rest, "recordmill-x")):
        raise error
    assert raised.value is error
    assert flink.state(job) == "CANCELED"


class Stuck(FlinkJob):
    def cancel(self, timeout_seconds: float = 0.0) -> None:
        super().cancel(0.0)


def test_a_slow_cancel_leaves_the_reason(flink: FakeFlink, rest: FlinkRest) -> None:
    flink.run("recordmill-x")
    flink.cancels_in = 1000
    with raises(UserError, "the lease is lost") as raised, watched(Stuck(rest, "recordmill-x")):
        raise UserError("the lease is lost")
    assert_names(raised.value.__notes__[0], "still runs", "0 s")


def test_a_job_that_does_not_end_lets_no_other_attempt_begin(flink: FakeFlink, rest: FlinkRest) -> None:
    flink.run("recordmill-x")
    flink.cancels_in = 1000
    with raises(JobStillRunsError, "still runs"), watched(Stuck(rest, "recordmill-x")):
        raise RuntimeError("a worker died")


def test_a_cluster_that_is_gone_leaves_the_first_error(flink: FakeFlink, rest: FlinkRest) -> None:
    flink.status = 503
    with raises(JobFailedError, flink.url) as raised, watched(FlinkJob(rest, "x")):
        raise RuntimeError("the cluster died")
    assert_names(raised.value.__notes__[0], "/v1/jobs/overview", "HTTP 503")


def wait_for_cancel(flink: FakeFlink, job: str) -> None:
    """Waits for a job, and raises its error, as Beam."""
    limit = time.monotonic() + 10 * CHECK_SECONDS
    while flink.state(job) != "CANCELED" and time.monotonic() < limit:
        time.sleep(0.05)
    raise RuntimeError("the job was cancelled")


def test_a_check_that_fails_ends_the_job(flink: FakeFlink, rest: FlinkRest) -> None:
    def check() -> None:
        raise UserError("the lease is lost")

    job = flink.run("recordmill-x")
    with raises(UserError, "the lease is lost"), watched(FlinkJob(rest, "recordmill-x"), [check]):
        wait_for_cancel(flink, job)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("job ")]
