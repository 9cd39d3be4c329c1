"""Beam's job server, a Java process: it takes a job from this process and submits it to a cluster.

It is a child of this process, to end with it (`child_process`). A job server talks to one minor version of Flink. The
Python SDK may be newer than the job server, since a build uses parts of the Java side that have not changed for years.
"""

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recordmill.pipeline.build.runners import child_process
from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.safe_text import cut

START_SECONDS = 120.0
STOP_SECONDS = 5.0
OLDEST_JAVA = 11
# Beam's Java side reads private fields, which Java 17 refuses by default.
OPENS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "nio", "util")]
LOG_BYTES = 64 << 10  # the end of the log, to be searched for a reason
MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2/org/apache/beam"


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
    """A job server, which runs until `stop` or the end of this process; its folder holds a log and temporary files.

    `{port}` in its command stands for the port to listen on.
    """

    def __init__(self, command: Sequence[str], folder: str) -> None:
        self._command, self._folder = command, Path(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""  # its address, such as localhost:41234, for `--job_endpoint`
        self.log = self._folder / "job-server.log"

    def start(self) -> None:
        """Starts the server, unless it runs, and waits until it listens.

        Raises: RunnerError: it ends early, or does not listen in time.
        """
        if self._process is not None and self._process.poll() is None:
            return
        port = free_port()
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-I", child_process.__file__, str(os.getpid())]
        command += [part.replace("{port}", str(port)) for part in self._command]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603
        self.endpoint = f"localhost:{port}"
        self._wait(port)

    def stop(self) -> None:
        """Ends the server; may be called twice."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait(self, port: int) -> None:
        assert self._process is not None  # noqa: S101 - for mypy
        end = time.monotonic() + START_SECONDS
        while not listens(port):
            if (status := self._process.poll()) is not None:
                raise RunnerError(f"Beam's job server ended at once, with status {status}: {self._reason()}")
            if time.monotonic() > end:
                self.stop()
                raise RunnerError(f"Beam's job server does not listen after {START_SECONDS:.0f} s: see {self.log}")
            time.sleep(0.1)

    def _reason(self) -> str:
        """Quotes the first error of the log, without rows, as no job was submitted yet."""
        text = self.log.read_bytes()[-LOG_BYTES:].decode(errors="replace")
        errors = [line.strip() for line in text.splitlines() if "Error" in line or "Exception" in line]
        return f"{cut(errors[0], 300)} ({self.log})" if errors else f"see {self.log}"


def flink_server(java: str, jar: str, master: str, configuration: str, folder: str) -> list[str]:
    """Makes the command of a job server for the cluster with its REST interface at `master`.

    `configuration` is a folder with Flink's `config.yaml` for the jobs, `folder` a local one for staged artifacts.
    """
    server = ["--job-host", "localhost", "--job-port", "{port}", "--artifact-port", "0", "--expansion-port", "0"]
    flink = ["--flink-master", master, "--flink-conf-dir", configuration, "--artifacts-dir", folder]
    return [java, *OPENS, "-jar", jar, *server, *flink]


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
