"""The time that a build takes: by an earlier one, by a sample of its rows, or by two small builds."""

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from recordmill.pipeline.build.entry import build
from recordmill.pipeline.build.journal.journal import DRY_RUN
from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.cores import cores
from recordmill.pipeline.forecast.sample import Sample
from recordmill.pipeline.versions.history import KILLED, RUNNING, Entry, read_history

UNFINISHED = (RUNNING, KILLED, "stopped", "failed")
"""The ends of a build that may leave work for the next one."""
TRIALS = (200, 400, 2_000, 10_000, 50_000)
"""The rows of trial builds. The first warms TensorFlow up; the second and the last differ in what rows cost."""
CLEAR = 1.5
"""The last trial takes so many times as long as the second, or more: a smaller difference may be chance."""


@dataclass(frozen=True)
class Rate:
    """The time of a build, and where it is known from."""

    seconds: float
    """The wall time of the whole build, or of the steps that `how` names."""
    how: str
    """The measurement, in words."""
    is_whole: bool
    """Whether these are all steps of a build; otherwise it takes longer."""
    cpu_seconds: float
    """The time of all cores together."""


def rate_of_history(plan: BuildPlan, output: str) -> Rate | None:
    """Gives the time by the newest build of this output that read and wrote all its rows on this machine."""
    entries = list(_whole_builds(read_history(output)))
    if not entries:
        return None
    rows, seconds = entries[-1]["rows"]["read"], entries[-1]["seconds"]
    how = f"the build of {entries[-1].get('ended_at')} on this machine: {rows:,} rows in {seconds:,.0f} s"
    expected = plan.rows / rows * seconds
    return Rate(expected, how, is_whole=True, cpu_seconds=expected * cores())


def _whole_builds(history: Iterable[Entry]) -> Iterator[Entry]:
    """Yields the builds whose seconds are those of all their rows.

    A version that is made live again has all its rows and nothing written; a build that went on with what an earlier
    attempt left has all rows and the seconds of the last attempt.
    """
    left: dict[str | None, bool] = {}
    for entry in history:
        is_here = entry.get("host") == os.uname().nodename and entry.get("runner") == "local"
        is_whole = entry.get("end") == "published" and entry.get("stages", {}).get("write") and not entry.get("spans")
        has_figures = entry.get("rows", {}).get("read") and entry.get("seconds")
        if is_here and is_whole and has_figures and not left.get(entry.get("build_key")):
            yield entry
        if entry.get("end") != DRY_RUN:
            left[entry.get("build_key")] = entry.get("end") in UNFINISHED


def rate_of_sample(plan: BuildPlan, sample: Sample) -> Rate:
    """Gives the time to read all rows, and to decode and scale their images once, by that of the sample."""
    cpu = sample.seconds / max(1, sample.rows) * plan.rows
    how = f"reading {sample.rows:,} rows took {sample.seconds:.2f} s"
    for name, images in sample.images.items():
        if images.decoded:
            cpu += images.seconds / images.decoded * plan.rows
            how += f", decoding and scaling {images.decoded:,} images of '{name}' {images.seconds:.2f} s"
    return Rate(cpu / cores(), how, is_whole=False, cpu_seconds=cpu)


def rate_of_trials(plan: BuildPlan, options: RunOptions) -> Rate:
    """Gives the time by trial builds of some rows, in a folder that is removed; loads TensorFlow and Beam.

    Raises:
        UserError: as a build.
    """
    warm, fewer, *larger = TRIALS
    _timed(plan, replace(options, limit=warm))
    few, first = many, second = _timed(plan, replace(options, limit=fewer))
    for limit in larger:
        many, second = _timed(plan, replace(options, limit=limit))
        if second > CLEAR * first or limit >= plan.rows:
            break
    a_row = max(0.0, second - first) / (many - few) if many > few else 0.0
    seconds = second + a_row * max(0, plan.rows - many)
    how = f"trial builds of {few:,} and {many:,} rows took {first:.1f} and {second:.1f} s"
    return Rate(seconds, how, is_whole=True, cpu_seconds=seconds * cores())


def _timed(plan: BuildPlan, options: RunOptions) -> tuple[int, float]:
    """Gives the rows and the seconds of a build, without those in which the frameworks load."""
    began: list[float] = []
    with tempfile.TemporaryDirectory(prefix="recordmill-plan-") as folder:
        listener = Listener(on_plan=lambda plan, planned: began.append(time.perf_counter()))
        published = build(plan.spec, os.path.join(folder, "out"), options, listener)
        return published.manifest.rows["read"], time.perf_counter() - began[0]
