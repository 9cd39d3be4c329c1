"""A build's job on a Flink cluster, found by its name."""

import secrets
import time
from typing import Final

from recordmill.pipeline.build.runners.flink_errors import cause_of
from recordmill.pipeline.build.runners.flink_rest import FlinkError, FlinkRest, JobStatus
from recordmill.pipeline.build.runners.job import CANCEL_SECONDS, JobStillRunsError

LIFE_SECONDS: Final = 120.0
"""The time after its driver's last sign of life in which a job ends (`client.heartbeat.timeout`)."""
POLL_SECONDS = 0.5
FAILURE_SECONDS = 5.0


def job_name(build: str) -> str:
    """Makes the name of a new job of a build: no two jobs share it, and all of the build's jobs share its beginning."""
    return f"{prefix(build)}{secrets.token_hex(4)}"


def prefix(build: str) -> str:
    """The beginning of the names of a build's jobs; `build` is its key."""
    return f"recordmill-{build[:16]}-"


class FlinkJob:
    """`job.Job` on Flink."""

    def __init__(self, cluster: FlinkRest, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.state = self.url = ""

    def poll(self) -> None:
        """Reads the state; lets a running job live for `LIFE_SECONDS` more.

        A job that the cluster has restarted by itself is cancelled: the workers' memory still holds its first try, so
        the driver begins a new attempt instead. Flink 1.19 takes no setting for that with the job.
        """
        for job in self._jobs():
            self.state, self.url = job.state, self.cluster.page(job.id)
            if not job.has_ended and self.cluster.beat(job.id, LIFE_SECONDS):
                self.cluster.cancel(job.id)

    def cancel(self, timeout_seconds: float = CANCEL_SECONDS) -> None:
        """Cancels the job and waits for its end."""
        cancel_all(self.cluster, self.name, timeout_seconds)

    def failure(self) -> str:
        """Describes why the job failed, in one line that names its page."""
        end = time.monotonic() + FAILURE_SECONDS  # the driver may hear of it before the JobManager has written it down
        try:
            while jobs := self._jobs():
                if (text := self._failure_of(jobs[0])) or time.monotonic() > end:
                    return text
                time.sleep(POLL_SECONDS)
        except FlinkError as error:
            return f"the Flink job failed, and {error}"
        return ""

    def _failure_of(self, job: JobStatus) -> str:
        page = self.cluster.page(job.id)
        if causes := self.cluster.causes(job.id):
            return f"the Flink job failed: {cause_of(causes)} ({page})"
        return f"the Flink job was cancelled ({page})" if job.state == "CANCELED" else ""

    def _jobs(self) -> list[JobStatus]:
        return [job for job in self.cluster.jobs() if job.name == self.name]


def cancel_all(cluster: FlinkRest, name: str, timeout_seconds: float = CANCEL_SECONDS) -> list[JobStatus]:
    """Cancels the jobs whose names begin so, and waits for their ends; returns those that were running.

    Raises:
        JobStillRunsError: a job did not end in time.
        FlinkError: the cluster does not answer.
    """
    cancelled: dict[str, JobStatus] = {}
    end = time.monotonic() + timeout_seconds
    while running := [job for job in cluster.jobs() if job.name.startswith(name) and not job.has_ended]:
        for job in running:
            if job.id not in cancelled:
                cluster.cancel(job.id)
                cancelled[job.id] = job
        if time.monotonic() > end:
            pages = ", ".join(cluster.page(job.id) for job in running)
            raise JobStillRunsError(f"a cancelled Flink job still runs after {timeout_seconds:.0f} s: see {pages}")
        time.sleep(POLL_SECONDS)
    return list(cancelled.values())
