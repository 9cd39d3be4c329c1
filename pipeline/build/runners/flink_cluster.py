"""A Flink cluster for a build: Beam's job server, and presets of jobs, which the user's options override.

The job server, a Java process, takes a job from this process, its parent, and submits it to a cluster of one minor
version of Flink. The Python SDK may be newer: a build uses parts of the Java side that have not changed for years.

>>> with_presets(["--parallelism=4"], {"parallelism": "8", "job_name": "a"})
['--job_name=a', '--parallelism=4']
"""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recordmill.pipeline.build.runners import child_process
from recordmill.pipeline.build.runners.flink_job import LIFE_SECONDS, FlinkError, FlinkRest, cancel_all, prefix
from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.safe_text import cut

WORKER = "recordmill-worker"
POOL = re.compile(r"[\w.-]+:\d+")
SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
SLOT_SECONDS = 180.0
CACHE_MILLISECONDS = 5_000
"""The life of an idle worker, which Beam keeps for a later step of the same job only: it holds 0.3 GB or more."""
ENVIRONMENT = ("environment_type", "environment_config", "environment_options")
EXCHANGES = "execution_mode_for_batch"
"""An option of the job server: with `BATCH` a job frees the slots of an ended step; Flink 2 always does."""
CONFIGURATION = f"""\
restart-strategy.type: none
execution.attached: true
execution.shutdown-on-attached-exit: true
client.heartbeat.timeout: {round(1000 * LIFE_SECONDS)}
"""
"""Flink's `config.yaml` for the jobs: no restart, because workers' memory still holds the first try (Flink 1.19 ignores
this, so the driver watches, too); and an end without a sign of life of the attached client, the driver."""
ATTEMPT = "RECORDMILL_ATTEMPT"
"""A variable of the workers' environment, different for each attempt: Flink reuses a dead worker's environment."""
START_SECONDS = 120.0
OLDEST_JAVA = 11
# Beam's Java side reads private fields, which Java 17 refuses by default.
OPENS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "nio", "util")]
LOG_BYTES = 64 << 10  # the end of the log, to be searched for a reason
MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2/org/apache/beam"


@dataclass(frozen=True)
class FlinkOptions:
    """The options of `--runner flink`; all but `master` and `jar` have working presets."""

    master: str = ""  # address of the cluster's REST interface, `HOST:PORT`
    jar: str = ""  # file of Beam's job server for the cluster's version of Flink (`PAIRS`)
    jar_sha256: str = ""  # required digest of the jar
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
        if sha256 and (now := digest(jar)) != sha256.lower():
            raise RunnerError(f"{jar} has the SHA-256 {now}, not {sha256}, and is not started")
        return jar
    version = FlinkRest(options.master).overview().version if options.master else PAIRS[0].flink
    flink = f"Flink {version}" + (f" at {options.master}" if options.master else "")
    if (pair := pair_for(version)) is None:
        known = ", ".join(pair.flink for pair in PAIRS)
        remedy = "give another cluster, or your own job server with --flink-jar"
        raise RunnerError(f"{flink}: Beam has job servers for {known}: {remedy}")
    remedy = f"fetch it by `curl -fO {pair.address}`, and name the file with --flink-jar or RECORDMILL_FLINK_JAR"
    raise RunnerError(f"{flink} needs Beam's job server {pair.beam}: {remedy}")


class FlinkCluster:
    """A cluster by its options; starts and asks nothing before it is needed. Raises: RunnerError: no good address."""

    def __init__(self, options: FlinkOptions) -> None:
        if not options.master:
            raise RunnerError("--runner flink needs --flink-master HOST:PORT, the cluster's REST interface")
        self.options, self.rest = options, FlinkRest(options.master)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: JobServer | None = None
        self._has_answered = False

    def arguments(self, given: Sequence[str], job: str, attempt: str) -> list[str]:
        """Returns the options of a job: the presets (`flink_presets`), then the user's own."""
        return with_presets(given, flink_presets(self.rest, self.options, option_names(given), job, attempt))

    def start(self) -> str:
        """Starts the job server, unless it runs; returns its address. Raises: RunnerError: it cannot start."""
        if self._server is None:
            java = find_java()
            java_version(java)
            jar = find_jar(self.options)
            self._folder = tempfile.TemporaryDirectory(prefix="flink-")
            folder = Path(self._folder.name)
            (folder / "config.yaml").write_text(CONFIGURATION, encoding="ascii")
            ports = ["--job-host", "localhost", "--job-port", "{port}", "--artifact-port", "0", "--expansion-port", "0"]
            flink = ["--flink-master", self.rest.address, "--flink-conf-dir", str(folder)]
            command = [java, *OPENS, "-jar", str(jar), *ports, *flink, "--artifacts-dir", str(folder / "staged")]
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
        """Cancels the jobs of a dead driver's build. Raises: JobStillRunsError, FlinkError."""
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
            slots = f"{seen.slots:,} slots on {seen.task_managers:,} TaskManagers, none of them free"
            remedy = "wait for its jobs, add TaskManagers, or queue the job with -- --parallelism=N"
            raise RunnerError(f"the Flink cluster at {cluster.url} has {slots}: {remedy}")
        time.sleep(0.5)
    return seen.free_slots


def worker_environment(workers: str, attempt: str) -> dict[str, str]:
    """Makes the options of the workers' environment: a TaskManager's pool or program. Raises: RunnerError."""
    if POOL.fullmatch(workers):
        config = {"url": workers, "params": {ATTEMPT: attempt}}
        return {"environment_type": "EXTERNAL", "environment_config": json.dumps(config)}
    command = workers or str(Path(sys.executable).parent / WORKER)
    if not workers and not Path(command).is_file():
        remedy = "reinstall Recordmill in this environment, or name the workers' program or pool with --flink-workers"
        raise RunnerError(f"{command} is missing: {remedy}")
    config = {"command": command, "env": {ATTEMPT: attempt}}
    return {"environment_type": "PROCESS", "environment_config": json.dumps(config)}


def find_java() -> str:
    """Finds the Java program of `JAVA_HOME`, or else the first on the path. Raises: RunnerError: it is missing."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        where = f"JAVA_HOME={home} holds no bin/java" if home else "the PATH has no java"
        raise RunnerError(f"{where}: --runner flink needs Java {OLDEST_JAVA} or newer for Beam's job server")
    return java


def java_version(java: str) -> int:
    """Asks a Java program for its major version. Raises: RunnerError: it does not run, or is older than 11."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr  # noqa: S603
        version = int(re.findall(r'version "(?:1\.)?(\d+)', text)[0])
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise RunnerError(f"{java} -version fails: {type(error).__name__}") from None
    if version < OLDEST_JAVA:
        raise RunnerError(f"{java} is Java {version}: Beam's job server needs {OLDEST_JAVA} or newer")
    return version


class JobServer:
    """A job server until `stop` or this process's end, with a folder; `{port}` in its command is where it listens."""

    def __init__(self, command: Sequence[str], folder: str) -> None:
        self._command, self._folder = command, Path(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""  # its address, such as localhost:41234, for `--job_endpoint`
        self.log = self._folder / "job-server.log"

    def start(self) -> None:
        """Starts the server, unless it runs, and waits until it listens. Raises: RunnerError: it does not."""
        if self._process is not None and self._process.poll() is None:
            return
        port = free_port()
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-I", child_process.__file__, str(os.getpid())]
        command += [part.replace("{port}", str(port)) for part in self._command]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603
        self.endpoint = f"localhost:{port}"
        end = time.monotonic() + START_SECONDS
        while not listens(port):
            if (status := self._process.poll()) is not None:
                text = self.log.read_bytes()[-LOG_BYTES:].decode(errors="replace")  # without rows: no job was submitted
                errors = [line.strip() for line in text.splitlines() if "Error" in line or "Exception" in line]
                reason = f"{cut(errors[0], 300)} ({self.log})" if errors else f"see {self.log}"
                raise RunnerError(f"Beam's job server ended at once, with status {status}: {reason}")
            if time.monotonic() > end:
                self.stop()
                raise RunnerError(f"Beam's job server does not listen after {START_SECONDS:.0f} s: see {self.log}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends the server; may be called twice."""
        if self._process is not None:
            child_process.end([self._process])
            self._process = None


def listens(port: int) -> bool:
    """Whether a server listens on a port of the loopback address."""
    with suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
        return True
    return False


def free_port() -> int:
    """Finds a free port of the loopback address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class VersionPair:
    """A minor version of Flink, and the job server for it."""

    flink: str
    beam: str  # the version of Beam's Java runner
    was_run: bool  # whether Recordmill has built on it, to the same bytes; others are only expected to work

    @property
    def address(self) -> str:
        """The address of the job server's jar."""
        name = f"beam-runners-flink-{self.flink}-job-server"
        return f"{MAVEN_CENTRAL}/{name}/{self.beam}/{name}-{self.beam}.jar"


PAIRS = (
    VersionPair("1.19", "2.62.0", was_run=True),
    *(VersionPair(flink, "2.77.0", was_run=False) for flink in ("1.20", "2.0", "2.1", "2.2")),
)
"""The Flink versions that Beam 2.77 supports; the first has been run."""


def pair_for(version: str) -> VersionPair | None:
    """Returns the pair of a cluster's version, such as 1.19.3; None if Beam has no runner for it."""
    minor = ".".join(version.split(".")[:2])
    return next((pair for pair in PAIRS if pair.flink == minor), None)


def digest(jar: Path) -> str:
    """Computes a jar's SHA-256."""
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
