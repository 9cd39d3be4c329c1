"""A small Flink cluster of HTTP alone: jobs that run until they are cancelled, over a real socket."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MEMORY = {"networkMemory": 192 << 20}
NOW = 1_795_000_000_000


class FakeFlink:
    """A cluster's answers; tests change them while it serves."""

    def __init__(self) -> None:
        self.url = ""
        self.overview = {"taskmanagers": 2, "slots-total": 4, "slots-available": 3, "flink-version": "1.19.3"}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.exceptions: dict[str, Any] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.cancels_in = 0
        """The number of looks at the jobs after which a cancelled job has ended."""
        self.takes_numbers = True
        self.status = 200

    def run(self, name: str, state: str = "RUNNING") -> str:
        """Adds a job; gives its id."""
        job = f"{len(self.jobs):032x}"
        self.jobs[job] = {"jid": job, "name": name, "state": state}
        return job

    def state(self, job: str) -> str:
        """Gives a job's state."""
        return str(self.jobs[job]["state"])

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Gives the status and the JSON for a request."""
        self.asked.append((method, path, body))
        if self.status != 200:
            return self.status, {}
        route = path.removeprefix("/v1").partition("?")[0].strip("/").split("/")
        match method, route:
            case "GET", ["overview"]:
                return 200, self.overview
            case "GET", ["taskmanagers"]:
                return 200, {
                    "taskmanagers": [{"slotsNumber": slots, "memoryConfiguration": MEMORY} for slots in (1, 3)]
                }
            case "GET", ["jobs", "overview"]:
                return 200, {"jobs": self._look()}
            case _, ["jobs", job, *_] if job not in self.jobs:
                return 404, {}
            case "GET", ["jobs", job]:
                return 200, self.jobs[job] | {"now": NOW}
            case "GET", ["jobs", job, "exceptions"]:
                return 200, self.exceptions
            case "PATCH", ["jobs", job]:
                self.jobs[job]["state"] = "CANCELLING"
                return 202, {}
            case "PATCH", ["jobs", job, "clientHeartbeat"]:
                return (200 if isinstance(body, int) == self.takes_numbers else 400), {}
        return 404, {}

    def _look(self) -> list[dict[str, Any]]:
        for job in self.jobs.values():
            if job["state"] == "CANCELLING":
                self.cancels_in -= 1
                if self.cancels_in < 0:
                    job["state"] = "CANCELED"
        return [dict(job) for job in self.jobs.values()]


@contextmanager
def fake_flink() -> Iterator[FakeFlink]:
    """Serves a cluster on a free port of the loopback address."""
    flink = FakeFlink()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = flink.answer(self.command, self.path, json.loads(content) if content else None)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_PATCH = _serve

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    flink.url = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield flink
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
