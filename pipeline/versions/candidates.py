"""Candidates: versions that the gate held back. One waits at a time, until a person approves or rejects it.

`LATEST` names the candidate, so it is put up and replaced in one step, as the live version is. One that is taken back
and never was live is marked there as `removing`, and deleted then.

>>> put_up(Latest("v1", 1), "v2", Judgement({}, ("rows_lost of all is 0.4, more than 0.1",))).candidate.version
'v2'
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from recordmill.pipeline.dataset.manifest import Candidate, Latest
from recordmill.pipeline.versions import latest_file


class Judgement(NamedTuple):
    """The gate's judgement on a version."""

    figures: dict[str, Any]
    """All figures, as its manifest holds them in `gate`."""
    breaches: tuple[str, ...]
    """A line for each figure beyond its limit; where there are any, the version becomes a candidate."""


Judge = Callable[[str], Judgement]
"""Judges a version against the one that is live, by that one's name."""


def publishes_all(live: str) -> Judgement:
    """The judge of a build without a gate."""
    return Judgement({}, ())


def put_up(latest: Latest, version: str, judgement: Judgement) -> Latest:
    """Makes a version the candidate, in place of any other. Raises: OutputError: the version is being deleted."""
    latest_file.check_kept(latest, version)
    candidate = Candidate(version, latest.version, judgement.breaches)
    return latest if latest.candidate == candidate else replace(replaced(latest, version), candidate=candidate)


def replaced(latest: Latest, version: str) -> Latest:
    """Takes the waiting candidate back, since a build came to this version; marks it to be deleted.

    One that was live before, or is pinned, stays as an ordinary version.
    """
    waiting = latest.candidate
    if waiting is None or waiting.version == version:
        return latest
    stays = waiting.version in {latest.version, *latest.retired, *latest.pinned, *latest.removing}
    removing = latest.removing if stays else (*latest.removing, waiting.version)
    return replace(latest, candidate=None, removing=removing)
