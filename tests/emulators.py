"""Object stores on this machine, which real clients talk to: moto's S3, and gcp-storage-emulator.

The GCS emulator knows no conditions: it takes `ifGenerationMatch`, and ignores it. `gcs(conditions=True)` adds them to
the server, for writing and deleting: 412 where the object's generation is another one. moto looks at a condition and
then writes, without a lock between; here its writes come one after another, as in S3.
"""

import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlparse

import boto3
import botocore.session
import pytest
from gcp_storage_emulator.server import Router, create_server
from gcp_storage_emulator.storage import Storage
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

BUCKET = "bucket"
EVERY_STORE = ["local", pytest.param("s3", marks=pytest.mark.slow), pytest.param("gcs", marks=pytest.mark.nightly)]
"""The outputs of a test that shows what each store's client does."""
EVERY_BUCKET = EVERY_STORE[1:]
ONE_STORE = ["local", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("s3", "gcs"))]
"""The outputs of a test that shows what Recordmill does with any store whose client keeps its promises."""
ONE_BUCKET = ONE_STORE[1:]
"""The outputs of such a test of what happens in buckets alone."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def _start_s3() -> str:
    """Starts the server, once a process; gives its address."""
    # Each new session would parse 2 MB of JSON.
    vars(botocore.session)["create_loader"] = cache(botocore.session.create_loader)
    put, delete, lock = S3Response.put_object, S3Response.delete_object, threading.Lock()

    def knowing(self: Any, action: str) -> Any:
        dropped = {header for act, header in _Conditions.ignored if act == action}
        self.headers = {name: value for name, value in dict(self.headers).items() if name.lower() not in dropped}
        return self

    def one_by_one(self: Any) -> Any:
        with lock:
            return put(knowing(self, "put"))

    S3Response.put_object = one_by_one
    S3Response.delete_object = lambda self: delete(knowing(self, "delete"))
    server = ThreadedMotoServer("127.0.0.1", port=free_port(), verbose=False)
    server.start()  # in a daemon thread: it ends with the process
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


@contextmanager
def s3(*ignored: tuple[str, str]) -> Iterator[str]:
    """Yields the URL of an empty folder; the environment names the server.

    It ignores some conditions, each a `put` or a `delete` and the name of the header, in small letters.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Conditions, "ignored", ignored)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", _start_s3())
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}/{uuid.uuid4().hex}/set"


class Road:
    """The way to a server, by an address of its own, closed for a while where a test asks: connections end."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self.port, self._open = free_port(), list[socket.socket]()
        self.open()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._server)
                self._open += (client, server)
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                to.sendall(data)
        for each in (source, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def s3_by_a_road() -> Iterator[tuple[str, Road]]:
    """Yields what `s3` does, and the proxy that connects this process and its children to it."""
    with s3() as url, pytest.MonkeyPatch.context() as patch:
        host, port = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://").split(":")
        road = Road(host, int(port))
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{road.port}")
        yield url, road
        road.close()


@cache
def _start_gcs() -> str:
    """Starts the server, once a process; gives its address."""
    _add_conditions()
    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True)
    server._api.daemon = True  # it ends with the process
    server.start()
    return f"http://127.0.0.1:{port}"


@contextmanager
def gcs(*, conditions: bool) -> Iterator[str]:
    """Yields the URL of an empty folder; the environment names the server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", _start_gcs())
        _Conditions.are_known = conditions
        client = storage.Client(project="test", credentials=AnonymousCredentials())
        if not client.lookup_bucket(BUCKET):
            client.create_bucket(BUCKET)
        yield f"gs://{BUCKET}/{uuid.uuid4().hex}/set"


class _Conditions:
    are_known = False
    ignored: tuple[tuple[str, str], ...] = ()


class _Refused(Exception):
    pass


def _add_conditions() -> None:
    wanted, lock = threading.local(), threading.RLock()
    handle, create, delete = Router.handle, Storage.create_file, Storage.delete_file

    def check(store: Any, bucket: str, name: str) -> None:
        found = store.objects.get(bucket, {}).get(name, {}).get("generation", "0")
        if _Conditions.are_known and wanted.generation is not None and wanted.generation != found:
            raise _Refused

    def checked(self: Any, method: str) -> None:
        request = self._request_handler
        wanted.generation = parse_qs(urlparse(request.path).query).get("ifGenerationMatch", [None])[0]
        with lock:
            try:
                handle(self, method)
            except _Refused:
                body = json.dumps({"error": {"code": 412, "message": "conditionNotMet"}}).encode()
                request.send_response(412)
                request.send_header("Content-Length", str(len(body)))
                request.end_headers()
                request.wfile.write(body)

    def checked_create(self: Any, bucket: str, name: str, *rest: Any) -> Any:
        check(self, bucket, name)
        return create(self, bucket, name, *rest)

    def checked_delete(self: Any, bucket: str, name: str) -> Any:
        check(self, bucket, name)
        return delete(self, bucket, name)

    Router.handle, Storage.create_file, Storage.delete_file = checked, checked_create, checked_delete
