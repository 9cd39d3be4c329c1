"""A Flink cluster for a build: its job server, and presets of its jobs, which the user's options override.

>>> with_presets(["--parallelism=4"], {"parallelism": "8", "job_name": "a"})
['--job_name=a', '--parallelism=4']
"""

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recordmill.pipeline.build.runners import job_server
from recordmill.pipeline.build.runners.flink_job import LIFE_SECONDS, FlinkError, FlinkRest, cancel_all, prefix
from recordmill.pipeline.build.runners.job import RunnerError

WORKER = "recordmill-worker"
POOL = re.compile(r"[\w.-]+:\d+")
SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
SLOT_SECONDS = 180.0
CACHE_MILLISECONDS = 5_000
"""The life of an idle worker, which Beam keeps for a later step of the same job only. Steps follow one another sooner,
except after a long sort; and it holds 0.3 GB or more while the next job's workers run."""
ENVIRONMENT = ("environment_type", "environment_config", "environment_options")
EXCHANGES = "execution_mode_for_batch"
"""An option of the job server: with `BATCH` a job frees the slots of an ended step, for other jobs. Flink
2 always does, and its job server may not know the option."""
CONFIGURATION = f"""\
restart-strategy.type: none
execution.attached: true
execution.shutdown-on-attached-exit: true
client.heartbeat.timeout: {round(1000 * LIFE_SECONDS)}
"""
"""Flink's `config.yaml` for the jobs.

Flink must not restart a job, because its workers' memory still holds the first try: the driver begins a new attempt
instead. Flink 1.19 ignores this setting for batch jobs, so the driver watches for restarts, too. A job also ends if its
driver shows no sign of life for a while: Flink checks that for a job attached to its client."""
ATTEMPT = "RECORDMILL_ATTEMPT"
"""A variable of the workers' environment, different for each attempt: Flink reuses a dead worker's environment."""


@dataclass(frozen=True)
class FlinkOptions:
    """The options of `--runner flink`; all but `master` and `jar` have working presets."""

    master: str = ""
    """The address of the cluster's REST interface, `HOST:PORT`."""
    jar: str = ""
    """The file of Beam's job server for the cluster's version of Flink (`job_server.PAIRS`)."""
    jar_sha256: str = ""
    """The required digest of the jar."""
    workers: str = ""
    """`HOST:PORT` of a worker pool next to each TaskManager, or the path of a worker's program for it to start; by
    default `recordmill-worker` of this environment."""


def find_jar(options: FlinkOptions) -> Path:
    """Finds the given jar. Raises: RunnerError: it is missing or another; or, without one, names the needed jar."""
    jar, sha256 = Path(options.jar), options.jar_sha256
    if sha256 and not SHA256.fullmatch(sha256):
        raise RunnerError(f"--flink-jar-sha256 '{sha256}' is not a SHA-256: give its 64 hexadecimal digits")
    if options.jar:
        if not jar.is_file():
            raise RunnerError(f"the jar {jar} is missing: --flink-jar names a file")
        if sha256 and (now := job_server.digest(jar)) != sha256.lower():
            raise RunnerError(f"{jar} has the SHA-256 {now}, not {sha256}, and is not started")
        return jar
    version = FlinkRest(options.master).overview().version if options.master else job_server.PAIRS[0].flink
    flink = f"Flink {version}" + (f" at {options.master}" if options.master else "")
    if (pair := job_server.pair_for(version)) is None:
        known = ", ".join(pair.flink for pair in job_server.PAIRS)
        raise RunnerError(
            f"{flink}: Beam has job servers for {known}: give another cluster, or your own job server with --flink-jar"
        )
    raise RunnerError(
        f"{flink} needs Beam's job server {pair.beam}: fetch it by `curl -fO {pair.address}`, and name the file with "
        "--flink-jar or RECORDMILL_FLINK_JAR"
    )


class FlinkCluster:
    """A cluster by its options; starts and asks nothing before it is needed. Raises: RunnerError: no good address."""

    def __init__(self, options: FlinkOptions) -> None:
        if not options.master:
            raise RunnerError(
                "--runner flink needs --flink-master HOST:PORT, the address of the cluster's REST interface"
            )
        self.options, self.rest = options, FlinkRest(options.master)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: job_server.JobServer | None = None
        self._has_answered = False

    def arguments(self, given: Sequence[str], job: str, attempt: str) -> list[str]:
        """Returns the options of a job: the presets (`flink_presets`), then the user's own."""
        return with_presets(given, flink_presets(self.rest, self.options, option_names(given), job, attempt))

    def start(self) -> str:
        """Starts the job server, unless it runs; returns its address.

        Raises: RunnerError: the jar is missing or another, Java is missing, or the server does not start.
        """
        if self._server is None:
            java = job_server.find_java()
            job_server.java_version(java)
            jar = find_jar(self.options)
            self._folder = tempfile.TemporaryDirectory(prefix="flink-")
            folder = Path(self._folder.name)
            (folder / "config.yaml").write_text(CONFIGURATION, encoding="ascii")
            command = job_server.flink_server(java, str(jar), self.rest.address, str(folder), str(folder / "staged"))
            self._server = job_server.JobServer(command, str(folder))
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

        Raises: JobStillRunsError: a job did not end in time. FlinkError: the cluster does not answer.
        """
        end = time.monotonic() + (SLOT_SECONDS if self._has_answered else 0)
        while True:  # a cluster that answered before may be restarting its JobManager
            try:
                jobs = cancel_all(self.rest, prefix(build_key))
                break
            except FlinkError:
                if time.monotonic() >= end:
                    raise
                time.sleep(1)
        self._has_answered = True
        for job in jobs:
            on_note(f"cancelled the Flink job {job.id} of a dead driver")


def option_names(arguments: Sequence[str]) -> set[str]:
    """Lists the names of options among arguments, without dashes and values."""
    return {argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--")}


def with_presets(arguments: Sequence[str], presets: Mapping[str, str]) -> list[str]:
    """Prepends the presets to the user's options, without those that the user gives."""
    given = option_names(arguments)
    if given & {*ENVIRONMENT}:
        given |= {*ENVIRONMENT}  # they make sense only together
    return [*(f"--{name}={value}" for name, value in presets.items() if name not in given), *arguments]


def flink_presets(
    cluster: FlinkRest, options: FlinkOptions, given: Collection[str], job: str, attempt: str
) -> dict[str, str]:
    """Makes the presets of a job on Flink, from the cluster's state now.

    `given` are the names of the user's options for Beam; each `attempt` has another name. Raises: RunnerError: no slot
    becomes free, or the workers' program is missing. FlinkError: the cluster does not answer.
    """
    slots = {} if "parallelism" in given else {"parallelism": str(free_slots(cluster))}
    return {
        "job_name": job,
        "flink_master": cluster.address,
        **slots,
        **({EXCHANGES: "BATCH"} if cluster.has_wide_networks() else {}),
        "sdk_worker_parallelism": str(cluster.slots_per_worker()),
        "environment_cache_millis": str(CACHE_MILLISECONDS),
        **({} if {*ENVIRONMENT} & {*given} else worker_environment(options.workers, attempt)),
    }


def free_slots(cluster: FlinkRest, timeout_seconds: float = SLOT_SECONDS) -> int:
    """Counts the free slots; waits for the first, as a lost TaskManager may be restarting. Raises: RunnerError."""
    end = time.monotonic() + timeout_seconds
    while not (seen := cluster.overview()).free_slots:
        if time.monotonic() > end:
            raise RunnerError(
                f"the Flink cluster at {cluster.url} has {seen.slots:,} slots on {seen.task_managers:,} TaskManagers, "
                "none of them free: wait for its jobs, add TaskManagers, or queue the job with -- --parallelism=N"
            )
        time.sleep(0.5)
    return seen.free_slots


def worker_environment(workers: str, attempt: str) -> dict[str, str]:
    """Makes the options of the workers' environment: a TaskManager's pool or program. Raises: RunnerError."""
    if POOL.fullmatch(workers):
        config = {"url": workers, "params": {ATTEMPT: attempt}}
        return {"environment_type": "EXTERNAL", "environment_config": json.dumps(config)}
    command = workers or str(Path(sys.executable).parent / WORKER)
    if not workers and not Path(command).is_file():
        raise RunnerError(
            f"{command} is missing: reinstall Recordmill in this environment, or name the workers' program or pool "
            "with --flink-workers"
        )
    return {
        "environment_type": "PROCESS",
        "environment_config": json.dumps({"command": command, "env": {ATTEMPT: attempt}}),
    }
