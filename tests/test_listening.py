"""Sockets of a build are reachable only for processes of the same user on the same machine."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import psutil
import pytest
from apache_beam.runners.portability.fn_api_runner.worker_handlers import StateServicer
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

from recordmill.pipeline.build.beam.runners import PrivateGrpcServer
from tests.forked import start_python, wait_until
from tests.listening import Socket, listening, ports, reachable_from_outside, sampled
from tests.test_dead_workers import SPEC

NOBODY = 65534


@contextmanager
def services() -> Iterator[PrivateGrpcServer]:
    server = PrivateGrpcServer(StateServicer(), None, SimpleNamespace())
    try:
        yield server
    finally:
        server.close()


def urls(server: PrivateGrpcServer) -> list[str]:
    return [server.control_port, server.data_port, server.state_port, server.logging_port]


def own_sockets() -> set[Socket]:
    return listening([psutil.Process()])


def test_beams_services_for_workers_are_unix_sockets_of_this_user() -> None:
    before = own_sockets()
    with services() as server:
        folder = Path(urls(server)[0].removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {place for _, place in own_sockets() - before} == {url.removeprefix("unix:") for url in urls(server)}
        for url in urls(server):
            with grpc.insecure_channel(url) as channel:
                grpc.channel_ready_future(channel).result(timeout=30)
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_does_not_get_in() -> None:
    with services() as server:
        path = urls(server)[0].removeprefix("unix:")
        if (child := os.fork()) == 0:
            os.setuid(NOBODY)
            try:
                socket.socket(socket.AF_UNIX).connect(path)
            except PermissionError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", ["x" * 100, "%41 #?é"])
def test_a_temporary_folder_that_no_socket_can_have(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    with services() as server, grpc.insecure_channel(urls(server)[3]) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)


def test_the_pool_that_other_runners_call_is_on_the_loopback_address() -> None:
    before = own_sockets()
    address, server = BeamFnExternalWorkerPoolServicer.start()
    opened = own_sockets() - before
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
    server.stop(0).wait()
    assert opened
    assert not reachable_from_outside(opened)


def test_a_pool_beside_a_task_manager_is_on_the_loopback_address(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with open(tmp_path / "log", "wb") as log:
        command = ["-m", "recordmill.pipeline.build.beam.worker_pool", "--port", port]
        pool = start_python(*command, cwd=tmp_path, stdout=log.fileno(), stderr=log.fileno())
    try:
        wait_until(lambda: f"127.0.0.1:{port}".encode() in (tmp_path / "log").read_bytes() or not pool.is_alive())
        opened = {place for _, place in ports(listening([psutil.Process(pool.pid)]))}
    finally:
        pool.terminate()
        pool.join()
    assert opened == {f"127.0.0.1 {port}"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], pytest.param(["--isolated"], marks=pytest.mark.nightly)])
def test_a_build_opens_no_port(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "dataset.yaml").write_text(SPEC)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"id": {i}, "number": {i}, "text": "a b"}}\n' for i in range(200)))
    with open(tmp_path / "log", "wb") as log:
        command = ["-m", "recordmill", "build", "dataset.yaml", "--output", "out", *options]
        build = start_python(*command, cwd=tmp_path, stdout=log.fileno(), stderr=log.fileno())
    found = sampled(psutil.Process(build.pid), build.is_alive)
    assert build.exitcode == 0, (tmp_path / "log").read_text()
    assert not ports(found)  # `test_dead_workers` looks at a build of several processes
