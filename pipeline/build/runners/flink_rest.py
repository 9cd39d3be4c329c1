"""The REST interface of a Flink cluster, as far as a build needs it.

>>> cluster = FlinkRest("localhost:8081")   # doctest: +SKIP
>>> cluster.overview().free_slots           # doctest: +SKIP
4
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode

TIMEOUT_SECONDS = 10.0
OPENER = build_opener(ProxyHandler({}))  # Flink's own client, in the job server, uses no proxy either
ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})
"""The states in which a job stays for ever."""
BAD_REQUEST, NOT_FOUND, CONFLICT = 400, 404, 409


class FlinkError(UserError):
    """A Flink cluster does not answer, or not as expected."""


class NoFlinkAnswerError(FlinkError):
    """A Flink cluster does not answer now: it may be starting."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class Overview:
    """A cluster at one moment."""

    version: str
    """Flink's version, such as 1.19.3."""
    task_managers: int
    slots: int
    free_slots: int


@dataclass(frozen=True)
class JobStatus:
    """A job at one moment."""

    id: str
    name: str
    state: str
    """CREATED, RUNNING, FAILING, CANCELLING, …, or one of `ENDED`."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has reached its last state."""
        return self.state in ENDED


class FlinkRest:
    """The REST interface at `HOST:PORT`, or at an `http://` or `https://` URL."""

    def __init__(self, master: str) -> None:
        """Connects to nothing yet.

        Raises:
            FlinkError: the address has no host or no port.
        """
        self.url = (master if "://" in master else f"http://{master}").rstrip("/")
        try:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname or not parts.port:
                raise ValueError
        except ValueError:
            raise FlinkError(
                f"--flink-master '{master}' is no address: give HOST:PORT of the JobManager's REST interface, such as "
                "localhost:8081"
            ) from None
        self.address = f"{parts.hostname}:{parts.port}"
        """The address as Beam's job server takes it."""

    def overview(self) -> Overview:
        """Reads the cluster's version and slots."""
        with self._expecting("an overview"):
            seen = self._ask("/v1/overview")
            return Overview(seen["flink-version"], seen["taskmanagers"], seen["slots-total"], seen["slots-available"])

    def slots_per_worker(self) -> int:
        """Reads the number of slots of the largest TaskManager; 1 without any."""
        with self._expecting("TaskManagers"):
            return max((manager["slotsNumber"] for manager in self._ask("/v1/taskmanagers")["taskmanagers"]), default=1)

    def jobs(self) -> list[JobStatus]:
        """Lists the jobs that run, and those that ended a while ago."""
        with self._expecting("jobs"):
            return [JobStatus(job["jid"], job["name"], job["state"]) for job in self._ask("/v1/jobs/overview")["jobs"]]

    def causes(self, job: str) -> list[str]:
        """Lists the stack traces of a job's failures, the newest first."""
        answer = self._ask(f"/v1/jobs/{job}/exceptions?maxExceptions=8")
        history = (answer.get("exceptionHistory") or {}).get("entries") or []
        return [entry["stacktrace"] for entry in history if entry.get("stacktrace")] or [
            text for text in [answer.get("root-exception")] if text
        ]

    def cancel(self, job: str) -> None:
        """Cancels a job; does nothing to one that has ended."""
        self._ask(f"/v1/jobs/{job}?mode=cancel", "PATCH", but={NOT_FOUND, CONFLICT})

    def beat(self, job: str, seconds: float) -> bool:
        """Lets a job live for so many seconds more, by the cluster's clock; returns whether Flink has restarted it."""
        seen = self._ask(f"/v1/jobs/{job}", but={NOT_FOUND})
        if seen is None:
            return False
        expires, path = seen["now"] + round(1000 * seconds), f"/v1/jobs/{job}/clientHeartbeat"
        # Flink 1.19 takes the number alone, where its documents have an object.
        if self._ask(path, "PATCH", expires, {BAD_REQUEST, NOT_FOUND, CONFLICT}) is None:
            self._ask(path, "PATCH", {"expiredTimestamp": expires}, {BAD_REQUEST, NOT_FOUND, CONFLICT})
        return bool(seen.get("timestamps", {}).get("RESTARTING"))

    def page(self, job: str) -> str:
        """Says where people see a job; the link to it would hold a `#`, after which URLs may have secrets."""
        return f"{self.url}, job {job}"

    @contextmanager
    def _expecting(self, answer: str) -> Iterator[None]:
        """Turns JSON of another shape, such as a proxy's, into a `FlinkError`."""
        try:
            yield
        except (KeyError, TypeError, AttributeError):
            raise FlinkError(f"{self.url} is no Flink cluster: it answers with JSON, but not with {answer}") from None

    def _ask(self, path: str, method: str = "GET", body: Any = None, but: Collection[int] = ()) -> Any:
        """Sends a request; returns the answer's JSON, or None for a status among `but`."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
        try:
            with OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
                return json.loads(answer.read() or b"{}")
        except HTTPError as error:
            if error.code in but:
                return None
            raise FlinkError(f"the Flink cluster at {self.url} answered {path} with HTTP {error.code}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise NoFlinkAnswerError(
                f"the Flink cluster at {self.url} does not answer: {reason}; is --flink-master the address of the "
                "JobManager's REST interface?"
            ) from None
        except ValueError:
            raise FlinkError(f"{self.url} is no Flink cluster: its answer to {path} is no JSON") from None
