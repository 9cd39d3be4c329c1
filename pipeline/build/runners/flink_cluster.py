"""A Flink cluster with a job server of this process for it: what `--runner flink` needs before Beam."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from recordmill.pipeline.build.runners.errors import RunnerError
from recordmill.pipeline.build.runners.flink_job import LIFE_SECONDS, cancel_all, prefix
from recordmill.pipeline.build.runners.flink_rest import FlinkError, FlinkRest
from recordmill.pipeline.build.runners.jars import find_jar
from recordmill.pipeline.build.runners.job_server import JobServer, find_java, flink_server, java_version
from recordmill.pipeline.build.runners.options import FlinkOptions
from recordmill.pipeline.build.runners.presets import (
    SLOT_SECONDS,
    flink_configuration,
    flink_presets,
    option_names,
    with_presets,
)
from recordmill.pipeline.build.runners.versions import PAIRS, pair_for


class FlinkCluster:
    """A cluster by its options; nothing is started or asked before it is needed."""

    def __init__(self, options: FlinkOptions, repository: str = "") -> None:
        """Takes the options, and the Maven repository to fetch the job server from.

        Raises:
            RunnerError: no address is given.
            FlinkError: the address has no host or no port.
        """
        if not options.master:
            raise RunnerError(
                "--runner flink needs --flink-master HOST:PORT, the address of the cluster's REST interface"
            )
        self.options, self.rest, self._repository = options, FlinkRest(options.master), repository
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: JobServer | None = None
        self._has_answered = False

    def jar(self) -> str:
        """Names the job server's jar: the one given, or the coordinates that fit the cluster's version.

        Raises:
            RunnerError: Beam has no runner for the cluster's version.
            FlinkError: the cluster does not answer.
        """
        if self.options.jar:
            return self.options.jar
        version = self.rest.overview().version
        if (pair := pair_for(version)) is None:
            known = ", ".join(pair.flink for pair in PAIRS)
            raise RunnerError(
                f"the cluster at {self.rest.url} is Flink {version}, and Beam has job servers for {known}: give "
                "another cluster, or a job server of your own with --flink-jar"
            )
        return pair.coordinates

    def arguments(self, given: Sequence[str], job: str, attempt: str) -> list[str]:
        """Gives the options of a job: the presets (`presets.flink_presets`), then those that the user gives."""
        return with_presets(given, flink_presets(self.rest, self.options, option_names(given), job, attempt))

    def start(self) -> str:
        """Starts the job server, unless it runs; gives its address.

        Raises:
            RunnerError: the jar is missing, or is not the one that it was.
            JobServerError: Java is missing, or the server does not start.
        """
        if self._server is None:
            java = find_java()
            java_version(java)
            jar = find_jar(self.jar(), self.options.jar_sha256, self._repository)
            self._folder = tempfile.TemporaryDirectory(prefix="flink-")
            folder = Path(self._folder.name)
            (folder / "config.yaml").write_text(flink_configuration(LIFE_SECONDS), encoding="ascii")
            command = flink_server(java, str(jar), self.rest.address, str(folder), str(folder / "staged"))
            self._server = JobServer(command, str(folder))
        self._server.start()
        return self._server.endpoint

    def stop(self) -> None:
        """Stops the job server, if it runs."""
        if self._server is not None:
            self._server.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def cancel_old_jobs(self, build_key: str, on_note: Callable[[str], None]) -> None:
        """Cancels the jobs of a build that a dead driver left, and waits for their ends.

        Raises:
            JobStillRunsError: a job did not end in time.
            FlinkError: the cluster does not answer.
        """
        self._wait_for_answer()
        for job in cancel_all(self.rest, prefix(build_key)):
            on_note(f"the Flink job {job.id} of a driver that is gone was cancelled")

    def _wait_for_answer(self) -> None:
        """Waits for a cluster that answered before and does not now: its JobManager may be on its way back.

        Raises:
            FlinkError: it does not answer in time, or has never answered.
        """
        end = time.monotonic() + (SLOT_SECONDS if self._has_answered else 0)
        while True:
            try:
                self.rest.overview()
            except FlinkError:
                if time.monotonic() >= end:
                    raise
                time.sleep(1)
            else:
                self._has_answered = True
                return
