"""Google's Dataflow service on this machine: its REST API on loopback, which Beam's real client talks to.

It keeps the rules that a driver meets: one active job of a name in a region, states that only go forward, a request to
cancel, messages of a job. `Executed` jobs really run: a process of their own reads the graph that the driver staged
in the bucket and runs it as Beam's local runner does. `Scripted` ones only pass through states, one a look.
"""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlparse

import pytest

CANCELLED = 5  # the client sends numbers for names
WORKER_IP_PRIVATE = 2
OVER = ("JOB_STATE_DONE", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")
REPOSITORY = Path(__file__).parents[1]
Json = dict[str, Any]


class Run(Protocol):
    """The states and messages that a fake job goes through."""

    def state(self) -> str: ...
    def cancel(self) -> None: ...
    def errors(self) -> list[str]: ...


class Scripted:
    """Passes through the states, one a look; the last one stays, or that of a cancelled job."""

    def __init__(self, *states: str, errors: tuple[str, ...] = ()) -> None:
        self._states, self._errors = list(states), list(errors)

    def state(self) -> str:
        return f"JOB_STATE_{self._states.pop(0) if len(self._states) > 1 else self._states[0]}"

    def cancel(self) -> None:
        self._states = ["CANCELLING", "CANCELLED"]

    def errors(self) -> list[str]:
        return self._errors


class Executed:
    """Runs the staged graph in a process without the driver's memory; to cancel it kills the process."""

    def __init__(self, job: Json, folder: Path) -> None:
        options = job["environment"]["sdkPipelineOptions"]["options"]
        work = Path(tempfile.mkdtemp(prefix="worker-", dir=folder))  # no path of the driver's is relative to this one
        self._log = work / "log"
        self._cancelled = False
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.dataflow_worker", json.dumps(options), str(work)],
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def state(self) -> str:
        status = self.process.poll()
        if self._cancelled and status is not None:
            return "JOB_STATE_CANCELLED"
        return {None: "JOB_STATE_RUNNING", 0: "JOB_STATE_DONE"}.get(status, "JOB_STATE_FAILED")

    def cancel(self) -> None:
        self._cancelled = True
        self.process.kill()

    def errors(self) -> list[str]:
        return [self._log.read_text(errors="replace")[-4_000:]] if self.process.poll() else []


@dataclass
class Job:
    """A job as the service keeps it."""

    proto: Json
    run: Run
    asked_to_cancel: bool = False
    current: str = "JOB_STATE_PENDING"

    def look(self) -> Json:
        if self.current not in OVER:
            self.current = self.run.state()
        return self.proto | {"currentState": self.current}


@dataclass
class DataflowService:
    """The jobs, and how the next one runs."""

    folder: Path
    url: str = ""
    start: Callable[[Json], Run] = lambda job: Scripted("DONE")
    jobs: dict[str, Job] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    refusal: tuple[int, str] | None = None
    """The status and message with which every new job is refused."""
    failures: dict[str, list[int]] = field(default_factory=dict)
    """Statuses that the next requests of a kind get (LIST, GET, MESSAGES, PUT); 0 closes the connection."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def execute(self, job: Json) -> Run:
        return Executed(job, self.folder)

    def create(self, proto: Json) -> Json:
        for job in self.jobs.values():
            if job.proto["name"] == proto["name"] and job.look()["currentState"] not in OVER:
                return job.look()  # with its own clientRequestId, by which the client knows it
        identity = f"2026-11-22_{len(self.jobs):06}"
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        proto = proto | {"id": identity, "createTime": now}
        self.jobs[identity] = Job(proto, self.start(proto))
        return proto | {"currentState": "JOB_STATE_PENDING"}

    def update(self, identity: str, request: Json) -> Json:
        job = self.jobs[identity]
        if request.get("requestedState") == CANCELLED and job.look()["currentState"] not in OVER:
            job.asked_to_cancel = True
            job.run.cancel()
        return job.look()

    def active(self) -> Json:
        jobs = [job.look() for job in self.jobs.values()]
        return {"jobs": [job for job in jobs if job["currentState"] not in OVER]}

    def messages(self, identity: str) -> Json:
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return {
            "jobMessages": [
                {"id": str(index), "time": now, "messageText": text, "messageImportance": "JOB_MESSAGE_ERROR"}
                for index, text in enumerate(self.jobs[identity].run.errors())
            ]
        }

    def states(self) -> list[str]:
        """Lists the states of all jobs, in the order of their beginning."""
        return [job.look()["currentState"] for job in self.jobs.values()]


def _handler(service: DataflowService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            *_, last = parts = urlparse(self.path).path.strip("/").split("/")
            if last == "messages":
                self._answer("MESSAGES", lambda: service.messages(parts[-2]))
            elif last == "jobs":
                self._answer("LIST", service.active)  # the filter that the driver asks for
            else:
                self._answer("GET", lambda: service.jobs[last].look())

        def do_POST(self) -> None:
            proto = self._body()
            if service.failures.get("POST"):  # the job begins, and the answer gets lost
                service.create(proto)
                self._reply(service.failures["POST"].pop(0), {})
            elif service.refusal:
                self._reply(service.refusal[0], {"error": {"code": service.refusal[0], "message": service.refusal[1]}})
            else:
                self._answer("POST", lambda: service.create(proto))

        def do_PUT(self) -> None:
            request, identity = self._body(), urlparse(self.path).path.rpartition("/")[2]
            self._answer("PUT", lambda: service.update(identity, request))

        def _body(self) -> Json:
            return json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")

        def _answer(self, kind: str, function: Callable[[], Json]) -> None:
            with service.lock:
                service.requests.append((self.command, self.path))
                try:
                    if failures := service.failures.get(kind):
                        status = failures.pop(0)
                        answer: Json = {"error": {"code": status, "message": "this request failed"}}
                    else:
                        status, answer = 200, function()
                except KeyError as error:
                    status, answer = 404, {"error": {"code": 404, "message": f"no job {error}"}}
            if status:
                self._reply(status, answer)

        def _reply(self, status: int, answer: Json) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    return Handler


@contextmanager
def dataflow_service(folder: Path) -> Iterator[DataflowService]:
    """Starts the service, and gives this process credentials for it; ends the jobs that still run."""
    service = DataflowService(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
    service.url = f"http://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(write_credentials(folder / "credentials.json")))
        try:
            yield service
        finally:
            server.shutdown()
            server.server_close()
            for job in service.jobs.values():
                job.run.cancel()


def write_credentials(path: Path) -> Path:
    """Writes credentials with a token that never ends: without any, each process looks for some for 20 s."""
    user = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}
    path.write_text(json.dumps(user | {"token": "d", "expiry": "2999-01-01T00:00:00Z"}))
    return path
