"""The options of a build's runners, by runner: they change no byte of its result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FlinkOptions:
    """The options of `--runner flink`; all but `master` have working presets."""

    master: str = ""
    """The address of the cluster's REST interface, `HOST:PORT`."""
    jar: str = ""
    """Beam's job server for Flink: a file, or Maven coordinates `GROUP:ARTIFACT:VERSION`; by default those that fit the
    cluster's version (`versions.PAIRS`)."""
    jar_sha256: str = ""
    """The digest that the jar must have; by default the one that it had when it was fetched."""
    workers: str = ""
    """`HOST:PORT` of a worker pool beside each TaskManager, or the path of the program that a TaskManager starts for a
    worker; by default `recordmill-worker` of this environment."""
