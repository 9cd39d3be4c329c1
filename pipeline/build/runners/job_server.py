"""Beam's job server, a Java process that takes a job from this process and submits it to a cluster.

    with JobServer(flink_server("job-server.jar", "localhost:8081", folder), log) as server:
        server.endpoint         # localhost:41234, for `--job_endpoint`

It is a child of this process, so that it cannot outlive it (`child_process`).
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from recordmill.pipeline.build.runners import child_process
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut

START_SECONDS = 120.0
STOP_SECONDS = 5.0
OLDEST_JAVA = 11
# Beam's Java side looks into private fields, which Java 17 refuses unless it is asked.
OPENS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "nio", "util")]
LOG_BYTES = 64 << 10  # the end of the log, which is searched for a reason


class JobServerError(UserError):
    """Java or the job server is missing, or does not start."""


def find_java() -> str:
    """Finds the Java program: that of `JAVA_HOME`, or else the first on the path.

    Raises:
        JobServerError: it is not there.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        where = f"JAVA_HOME={home} holds no bin/java" if home else "no java is on the PATH"
        raise JobServerError(f"{where}: --runner flink needs Java {OLDEST_JAVA} or newer for Beam's job server")
    return java


def java_version(java: str) -> int:
    """Asks a Java program for its major version.

    Raises:
        JobServerError: it does not run, or is older than 11.
    """
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr  # noqa: S603
        version = int(re.findall(r'version "(?:1\.)?(\d+)', text)[0])
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise JobServerError(f"{java} -version fails: {type(error).__name__}") from None
    if version < OLDEST_JAVA:
        raise JobServerError(f"{java} is Java {version}: Beam's job server needs {OLDEST_JAVA} or newer")
    return version


class JobServer:
    """A job server that runs until `stop`, or until this process ends."""

    def __init__(self, command: Sequence[str], folder: str) -> None:
        """Starts nothing yet.

        Args:
            command: the program with its arguments; `{port}` stands for the port to listen on.
            folder: a local folder for its log and temporary files.
        """
        self._command, self._folder = command, Path(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    @property
    def log(self) -> Path:
        """Names the file of its output."""
        return self._folder / "job-server.log"

    def start(self) -> None:
        """Starts the server, unless it runs, and waits until it listens.

        Raises:
            JobServerError: it ends, or does not listen in time.
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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _wait(self, port: int) -> None:
        assert self._process is not None  # noqa: S101 - for mypy
        end = time.monotonic() + START_SECONDS
        while not _listens(port):
            if (status := self._process.poll()) is not None:
                raise JobServerError(f"Beam's job server ended at once, with status {status}: {self._reason()}")
            if time.monotonic() > end:
                self.stop()
                raise JobServerError(f"Beam's job server does not listen after {START_SECONDS:.0f} s: see {self.log}")
            time.sleep(0.1)

    def _reason(self) -> str:
        """Quotes the first line of the log that names an error; it holds no rows before a job was submitted."""
        with self.log.open("rb") as log:
            text = _tail(log).decode(errors="replace")
        errors = [line.strip() for line in text.splitlines() if "Error" in line or "Exception" in line]
        return f"{cut(errors[0], 300)} ({self.log})" if errors else f"see {self.log}"


def flink_server(java: str, jar: str, master: str, configuration: str, folder: str) -> list[str]:
    """Makes the command of a job server for the cluster whose REST interface is at `master`.

    `configuration` is a folder with Flink's `config.yaml` for the jobs, `folder` a local one for staged artifacts.
    """
    server = ["--job-host", "localhost", "--job-port", "{port}", "--artifact-port", "0", "--expansion-port", "0"]
    flink = ["--flink-master", master, "--flink-conf-dir", configuration, "--artifacts-dir", folder]
    return [java, *OPENS, "-jar", jar, *server, *flink]


def free_port() -> int:
    """Finds a port of the loopback address that is free at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), timeout=1).close()
    except OSError:
        return False
    return True


def _tail(log: IO[bytes]) -> bytes:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - LOG_BYTES))
    return log.read()
