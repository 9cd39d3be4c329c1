"""Builds by the command on a local Dataflow: the same bytes, and no job outlives its driver."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recordmill.pipeline.build.build import build
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.spec.model import load_spec
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.stores.open_store import open_location, open_store
from tests import emulators
from tests.dataflow_service import DataflowService, Json, Run, Scripted, dataflow_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROWS = 300
SPEC = """
name: words
source: {{format: csv, path: "{url}/rows.csv"}}
label: label
shards: {{train: 4}}
features:
  text: {{kind: text}}
  label: {{kind: category}}
"""


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    """The URL of a folder with a source; `dataset.yaml` is its spec."""
    with emulators.gcs(conditions=True) as url:
        rows = "".join(f"word{row % 7} w{row},c{row % 3}\n" for row in range(ROWS))
        open_store(url).write_if("rows.csv", f"text,label\n{rows}".encode(), None)
        (tmp_path / "dataset.yaml").write_text(SPEC.format(url=url))
        yield url


@pytest.fixture
def service(tmp_path: Path) -> Iterator[DataflowService]:
    with dataflow_service(tmp_path) as service:
        yield service


@pytest.fixture
def start(bucket: str, service: DataflowService, tmp_path: Path) -> Callable[[], subprocess.Popen[str]]:
    """Starts the command."""
    options = ["--project=my-project", "--region=europe-west1", f"--temp_location=gs://{emulators.BUCKET}/temp",
        "--sdk_container_image=gcr.io/my-project/recordmill:1", f"--dataflow_endpoint={service.url}"]  # fmt: skip
    command = ["build", str(tmp_path / "dataset.yaml"), "--output", f"{bucket}/out", "--runner", "dataflow"]
    command = [sys.executable, "-m", "recordmill", *command, "--", *options]
    return lambda: subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _wait_for_a_job(service: DataflowService, driver: subprocess.Popen[str]) -> None:
    while not any(method == "GET" and "/jobs/" in path for method, path in service.requests):
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.1)


@pytest.mark.nightly
def test_a_killed_driver(
    bucket: str, service: DataflowService, start: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The same command again cancels the job that the killed one left, and publishes what the local runner builds."""
    service.start = lambda job: Scripted("RUNNING")
    killed = start()
    _wait_for_a_job(service, killed)
    killed.kill()
    killed.communicate()
    assert service.states() == ["JOB_STATE_RUNNING"]
    service.start = service.execute
    driver = start()
    _, messages = driver.communicate()
    assert driver.returncode == 0, messages
    assert "note: cancelling the job that an earlier driver left" in messages
    assert set(service.states()[1:]) == {"JOB_STATE_DONE"}
    assert service.states()[0] == "JOB_STATE_CANCELLED"
    version = publishing.live_version(f"{bucket}/out")
    there = read_manifest(open_location(f"{bucket}/out/versions/{version}"))
    here = build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "local")).manifest
    assert there.splits == here.splits
    assert there.rows == here.rows == {"read": ROWS, "written": ROWS, "rejected": 0, "duplicates": 0}


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_driver(
    number: signal.Signals, service: DataflowService, start: Callable[[], subprocess.Popen[str]]
) -> None:
    service.start = lambda job: Scripted("RUNNING")
    driver = start()
    _wait_for_a_job(service, driver)
    os.kill(driver.pid, number)
    _, messages = driver.communicate()
    assert driver.returncode == 128 + number
    assert service.states() == ["JOB_STATE_CANCELLED"]
    assert "cancelling the job on the cluster" in messages
    assert "stopped: nothing was published" in messages


@pytest.mark.nightly
def test_a_workers_own_error(service: DataflowService, start: Callable[[], subprocess.Popen[str]], bucket: str) -> None:
    """It arrives by the workspace, and replaces the service's message."""
    rows = open_store(bucket)

    def lose_the_source(job: Json) -> Run:
        rows.delete("rows.csv")
        return service.execute(job)

    service.start = lose_the_source
    driver = start()
    _, messages = driver.communicate()
    assert driver.returncode == 75
    assert "rows.csv" in messages.splitlines()[-2]
    assert "the Dataflow job" not in messages.splitlines()[-2]
