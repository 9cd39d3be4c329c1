"""`--runner dataflow` against a service on this machine: submission, states, errors, cancelling, and a dry run."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from recordmill.pipeline.build.beam import dataflow
from recordmill.pipeline.build.beam.dataflow import DataflowRunner
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.plan.plan import make_plan, planned_build
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.build.runners.job import DryRunFinished, Job, JobFailedError, RunnerError
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.leases import LeaseLostError
from recordmill.pipeline.versions.stores.open_store import open_bucket, open_store
from tests import emulators
from tests.constants import constants
from tests.dataflow_service import WORKER_IP_PRIVATE, DataflowService, Json, Scripted, dataflow_service
from tests.messages import assert_names, raises

pytestmark = pytest.mark.slow
IMAGE = f"europe-west1-docker.pkg.dev/my-project/recordmill/recordmill@sha256:{'0a' * 32}"
QUIET = Listener()
KEY = "4f1c9a2e" + 56 * "0"
LOST = "the lease is another's"
SPEC = """
name: digits
source: {{format: csv, path: "{path}"}}
features:
  value: {{kind: number}}
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataflowService]:
    with emulators.gcs(conditions=True), dataflow_service(tmp_path_factory.mktemp("dataflow")) as service:
        yield service


@pytest.fixture
def options(service: DataflowService) -> tuple[str, ...]:
    service.jobs.clear()
    service.requests.clear()
    service.failures.clear()
    service.refusal = None
    return ("--project=my-project", "--region=europe-west1", f"--temp_location=gs://{emulators.BUCKET}/temp",
        f"--sdk_container_image={IMAGE}", f"--dataflow_endpoint={service.url}", "--labels=team=vision")  # fmt: skip


@pytest.fixture
def run(options: tuple[str, ...], tmp_path: Path) -> Callable[..., None]:
    """Runs one small job, as a build."""
    url = f"gs://{emulators.BUCKET}/{tmp_path.name}"
    open_store(url).write_if("digits.csv", b"value\n1\n2\n", None)
    plan = make_plan(parse_spec(SPEC.format(path=f"{url}/digits.csv")), BeamFiles())
    workspace = open_bucket(url)
    planned = planned_build(plan, str(tmp_path), BeamFiles(), inline=True, threads=1, workspace=workspace)

    def run(*more: str, listener: Listener = QUIET, check: Callable[[], None] = lambda: None) -> None:
        with DataflowRunner(RunOptions("dataflow", beam_options=(*options, *more))) as runner:
            runner.begin(KEY, listener, [check])
            with runner.pipeline(planned) as pipeline:
                _ = pipeline | "Count" >> beam.Create([1, 2]) | "Text" >> beam.Map(str)

    return run


def test_the_job_as_the_service_gets_it(service: DataflowService, run: Callable[..., None]) -> None:
    service.start = lambda job: Scripted("PENDING", "RUNNING", "DONE")
    seen: list[Job | None] = []
    run("--worker_zone=europe-west1-b", "--max_num_workers=7", listener=Listener(on_job=seen.append))
    ((identity, job),) = service.jobs.items()
    assert job.proto["name"] == "recordmill-digits-4f1c9a2e"
    assert job.proto["labels"] == {"team": "vision"}
    environment = job.proto["environment"]
    (pool,) = environment["workerPools"]
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    assert (pool["machineType"], pool["diskSizeGb"], pool["numThreadsPerWorker"]) == ("n2-highmem-4", 50, 1)
    assert (pool["ipConfiguration"], pool["autoscalingSettings"]["maxNumWorkers"]) == (WORKER_IP_PRIVATE, 7)
    assert {"use_runner_v2", "use_multiple_sdk_containers"} <= set(environment["experiments"])
    assert environment["workerZone"] == "europe-west1-b"
    assert [job and (job.state, job.url) for job in seen] == [
        ("DONE", f"https://console.cloud.google.com/dataflow/jobs/europe-west1/{identity}"),
        None,
    ]


def test_the_staged_graph(service: DataflowService, run: Callable[..., None]) -> None:
    """Its environment is only the image: no packages to install, no pickled main session."""
    service.start = lambda job: Scripted("DONE")
    run()
    (job,) = service.jobs.values()
    options = job.proto["environment"]["sdkPipelineOptions"]["options"]
    assert options["save_main_session"] is False
    assert options["pipelineUrl"].startswith(f"gs://{emulators.BUCKET}/temp/staging/recordmill-digits-4f1c9a2e.")
    client = storage.Client(project="test", credentials=AnonymousCredentials())
    blob = client.bucket(emulators.BUCKET).blob(options["pipelineUrl"].removeprefix(f"gs://{emulators.BUCKET}/"))
    pipeline = beam_runner_api_pb2.Pipeline.FromString(blob.download_as_bytes())
    (environment,) = pipeline.components.environments.values()
    assert beam_runner_api_pb2.DockerPayload.FromString(environment.payload).container_image == IMAGE
    assert not environment.dependencies


def test_a_job_that_fails(service: DataflowService, run: Callable[..., None]) -> None:
    errors = ("Quota 'CPUS' exceeded", "The work item was attempted 4 times")
    service.start = lambda job: Scripted("RUNNING", "FAILED", errors=errors)
    page = "https://console.cloud.google.com/dataflow/jobs/europe-west1/2026-11-22_000000"
    with raises(JobFailedError, "job 2026-11-22_000000 failed", errors[0], f"({page})"):
        run()


def test_a_job_that_the_service_refuses(service: DataflowService, run: Callable[..., None]) -> None:
    service.refusal = (403, "worker@my-project lacks dataflow.workItems.lease")
    with raises(RunnerError, "Dataflow refuses", service.refusal[1]):
        run()


def lose() -> None:
    raise LeaseLostError(LOST)


def _failing(service: DataflowService, *states: str, **failures: list[int]) -> Scripted:
    """Starts a job that passes through the states; the next requests of the given kinds fail."""
    service.failures = failures
    return Scripted(*states)


@pytest.mark.nightly
def test_a_job_outlives_hiccups(
    service: DataflowService, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is overloaded or away, denies the new job, closes connections; a token cannot be renewed (401)."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there: no renewal
    with constants(dataflow, POLL_SECONDS=0.1):
        statuses = [*[429] * 10, 404, 500, 502, 503, 504, 0, 401]
        service.start = lambda job: _failing(service, "RUNNING", "DONE", GET=statuses)
        run()
        assert (service.states(), statuses) == (["JOB_STATE_DONE"], [])


def test_a_lost_answer_to_a_new_job(service: DataflowService, run: Callable[..., None]) -> None:
    """The job is cancelled, although the driver does not know its id; another attempt may begin."""
    service.start = lambda job: Scripted("RUNNING")
    service.failures["POST"] = [429]
    with raises(JobFailedError, "not answer: 429"):
        run()
    assert service.states() == ["JOB_STATE_CANCELLED"]


@constants(dataflow, PATIENCE_SECONDS=1.0, POLL_SECONDS=0.1)
def test_a_service_that_stays_away(service: DataflowService, run: Callable[..., None]) -> None:

    class Returning(Scripted):
        def cancel(self) -> None:
            service.failures.clear()
            super().cancel()

    def start(job: Json) -> Returning:
        service.failures["GET"] = [503] * 1_000
        return Returning("RUNNING")

    service.start = start
    with raises(RunnerError, "not answer: 503"):
        run()
    assert service.states() == ["JOB_STATE_CANCELLED"]


@pytest.mark.nightly
def test_a_hiccup_while_a_job_is_cancelled(service: DataflowService, run: Callable[..., None]) -> None:
    service.start = lambda job: _failing(service, "RUNNING", LIST=[503, 0], PUT=[429])

    with raises(LeaseLostError, LOST):
        run(check=lose)
    assert service.states() == ["JOB_STATE_CANCELLED"]


@pytest.mark.nightly
def test_a_job_that_the_driver_may_not_cancel(service: DataflowService, run: Callable[..., None]) -> None:
    """The build ends with its own reason, and a note quotes the service: the job still runs."""
    service.start = lambda job: _failing(service, "RUNNING", PUT=[403] * 1_000)
    jobs: list[Job | None] = []

    with raises(LeaseLostError, LOST) as end:
        run(listener=Listener(on_job=jobs.append), check=lose)
    assert_names(end.value.__notes__[0], "Dataflow refuses")
    assert jobs[0]
    with raises(RunnerError, "Dataflow refuses"):
        jobs[0].cancel()
    assert service.states() == ["JOB_STATE_RUNNING"]


def test_a_failed_job_whose_messages_the_driver_may_not_read(
    service: DataflowService, run: Callable[..., None]
) -> None:
    service.start = lambda job: _failing(service, "RUNNING", "FAILED", MESSAGES=[403])
    with raises(JobFailedError, "job 2026-11-22_000000 failed", "Dataflow refuses"):
        run()


def test_another_drivers_job_stays(service: DataflowService, run: Callable[..., None]) -> None:
    """A job of this name that begins between the check for old jobs and the submission belongs to another driver."""
    service.start = lambda job: Scripted("RUNNING")
    other = {"name": "recordmill-digits-4f1c9a2e", "clientRequestId": "another"}
    with raises(RunnerError, "another driver", "cancel its job"):
        run(listener=Listener(on_job=lambda job: job and service.create(other)))
    assert service.states() == ["JOB_STATE_RUNNING"]


def test_a_lost_lease_cancels_the_job(service: DataflowService, run: Callable[..., None]) -> None:
    service.start = lambda job: Scripted("RUNNING")

    with raises(LeaseLostError, LOST):
        run(check=lose)
    assert [(job.asked_to_cancel, job.current) for job in service.jobs.values()] == [(True, "JOB_STATE_CANCELLED")]


def test_a_user_who_stops_the_command_cancels_the_job(service: DataflowService, run: Callable[..., None]) -> None:
    """Ctrl-C cancels from its own thread, even before the service has answered."""
    service.start = lambda job: Scripted("RUNNING")

    def stop(job: Job | None) -> None:
        if job is not None:
            threading.Timer(2, job.cancel).start()

    with raises(JobFailedError, "job 2026-11-22_000000", "cancelled"):
        run(listener=Listener(on_job=stop))


@pytest.mark.parametrize("delay", [1.5, None], ids=["late", "never"])
def test_a_user_who_stops_the_submission(
    service: DataflowService, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, delay: float | None
) -> None:
    """Ctrl-C before the service has answered; it lists the job a moment later, or has never taken it."""
    service.start = lambda job: Scripted("RUNNING")
    with constants(dataflow, UNLISTED_SECONDS=4.0 if delay else 1.0):

        def create(jobs: object, job: Any) -> None:
            if delay:
                threading.Timer(delay, service.create, [{"name": job.proto.name}]).start()
            raise KeyboardInterrupt

        monkeypatch.setattr(dataflow._Jobs, "create", create)
        with pytest.raises(KeyboardInterrupt) as end:
            run()
        assert service.states() == (["JOB_STATE_CANCELLED"] if delay else [])
        notes = getattr(end.value, "__notes__", [])
        if not delay:
            assert_names(notes[0], "recordmill-digits-4f1c9a2e", "not listed yet", "same command again")


def test_a_job_of_a_dead_driver_is_cancelled_first(service: DataflowService, run: Callable[..., None]) -> None:
    service.start = lambda job: Scripted("RUNNING", "RUNNING", "RUNNING")
    for name in ("recordmill-digits-4f1c9a2e", "recordmill-digits-00000000"):
        service.create({"name": name, "clientRequestId": "dead"})
    service.start = lambda job: Scripted("DONE")
    notes: list[str] = []
    run(listener=Listener(on_note=notes.append))
    assert service.states() == ["JOB_STATE_CANCELLED", "JOB_STATE_RUNNING", "JOB_STATE_DONE"]
    assert len(notes) == 1
    assert_names(notes[0], "cancelling", "https://console.cloud.google.com/")


def test_a_dry_run(service: DataflowService, run: Callable[..., None]) -> None:
    with pytest.raises(DryRunFinished) as end:
        run("--dry_run=True")
    first, *rest = str(end.value).splitlines()
    assert_names(first, "dry run", "recordmill-digits-4f1c9a2e")
    assert f"  sdk_container_image: {IMAGE}" in rest
    assert service.requests == []


@constants(dataflow, GRAPH_BYTES=10)
def test_a_graph_that_the_service_refuses(service: DataflowService, run: Callable[..., None]) -> None:
    with raises(RunnerError, "refuses 10", "classes_file"):
        run()
    assert service.states() == []


def test_an_option_that_no_build_can_have(service: DataflowService, run: Callable[..., None]) -> None:
    with raises(RunnerError, "no option --max_num_worker;", "did you mean --max_num_workers"):
        run("--max_num_worker=3")
    assert service.requests == []
