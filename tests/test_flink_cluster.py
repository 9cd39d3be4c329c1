"""A build on a real Flink cluster: the local runner's bytes, whatever dies, and no leftovers.

Each test gates the reading of one part (`flink_cluster.MODULE`), and so knows the pass of the worker that it kills.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil
import pytest

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.versions.base import Base
from tests import emulators
from tests.flink_cluster import (
    CGROUPS,
    JOB_SERVER,
    ROWS,
    WORKER_BYTES,
    Cluster,
    limited_worker,
    started,
    write_dataset,
    write_large_dataset,
)
from tests.forked import recordmill, start_python, wait_until, wait_until_ended
from tests.listening import Socket, listening, ports, reachable_from_outside

pytestmark = [
    pytest.mark.flink,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not JOB_SERVER.exists(), reason=f"there is no {JOB_SERVER}: `make flink`, with a JDK and Maven"),
]


class Build:
    """A build of a folder's dataset by the command, in its own process."""

    def __init__(self, folder: Path, *options: str, output: str = "out") -> None:
        self.folder = folder
        with open(folder / "log.txt", "ab") as log:
            command = ["-m", "recordmill", "build", "dataset.yaml", "--output", output, *options]
            self.process: ForkServerProcess = start_python(
                *command, cwd=folder, stdout=log.fileno(), stderr=log.fileno()
            )

    def reader(self, number: int) -> psutil.Process:
        """Waits until the gated part is read for the `number`-th time; returns the reading process."""
        file = self.folder / "gates" / f"reader-{number}"
        wait_until(lambda: file.exists() or not self.process.is_alive())
        assert file.exists(), self.log
        return psutil.Process(int(file.read_text()))

    def ended(self) -> int | None:
        """Waits for the end; gives the status."""
        self.process.join()
        return self.process.exitcode

    @property
    def log(self) -> str:
        """The output of this build and earlier ones in the folder."""
        return (self.folder / "log.txt").read_text()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """The manifest of the local runner's build."""
    folder = tmp_path_factory.mktemp("local")
    write_dataset(folder)
    result = recordmill("build", "dataset.yaml", "--output", "out", cwd=folder)
    assert result.returncode == 0, result.stderr
    manifest = published(folder / "out")
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert len(shards) == 18
    assert all(shard.records for shard in shards)
    rows = manifest.rows
    assert (rows["read"], rows["written"] + rows["duplicates"]) == (ROWS, ROWS)
    return manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "data")
    return tmp_path / "data"


def published(output: Path | str) -> Manifest:
    manifest = Base.read(str(output)).live
    assert manifest is not None
    return manifest


def hold(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / "gates" / f"hold-{number}").touch()


def release(folder: Path, number: int) -> None:
    (folder / "gates" / f"hold-{number}").unlink()


def assert_same(manifest: Manifest, expected: Manifest) -> None:
    assert manifest.splits == expected.splits  # the shards' names, digests, records and label counts
    assert manifest.rows == expected.rows
    assert manifest.statistics == expected.statistics


def assert_idle(cluster: Cluster) -> None:
    assert not cluster.running()
    overview = cluster.ask("overview")
    wait_until(lambda: cluster.ask("overview")["slots-available"] == overview["slots-total"])


@pytest.mark.nightly
def test_only_beams_java_servers_can_be_reached_from_outside(cluster: Cluster, folder: Path) -> None:
    """The ports in `docs/security.md`: the job server's and, in TaskManagers, the services for workers."""
    build = Build(folder, *cluster.options)
    roots = [psutil.Process(pid) for pid in (build.process.pid, *cluster.processes.values())]
    found = set[Socket]()
    while build.process.is_alive():
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= listening([each for root in roots for each in (root, *root.children(recursive=True))])
        time.sleep(0.2)
    assert build.ended() == 0, build.log
    outside = {program for program, _ in reachable_from_outside(found)}
    assert all("--job-host localhost" in program or "TaskManagerRunner" in program for program in outside)
    opened = {program for program, _ in ports(found)}
    assert any("StandaloneSessionClusterEntrypoint" in program for program in opened - outside)
    assert not any("python" in program.split()[0] for program in opened)


def test_the_bytes_are_those_of_the_local_runner(cluster: Cluster, folder: Path, expected: Manifest) -> None:
    build = Build(folder, *cluster.options)
    assert build.ended() == 0, build.log
    assert_same(published(folder / "out"), expected)
    assert set(cluster.jobs().values()) == {"FINISHED"}
    assert_idle(cluster)


@pytest.mark.nightly
def test_a_worker_is_killed_in_each_pass(cluster: Cluster, folder: Path, expected: Manifest) -> None:
    hold(folder, 1, 3)
    build = Build(folder, *cluster.options, "--attempts", "3")
    for number in (1, 3):  # the look; after it was read again, the write
        build.reader(number).kill()
        release(folder, number)
    assert build.ended() == 0, build.log
    assert_same(published(folder / "out"), expected)
    assert (folder / "gates" / "reader-4").exists()
    assert_idle(cluster)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_driver_is_ended_and_killed_in_each_job_and_goes_on(
    cluster: Cluster, folder: Path, expected: Manifest
) -> None:
    """The look is read first, second and, whole, third; the job that writes then."""
    numbers = {1: signal.SIGTERM, 2: signal.SIGKILL, 4: signal.SIGTERM, 5: signal.SIGKILL}
    hold(folder, *numbers)
    ended = list[str]()
    for number, sent in numbers.items():
        build = Build(folder, *cluster.options)
        build.reader(number)
        ended += cluster.running()
        os.kill(build.process.pid, sent)
        assert build.ended() == (128 + sent if sent == signal.SIGTERM else -sent)
        assert sent == signal.SIGKILL or cluster.jobs()[ended[-1]] == "CANCELED"
    build = Build(folder, *cluster.options)
    assert build.ended() == 0, build.log
    assert [cluster.jobs()[job] for job in ended] == ["CANCELED"] * len(numbers)
    assert_same(published(folder / "out"), expected)
    assert_idle(cluster)


@pytest.mark.nightly
def test_a_taskmanager_is_killed(tmp_path: Path, folder: Path, expected: Manifest) -> None:
    with started(tmp_path / "cluster") as cluster:
        hold(folder, 2)
        build = Build(folder, *cluster.options)
        reader = build.reader(2)
        (manager,) = (parent.pid for parent in reader.parents() if parent.pid in cluster.processes.values())
        os.kill(manager, signal.SIGKILL)
        wait_until_ended([reader])  # a worker does not outlive its TaskManager
        assert build.ended() == 0, build.log
        assert_same(published(folder / "out"), expected)
        assert len(cluster.ask("taskmanagers")["taskmanagers"]) == 1
        assert_idle(cluster)


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a process a file system of its own")
def test_workers_without_the_disk_of_the_driver(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, folder: Path, expected: Manifest
) -> None:
    run = tmp_path_factory.mktemp("cluster")
    with emulators.s3() as url, started(run, "--hide", str(tmp_path)) as cluster:
        refused = Build(folder, *cluster.options)
        assert refused.ended() == 1, refused.log
        assert f"the workers do not reach {folder / 'out'}" in refused.log
        build = Build(folder, *cluster.options, output=url)
        assert build.ended() == 0, build.log
        assert not list((folder / "gates").iterdir())  # no worker saw the folder
        assert_same(published(url), expected)
        assert_idle(cluster)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.access(CGROUPS, os.W_OK), reason=f"no group of processes can be limited in {CGROUPS}")
def test_ten_times_the_memory_of_the_worker(tmp_path: Path) -> None:
    write_large_dataset(tmp_path, 10 * WORKER_BYTES)
    with started(tmp_path / "cluster", "--taskmanagers", "1") as cluster, limited_worker(tmp_path) as (worker, group):
        build = Build(tmp_path, *cluster.options, "--flink-workers", str(worker), "--attempts", "1")
        assert build.ended() == 0, build.log
        used = int((group / "memory.max_usage_in_bytes").read_text())
    assert WORKER_BYTES / 4 < used <= WORKER_BYTES  # the worker was in the group
    shards = [shard for split in published(tmp_path / "out").splits.values() for shard in split.shards]
    assert sum(shard.bytes for shard in shards) > 10 * WORKER_BYTES
    shutil.rmtree(tmp_path / "out")
