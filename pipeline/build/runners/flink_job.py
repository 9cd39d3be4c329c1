r"""A build's job on a Flink cluster: the cluster's REST interface, the job by its name, and why it failed.

Beam's Java runner puts the worker's whole Python traceback into the message of a Java exception, below its frames.

>>> trace = "Caused by: java.lang.IllegalStateException: call already closed\n\tat org.apache.beam.Fn(Fn.java:3)\n"
>>> cause_of(["org.apache.flink.runtime.JobException: Recovery is suppressed\n" + trace])[:43]
'a worker process died: call already closed;'
"""

import json
import re
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from recordmill.pipeline.build.runners.job import CANCEL_SECONDS, JobStillRunsError
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.safe_text import redacted, summary_of_text

TIMEOUT_SECONDS = 10.0
OPENER = build_opener(ProxyHandler({}))  # Flink's own client, in the job server, uses no proxy either
ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})  # final states
BAD_REQUEST, NOT_FOUND, CONFLICT = 400, 404, 409
LIFE_SECONDS: Final = 120.0  # a job ends this long after its driver's last sign of life (`client.heartbeat.timeout`)
POLL_SECONDS = 0.5
FAILURE_SECONDS = 5.0
JAVA = re.compile(
    r"^(?:Caused by: |Suppressed: )?((?:[a-z_]\w*\.)+[A-Z][\w$]*)(?:: (.*))?$(?:\n\tat (\S+))?", re.MULTILINE
)
PYTHON = re.compile(r"Traceback \(most recent call last\):.*?(?=^\tat |^Caused by: |\Z)", re.MULTILINE | re.DOTALL)
DEAD_WORKER = re.compile(
    "call already closed|Waited 3 minutes|Process died with exit code|UNAVAILABLE|Call already cancelled|Stream removed"
    "|CANCELLED: (client cancelled|cancelled before receiving half close)|SDK harness disconnected"
)  # Beam waits 3 minutes for a worker to start
REMEDY = "if memory ran out: more of it, fewer slots a TaskManager, or RECORDMILL_WORKER_THREADS=1 for the workers"
KILLED = "exit code 137"  # 128 and SIGKILL
# Flink's own messages name machines, slots and times; those of other classes may hold a row.
SAFE = ("org.apache.flink.", "java.util.concurrent.TimeoutException", "java.net.", "akka.", "org.apache.pekko.")
WORDS = 300  # characters of a message


class FlinkError(UserError):
    """A Flink cluster gives no answer, or an unexpected one."""


class NoFlinkAnswerError(FlinkError):
    """A Flink cluster does not answer now: it may be starting."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class Overview:
    """A cluster at one moment."""

    version: str  # Flink's version, such as 1.19.3
    task_managers: int
    slots: int
    free_slots: int


@dataclass(frozen=True)
class JobStatus:
    """A job at one moment."""

    id: str
    name: str
    state: str  # CREATED, RUNNING, FAILING, CANCELLING, …, or one of `ENDED`


class FlinkRest:
    """The REST interface at `HOST:PORT`, or at an `http://` or `https://` URL."""

    def __init__(self, master: str) -> None:
        """Parses the address. Raises: FlinkError: it lacks a host or a port."""
        self.url = (master if "://" in master else f"http://{master}").rstrip("/")
        try:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname or not parts.port:
                raise ValueError
        except ValueError:
            wanted = "give HOST:PORT of the JobManager's REST interface, such as localhost:8081"
            raise FlinkError(f"--flink-master '{master}' is not an address: {wanted}") from None
        self.address = f"{parts.hostname}:{parts.port}"  # the address for Beam's job server

    def overview(self) -> Overview:
        """Reads the cluster's version and slots."""
        with self._expecting("an overview"):
            seen = self._ask("/v1/overview")
            return Overview(seen["flink-version"], seen["taskmanagers"], seen["slots-total"], seen["slots-available"])

    def slots_per_worker(self) -> int:
        """Reads the number of slots of the largest TaskManager; 1 without TaskManagers."""
        with self._expecting("TaskManagers"):
            return max((each["slotsNumber"] for each in self._ask("/v1/taskmanagers")["taskmanagers"]), default=1)

    def has_wide_networks(self) -> bool:
        """Whether every TaskManager has the memory for blocking shuffles: 64 MiB of network buffers a slot."""
        with self._expecting("TaskManagers"):
            managers = self._ask("/v1/taskmanagers")["taskmanagers"]
            memory = (each.get("memoryConfiguration", {}).get("networkMemory", 0) for each in managers)
            of_slots = [size / each["slotsNumber"] for size, each in zip(memory, managers, strict=True)]
            return min(of_slots, default=0) >= 64 << 20

    def jobs(self) -> list[JobStatus]:
        """Lists the running jobs, and recently ended ones."""
        with self._expecting("jobs"):
            return [JobStatus(job["jid"], job["name"], job["state"]) for job in self._ask("/v1/jobs/overview")["jobs"]]

    def causes(self, job: str) -> list[str]:
        """Lists the stack traces of a job's failures, the newest first."""
        answer = self._ask(f"/v1/jobs/{job}/exceptions?maxExceptions=8")
        history = (answer.get("exceptionHistory") or {}).get("entries") or []
        found = [entry.get("stacktrace") for entry in history]
        return list(filter(None, found)) or list(filter(None, [answer.get("root-exception")]))

    def cancel(self, job: str) -> None:
        """Cancels a job, unless it has ended."""
        self._ask(f"/v1/jobs/{job}?mode=cancel", "PATCH", but={NOT_FOUND, CONFLICT})

    def beat(self, job: str, seconds: float) -> bool:
        """Keeps a job alive for `seconds` more, by the cluster's clock; returns whether Flink has restarted it."""
        seen = self._ask(f"/v1/jobs/{job}", but={NOT_FOUND})
        if seen is None:
            return False
        expires, path = seen["now"] + round(1000 * seconds), f"/v1/jobs/{job}/clientHeartbeat"
        # Flink 1.19 takes the bare number; its documentation says an object.
        if self._ask(path, "PATCH", expires, {BAD_REQUEST, NOT_FOUND, CONFLICT}) is None:
            self._ask(path, "PATCH", {"expiredTimestamp": expires}, {BAD_REQUEST, NOT_FOUND, CONFLICT})
        return bool(seen.get("timestamps", {}).get("RESTARTING"))

    def page(self, job: str) -> str:
        """Describes a job's page; its link would hold a `#`, and messages hide the rest of a URL after it as secret."""
        return f"{self.url}, job {job}"

    @contextmanager
    def _expecting(self, answer: str) -> Iterator[None]:
        """Turns errors on JSON of another shape, such as a proxy's, into a `FlinkError`."""
        try:
            yield
        except (KeyError, TypeError, AttributeError):
            raise FlinkError(f"{self.url} is not a Flink cluster: it answers with JSON, but not {answer}") from None

    def _ask(self, path: str, method: str = "GET", body: Any = None, but: Collection[int] = ()) -> Any:
        """Sends a request; returns the answer's JSON; None for a status in `but`."""
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
            reason = f"{getattr(error, 'reason', error)}; is --flink-master the JobManager's REST interface?"
            raise NoFlinkAnswerError(f"the Flink cluster at {self.url} does not answer: {reason}") from None
        except ValueError:
            raise FlinkError(f"{self.url} is not a Flink cluster: its answer to {path} is not JSON") from None


def job_name(build: str) -> str:
    """Makes a unique name for a job of a build: `prefix` and a random suffix."""
    return f"{prefix(build)}{secrets.token_hex(4)}"


def prefix(build: str) -> str:
    """Makes the common prefix of the names of a build's jobs, from the build's key."""
    return f"recordmill-{build[:16]}-"


class FlinkJob:
    """`job.Job` on Flink."""

    def __init__(self, cluster: FlinkRest, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.state = self.url = ""

    def poll(self) -> None:
        """Reads the state; keeps a running job alive, and cancels a restarted one: memory holds its first try."""
        for job in self._jobs():
            self.state, self.url = job.state, self.cluster.page(job.id)
            if job.state not in ENDED and self.cluster.beat(job.id, LIFE_SECONDS):
                self.cluster.cancel(job.id)

    def cancel(self, timeout_seconds: float = CANCEL_SECONDS) -> None:
        """Cancels the job and waits for its end."""
        cancel_all(self.cluster, self.name, timeout_seconds)

    def failure(self) -> str:
        """Describes why the job failed, in one line with its page."""
        end = time.monotonic() + FAILURE_SECONDS  # the driver may learn of it before the JobManager lists it
        try:
            while jobs := self._jobs():
                page = self.cluster.page(jobs[0].id)
                if causes := self.cluster.causes(jobs[0].id):
                    return f"the Flink job failed: {cause_of(causes)} ({page})"
                if jobs[0].state == "CANCELED":
                    return f"the Flink job was cancelled ({page})"
                if time.monotonic() > end:
                    break
                time.sleep(POLL_SECONDS)
        except FlinkError as error:
            return f"the Flink job failed, and {error}"
        return ""

    def _jobs(self) -> list[JobStatus]:
        return [job for job in self.cluster.jobs() if job.name == self.name]


def cancel_all(cluster: FlinkRest, name: str, timeout_seconds: float = CANCEL_SECONDS) -> list[JobStatus]:
    """Cancels the jobs with a name prefix; returns them after their ends. Raises: JobStillRunsError: not in time."""
    cancelled: dict[str, JobStatus] = {}
    end = time.monotonic() + timeout_seconds
    while running := [job for job in cluster.jobs() if job.name.startswith(name) and job.state not in ENDED]:
        for job in running:
            if job.id not in cancelled:
                cluster.cancel(job.id)
                cancelled[job.id] = job
        if time.monotonic() > end:
            pages = ", ".join(cluster.page(job.id) for job in running)
            raise JobStillRunsError(f"a cancelled Flink job still runs after {timeout_seconds:.0f} s: see {pages}")
        time.sleep(POLL_SECONDS)
    return list(cancelled.values())


def cause_of(traces: Sequence[str]) -> str:
    """Finds the cause of a job's failure in its stack traces, the newest first."""
    text = "\n".join(traces)
    if traceback := PYTHON.search(text):
        return f"a worker raised {summary_of_text(traceback[0])}"
    found = [(match[1], match[2] or "", match[3] or "") for match in JAVA.finditer(text)]
    for _, message, _ in reversed(found):
        if DEAD_WORKER.search(message):
            reason = ", most likely because memory ran out" if KILLED in message else ""
            return f"a worker process died{reason}: {_shown(message)}; {REMEDY}"
    for name, message, frame in reversed(found):
        if message and (name.startswith(SAFE) or frame.startswith("org.apache.flink.")):
            return f"{_short(name)}: {_shown(message)}"
    return _short(found[-1][0]) if found else "the cluster gives no reason"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _shown(message: str) -> str:
    return redacted(message.strip())[:WORDS]
