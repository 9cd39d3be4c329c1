"""Beam's job server for Flink, a jar: the one that fits the cluster, fetched once, and checked before each start.

A job server talks to one minor version of Flink. The Python SDK may be newer than the job server: what a build needs of
the Java side has been the same for years.

>>> jar_path("org.apache.beam:beam-runners-flink-1.19-job-server:2.62.0")
'org/apache/beam/beam-runners-flink-1.19-job-server/2.62.0/beam-runners-flink-1.19-job-server-2.62.0.jar'
"""

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from http.client import HTTPException, InvalidURL
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.dataset.paths import replacing, write_atomically
from recordmill.pipeline.safe_text import public_url, redacted

REPOSITORY = "RECORDMILL_MAVEN"
"""The variable that names a Maven repository, such as a mirror, instead of Maven Central."""
MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"
COORDINATES = re.compile(r"\w[\w.-]*:\w[\w.-]*:\w[\w.-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
TIMEOUT_SECONDS = 60.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class VersionPair:
    """A minor version of Flink, and the job server for it."""

    flink: str
    beam: str
    """The version of Beam's Java runner."""
    was_run: bool
    """Whether Recordmill built on it, to the same bytes; others are only expected to work."""

    @property
    def coordinates(self) -> str:
        """The job server's Maven coordinates."""
        return f"org.apache.beam:beam-runners-flink-{self.flink}-job-server:{self.beam}"


PAIRS = (
    VersionPair("1.19", "2.62.0", was_run=True),
    VersionPair("1.20", "2.77.0", was_run=False),
    VersionPair("2.0", "2.77.0", was_run=False),
    VersionPair("2.1", "2.77.0", was_run=False),
    VersionPair("2.2", "2.77.0", was_run=False),
)
"""The Flink versions that Beam 2.77 supports, the one that was run first."""


def pair_for(version: str) -> VersionPair | None:
    """Returns the pair of a cluster's version, such as 1.19.3; None if Beam has no runner for it."""
    minor = ".".join(version.split(".")[:2])
    return next((pair for pair in PAIRS if pair.flink == minor), None)


def find_jar(name: str, sha256: str = "") -> Path:
    """Finds a jar, and checks its digest.

    Args:
        name: a file, or Maven coordinates `GROUP:ARTIFACT:VERSION`, whose jar is in the user's cache, or is fetched.
        sha256: the digest that the jar must have; empty for the one that was noted when it was fetched, and for a file
            any.

    Raises:
        RunnerError: there is no such jar, it cannot be fetched, or it has another digest.
    """
    if sha256 and not SHA256.fullmatch(sha256):
        raise RunnerError(f"--flink-jar-sha256 '{sha256}' is no SHA-256: give its 64 hexadecimal digits")
    if Path(name).is_file():
        _check(Path(name), sha256)
        return Path(name)
    if not COORDINATES.fullmatch(name):
        raise RunnerError(f"there is no jar {name}: --flink-jar is a file, or GROUP:ARTIFACT:VERSION")
    jar = cache_folder() / jar_path(name)
    if not (jar.is_file() and _noted(jar)):
        _fetch(f"{(os.environ.get(REPOSITORY) or MAVEN_CENTRAL).rstrip('/')}/{jar_path(name)}", jar, sha256)
    _check(jar, sha256 or _noted(jar))
    return jar


def jar_path(coordinates: str) -> str:
    """Returns the path of a jar in every Maven repository."""
    group, artifact, version = coordinates.split(":")
    return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


def cache_folder() -> Path:
    """The folder of fetched jars in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "recordmill", "jars")


def digest(jar: Path) -> str:
    """Computes a jar's SHA-256."""
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _noted(jar: Path) -> str:
    """Returns the digest that was noted when a jar was fetched; empty where the note is missing or damaged."""
    note = jar.with_suffix(".sha256")
    text = note.read_text(encoding="ascii", errors="replace").strip() if note.is_file() else ""
    return text if SHA256.fullmatch(text) else ""


def _check(jar: Path, sha256: str) -> None:
    if sha256 and (now := digest(jar)) != sha256:
        raise RunnerError(
            f"{jar} has the SHA-256 {now}, not {sha256}: it is not started; remove it, and it is fetched again"
        )


def _fetch(url: str, jar: Path, sha256: str) -> None:
    """Fetches a jar whole or not at all, and notes its SHA-256 in a file next to it."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    try:
        _check_way(url, sha256)
        with urlopen(url, timeout=TIMEOUT_SECONDS) as answer, replacing(jar) as file:  # noqa: S310 - the user's choice
            _check_way(answer.url, sha256)
            shutil.copyfileobj(answer, file, 1 << 20)
            file.flush()
            _check_fetched(Path(file.name), url, sha256)
        write_atomically(jar.with_suffix(".sha256"), digest(jar).encode())
    except (OSError, ValueError, HTTPException) as error:
        raise RunnerError(
            f"{public_url(url)} cannot be fetched: {_reason(error, url)}; name a file or other coordinates with "
            f"--flink-jar, or another repository with {REPOSITORY}"
        ) from None


def _check_way(url: str, sha256: str) -> None:
    """Refuses a way on which others could replace the jar and its checksum together."""
    parts = urlsplit(url)
    if not sha256 and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise RunnerError(
            f"{public_url(url)} is not fetched: without https anyone on the way could replace it; give its digest with "
            f"--flink-jar-sha256, or an https repository with {REPOSITORY}"
        )


def _reason(error: Exception, url: str) -> str:
    if isinstance(error, InvalidURL):
        return "it is no URL of a host and a path, or holds a user and a password"  # its own text quotes the password
    if isinstance(error, HTTPError):
        return f"HTTP {error.code}"
    return redacted(str(getattr(error, "reason", error)), url)


def _check_fetched(file: Path, url: str, sha256: str) -> None:
    """Compares a fetched file with the digest given, or else with the repository's own."""
    if sha256:
        _check(file, sha256)
        return
    with urlopen(f"{url}.sha1", timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - every Maven repository has it
        wanted = answer.read(100).decode("ascii", errors="replace").split()[:1]
    with file.open("rb") as content:
        if wanted != [hashlib.file_digest(content, "sha1").hexdigest()]:
            raise RunnerError(f"{public_url(url)} was not fetched whole: its SHA-1 is not the repository's")
