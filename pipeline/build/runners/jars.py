"""Beam's job server as a jar: named by Maven coordinates, fetched once, and checked before each start.

>>> str(Coordinates.parse("org.apache.beam:beam-runners-flink-1.19-job-server:2.62.0").path)
'org/apache/beam/beam-runners-flink-1.19-job-server/2.62.0/beam-runners-flink-1.19-job-server-2.62.0.jar'
"""

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from http.client import HTTPException, InvalidURL
from pathlib import Path, PurePosixPath
from typing import Self
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from recordmill.pipeline.build.runners.errors import RunnerError
from recordmill.pipeline.build.runners.versions import pin_of
from recordmill.pipeline.dataset.atomic_files import replacing, write_atomically
from recordmill.pipeline.redaction import public_url, redacted

REPOSITORY = "RECORDMILL_MAVEN"
"""The variable that names a Maven repository, such as a mirror, instead of Maven Central."""
COORDINATES = re.compile(r"\w[\w.-]*:\w[\w.-]*:\w[\w.-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
TIMEOUT_SECONDS = 60.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Coordinates:
    """A jar's place in every Maven repository."""

    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `GROUP:ARTIFACT:VERSION`."""
        return cls(*text.split(":"))

    @property
    def path(self) -> PurePosixPath:
        """The path of the jar in a repository."""
        name = f"{self.artifact}-{self.version}.jar"
        return PurePosixPath(*self.group.split("."), self.artifact, self.version, name)

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def find_jar(name: str, sha256: str = "", repository: str = "") -> Path:
    """Finds a jar, and checks its digest.

    Args:
        name: a file, or Maven coordinates `GROUP:ARTIFACT:VERSION`, whose jar lies in the user's cache, or is fetched.
        sha256: the digest that the jar must have; empty for the known one (`versions.pin_of`), or else for the one that
            was noted when it was fetched, and for a file any.
        repository: the URL of the Maven repository to fetch from, unless `RECORDMILL_MAVEN` names one.

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
    coordinates, sha256 = Coordinates.parse(name), sha256 or pin_of(name)
    jar = cache_folder() / coordinates.path
    if not (jar.is_file() and _noted(jar)):
        _fetch(coordinates, jar, sha256, os.environ.get(REPOSITORY) or repository)
    _check(jar, sha256 or _noted(jar))
    return jar


def cache_folder() -> Path:
    """The folder of fetched jars in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "recordmill", "jars")


def digest(jar: Path) -> str:
    """Computes a jar's SHA-256."""
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _noted(jar: Path) -> str:
    """Gives the digest that was noted when a jar was fetched; empty where the note is missing or damaged."""
    note = jar.with_suffix(".sha256")
    text = note.read_text(encoding="ascii", errors="replace").strip() if note.is_file() else ""
    return text if SHA256.fullmatch(text) else ""


def _check(jar: Path, sha256: str) -> None:
    if sha256 and (now := digest(jar)) != sha256:
        raise RunnerError(
            f"{jar} has the SHA-256 {now}, not {sha256}: it is not started; remove it, and it is fetched again"
        )


def _fetch(coordinates: Coordinates, jar: Path, sha256: str, repository: str) -> None:
    """Fetches a jar whole or not at all, and notes its SHA-256 beside it."""
    url = f"{repository.rstrip('/')}/{coordinates.path}"
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
    """Compares a fetched file with the digest given, or else with the one that lies beside it in the repository."""
    if sha256:
        _check(file, sha256)
        return
    with urlopen(f"{url}.sha1", timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - every Maven repository has it
        wanted = answer.read(100).decode("ascii", errors="replace").split()[:1]
    with file.open("rb") as content:
        if wanted != [hashlib.file_digest(content, "sha1").hexdigest()]:
            raise RunnerError(
                f"{public_url(url)} was not fetched whole: its SHA-1 is not the one beside it in the repository"
            )
