"""The versions that work together: the cluster's Flink, and Beam's job server for it, which is Java.

A job server talks to one minor version of Flink. The Python SDK may be newer than the job server: what a build needs of
the Java side has been the same for years.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A minor version of Flink, and the job server for it."""

    flink: str
    beam: str
    """The version of Beam's Java runner."""
    was_run: bool
    """Whether Recordmill built on it, to the same bytes; others are only expected to work."""
    sha256: str = ""
    """The digest of the job server, which then holds from the first fetch on; empty where the jar was not had."""

    @property
    def coordinates(self) -> str:
        """The job server's Maven coordinates."""
        return f"org.apache.beam:beam-runners-flink-{self.flink}-job-server:{self.beam}"


PAIRS = (
    Pair("1.19", "2.62.0", was_run=True),
    Pair("1.20", "2.77.0", was_run=False),
    Pair("2.0", "2.77.0", was_run=False),
    Pair("2.1", "2.77.0", was_run=False),
    Pair("2.2", "2.77.0", was_run=False),
)
"""The Flink versions that Beam 2.77 supports, the one that was run first."""


def pair_for(version: str) -> Pair | None:
    """The pair of a cluster's version, such as 1.19.3; None if Beam has no runner for it."""
    minor = ".".join(version.split(".")[:2])
    return next((pair for pair in PAIRS if pair.flink == minor), None)


def pin_of(coordinates: str) -> str:
    """The digest that a job server must have; empty where it is not known."""
    return next((pair.sha256 for pair in PAIRS if pair.coordinates == coordinates), "")
