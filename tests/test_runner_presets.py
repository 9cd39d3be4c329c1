"""Presets of runners: versions, options, the job server's jar and process."""

import hashlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.pipeline import parallel as counting
from recordmill.pipeline.build.build import run
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.build.runners import worker_environment as environments
from recordmill.pipeline.build.runners.flink_cluster import (
    PAIRS,
    FlinkCluster,
    FlinkOptions,
    JobServer,
    find_jar,
    find_java,
    flink_presets,
    free_slots,
    java_version,
    with_presets,
    worker_environment,
)
from recordmill.pipeline.build.runners.flink_job import FlinkRest
from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.spec.model import Spec
from tests.constants import constants
from tests.fake_flink import FakeFlink, fake_flink
from tests.messages import raises


@pytest.fixture
def flink() -> Iterator[FakeFlink]:
    with fake_flink() as cluster:
        yield cluster


@pytest.mark.parametrize(("version", "server"), [
    ("1.19.3", "beam-runners-flink-1.19-job-server/2.62.0/beam-runners-flink-1.19-job-server-2.62.0.jar"),
    ("2.0.1", "beam-runners-flink-2.0-job-server/2.77.0/beam-runners-flink-2.0-job-server-2.77.0.jar"),
])  # fmt: skip
def test_without_a_jar_a_build_says_which_one_the_cluster_needs(flink: FakeFlink, version: str, server: str) -> None:
    flink.overview["flink-version"] = version
    spec, options = Spec.model_construct(), RunOptions("flink", flink=FlinkOptions(flink.url))
    address = f"https://repo.maven.apache.org/maven2/org/apache/beam/{server}"
    with raises(RunnerError, f"Flink {version} at {flink.url}", f"`curl -fO {address}`", "--flink-jar"):
        run(spec, "", options, Listener())


def test_other_clusters_are_refused(flink: FakeFlink) -> None:
    assert [(pair.flink, pair.beam) for pair in PAIRS if pair.was_run] == [("1.19", "2.62.0")]
    for version in ("1.14.6", "1.1.19"):
        flink.overview["flink-version"] = version
        with raises(RunnerError, flink.url, f"Flink {version}", "1.19, 1.20, 2.0", "--flink-jar"):
            find_jar(FlinkOptions(flink.url))
    with raises(RunnerError, "--runner flink", "--flink-master HOST:PORT"):
        FlinkCluster(FlinkOptions())


def test_presets_are_what_the_cluster_says(flink: FakeFlink) -> None:
    presets = flink_presets(FlinkRest(flink.url), FlinkOptions(flink.url, workers="/opt/worker"), [], "job-1", "try-1")
    assert json.loads(presets.pop("environment_config")) == {"command": "/opt/worker",
        "env": {"RECORDMILL_ATTEMPT": "try-1"}}  # fmt: skip
    assert presets == {"job_name": "job-1", "flink_master": flink.url, "parallelism": "3",
        "execution_mode_for_batch": "BATCH", "sdk_worker_parallelism": "3", "environment_cache_millis": "5000",
        "environment_type": "PROCESS"}  # fmt: skip


def test_a_busy_cluster_is_waited_for_unless_the_user_queues(flink: FakeFlink) -> None:
    flink.overview["slots-available"] = 0
    rest = FlinkRest(flink.url)
    with raises(RunnerError, "4 slots on 2 TaskManagers", "none", "-- --parallelism=N"):
        free_slots(rest, timeout_seconds=0)
    threading.Timer(0.7, flink.overview.update, [{"slots-available": 2}]).start()
    assert free_slots(rest) == 2
    flink.overview["slots-available"] = 0
    assert "parallelism" not in flink_presets(rest, FlinkOptions(workers="x"), ["parallelism"], "job", "try")


def test_a_pool_is_an_address() -> None:
    presets = worker_environment("localhost:50000", "try-1")
    assert presets["environment_type"] == "EXTERNAL"
    assert json.loads(presets["environment_config"]) == {"url": "localhost:50000",
        "params": {"RECORDMILL_ATTEMPT": "try-1"}}  # fmt: skip


@pytest.mark.parametrize(("given", "arguments"), [
    ([], ["--a=1", "--environment_type=PROCESS", "--environment_config=x"]),
    (["--a=2"], ["--environment_type=PROCESS", "--environment_config=x", "--a=2"]),
    (["--a", "2"], ["--environment_type=PROCESS", "--environment_config=x", "--a", "2"]),
    (["--environment_type=DOCKER"], ["--a=1", "--environment_type=DOCKER"]),
])  # fmt: skip
def test_the_users_options_replace_presets(given: list[str], arguments: list[str]) -> None:
    presets = {"a": "1", "environment_type": "PROCESS", "environment_config": "x"}
    assert with_presets(given, presets) == arguments


@pytest.mark.parametrize(("quota", "threads"), [("150000 100000", 2), ("max 100000", 3), ("100 100000", 1), (None, 3)])
def test_threads_are_those_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, threads: int
) -> None:
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    with constants(counting, CPU_QUOTA=tmp_path / "cpu.max"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
        assert environments.worker_threads() == threads
        monkeypatch.setenv(environments.THREADS, "5")
        assert environments.worker_threads() == 5


def test_a_jar_is_a_file_with_the_given_digest(tmp_path: Path) -> None:
    jar, digest = tmp_path / "own.jar", hashlib.sha256(b"a jar").hexdigest()
    with raises(RunnerError, jar, "missing", "--flink-jar"):
        find_jar(FlinkOptions(jar=str(jar)))
    jar.write_bytes(b"a jar")
    for pinned in ("", digest, digest.upper()):
        assert find_jar(FlinkOptions(jar=str(jar), jar_sha256=pinned)) == jar
    with raises(RunnerError, jar, digest, f"not {'0' * 64}"):
        find_jar(FlinkOptions(jar=str(jar), jar_sha256="0" * 64))
    with raises(RunnerError, "--flink-jar-sha256 'abc'", "64 hexadecimal digits"):
        find_jar(FlinkOptions(jar=str(jar), jar_sha256="abc"))


SERVER = """
import socket, sys, time
print("DEBUG a line")
if "fail" in sys.argv:
    sys.exit("java.net.BindException: Address in use")
listener = socket.create_server(("localhost", int(sys.argv[1])))
time.sleep(600)
"""
DRIVER = """
import sys, time
from recordmill.pipeline.build.runners.flink_cluster import JobServer
server = JobServer([sys.executable, "-c", sys.argv[1], "{port}"], sys.argv[2])
server.start()
print(server.endpoint, flush=True)
time.sleep(600)
"""


def listens(endpoint: str) -> bool:
    host, _, port = endpoint.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_job_server_is_started_and_stopped(tmp_path: Path) -> None:
    server = JobServer([sys.executable, "-c", SERVER, "{port}"], str(tmp_path))
    for _ in range(2):
        server.start()
        assert listens(server.endpoint)
    for _ in range(2):
        server.stop()
        assert not listens(server.endpoint)


def test_a_job_server_that_ends_gives_its_reason(tmp_path: Path) -> None:
    with raises(RunnerError, "status 1", "java.net.BindException: Address in use", tmp_path):
        JobServer([sys.executable, "-c", SERVER, "fail"], str(tmp_path)).start()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it there")
def test_a_job_server_ends_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, SERVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        endpoint = driver.stdout.readline().strip()
        assert listens(endpoint)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    limit = time.monotonic() + 30
    while listens(endpoint) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not listens(endpoint)


def test_java_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with raises(RunnerError, f"JAVA_HOME={tmp_path}", "bin/java", "Java 11"):
        find_java()
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    with raises(RunnerError, java, "Java 8", "needs 11"):
        java_version(find_java())
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n")
    assert java_version(find_java()) == 17


HEAPS = """
import ctypes, sys, threading
from recordmill.pipeline.build.runners.worker_environment import limit_arenas
limit_arenas()
libc, barrier = ctypes.CDLL(None), threading.Barrier(8)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
def allocate():
    libc.malloc(1000)
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no heaps to count")
def test_a_worker_has_no_more_heaps_than_threads(tmp_path: Path) -> None:
    environment = {**os.environ, "RECORDMILL_WORKER_THREADS": "2"}
    subprocess.run([sys.executable, "-c", HEAPS, str(tmp_path / "heaps.xml")], env=environment, check=True)
    assert (tmp_path / "heaps.xml").read_text().count("<heap nr=") <= 3
