"""Prepares a local Flink from Maven's packages, once.

    python prepare.py FOLDER [--write-lock]

    FOLDER/job-server.jar   Beam's job server and Flink itself in one file, which is also a cluster's class path

`mvn` downloads with the machine's settings. Every jar that it brought, those of its own plugin too, is compared with
`maven.lock` before anything here uses one; `--write-lock` writes that file anew, after a change to `pom.xml`.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from merge_jars import merge

HERE = Path(__file__).parent
LOCK = HERE / "maven.lock"
MAIN_CLASS = "org.apache.beam.runners.flink.FlinkJobServerDriver"


def prepare(folder: Path, write_lock: bool) -> None:
    """Downloads the jars that the folder lacks, compares all with the lock, and merges them."""
    repository, jars = folder / "repository", folder / "jars"
    shutil.rmtree(jars, ignore_errors=True)
    _download(repository, jars)
    digests = {str(path.relative_to(repository)): _sha256(path) for path in sorted(repository.rglob("*.jar"))}
    if write_lock:
        LOCK.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    _check(digests)
    unfinished = folder / "job-server.jar.part"
    merge(jars.glob("*.jar"), unfinished, MAIN_CLASS)
    unfinished.rename(folder / "job-server.jar")


def _download(repository: Path, jars: Path) -> None:
    if shutil.which("mvn") is None:
        sys.exit("mvn is not on PATH: install Apache Maven 3.6 or later, and a JDK 11 or 17")
    command = ["mvn", "--batch-mode", "--quiet", f"--file={HERE / 'pom.xml'}", f"-Dmaven.repo.local={repository}"]
    if subprocess.run([*command, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]).returncode:
        sys.exit("mvn could not download the jars: its message is above; what it has stays for the next time")


def _check(digests: dict[str, str]) -> None:
    locked = {name: digest for digest, name in (line.split() for line in LOCK.read_text().splitlines())}
    wrong = sorted(name for name in locked.keys() | digests.keys() if locked.get(name) != digests.get(name))
    if wrong:
        listed = "\n  ".join(f"{name}: {digests.get(name, 'missing')}" for name in wrong)
        sys.exit(f"these jars are not those of {LOCK}; remove the folder, or see --write-lock:\n  {listed}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write-lock", action="store_true")
    given = parser.parse_args()
    prepare(given.folder.resolve(), given.write_lock)
