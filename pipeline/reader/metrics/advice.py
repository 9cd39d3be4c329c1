"""Why an input is slower than its model: from where the time of making batches goes to what to do about it.

>>> print(advice({"reading": 1.0, "decoding": 9.0, "cpu": 9.5}, Makers(threads=2, cores=8)))
90 % of the time of making batches is decoding and augmenting pictures: take more threads (2 of 8 cores work), ...
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from recordmill.pipeline.reader.metrics.stages import CPU, STAGES
from recordmill.pipeline.reader.options.request import cores

WORKS = 0.6  # of their time outside of storage threads work at least, unless they wait for each other


@dataclass(frozen=True)
class Makers:
    """What makes the batches: threads, or processes where there are any."""

    threads: int = 1
    workers: int = 0
    cores: int = field(default_factory=cores)

    @property
    def at_once(self) -> int:
        """How many batches are made at once."""
        return self.workers or self.threads


def advice(counts: Mapping[str, float], makers: Makers) -> str:
    """Says where most of the time goes, and what to do.

    Args:
        counts: the sums of a `Tally` over a time.
        makers: what makes the batches.
    """
    spent = {stage: counts.get(stage, 0.0) for stage in STAGES}
    total = sum(spent.values())
    if total <= 0:
        return "it is not known what its time is spent on"
    if _wait_for_the_lock(total - spent["reading"], spent["reading"], counts.get(CPU, 0.0), makers):
        return (
            f"{makers.threads} threads wait for Python's lock, unless other programs hold the cores: "
            f"let processes make the batches, workers={makers.threads}"
        )
    worst = max(STAGES, key=spent.__getitem__)
    return f"{percent(spent[worst] / total)} of the time of making batches is {_WHAT[worst]}: {_more(worst, makers)}"


def percent(share: float) -> str:
    """Writes a share, 0 to 1, in whole percents."""
    return f"{round(100 * share)} %"


def _wait_for_the_lock(computing: float, reading: float, cpu: float, makers: Makers) -> bool:
    """Whether threads that should compute do not, though each could have a core."""
    could = not makers.workers and 1 < makers.threads <= makers.cores
    return could and computing > reading and cpu < WORKS * computing


def _more(stage: str, makers: Makers) -> str:
    """What to do about a stage: more of what makes batches where there are cores, then what is known of the stage."""
    if stage == "reading":
        return "storage is slow, or its cache is cold; take shuffle='blocks', which reads large pieces, or more threads"
    option = "workers" if makers.workers else "threads"
    idle = makers.at_once < makers.cores
    more = f"take more {option} ({makers.at_once} of {makers.cores} cores work), or " if idle else ""
    return more + _LESS[stage]


_WHAT = {
    "reading": "reading bytes",
    "parsing": "parsing records",
    "decoding": "decoding and augmenting pictures",
    "finishing": "making arrays of the values",
}
_LESS = {
    "parsing": "name only the features that the model needs, features=[...]",
    "decoding": "build with a smaller size or `store: raw`, or read dtype='uint8' and normalize on the device",
    "finishing": "read pictures as dtype='uint8' and normalize on the device, or name fewer features",
}
