"""Whether the disk can hold what a build will write: asked before the work begins.

It is an estimate from the inputs' sizes: the shards, and in scratch the packed rows of a local build. So a build is
refused only where not a quarter of it is free; below the whole of it the user is told.
"""

import shutil
from pathlib import Path

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.errors import UserError

SURELY = 0.25
"""The part of the estimate that is written for sure: ids and numbers may take a quarter of their text."""
REFERENCE_BYTES = 100  # a picture's row in scratch, packed


class NoSpaceError(UserError):
    """The disk cannot hold the build; the message says how much it needs and how much is free."""


def check_free_space(plan: BuildPlan, work: PlannedBuild, kept: int) -> str | None:
    """Compares what a build will write with what its disk has.

    Args:
        plan: what will be written.
        work: where.
        kept: the bytes of the shards that are there already.

    Returns:
        A note for the user where it may not fit; None where it should.

    Raises:
        NoSpaceError: it surely does not fit.
    """
    shards, scratch = max(0, plan.expected_bytes - kept), scratch_bytes(plan, work)
    free = shutil.disk_usage(work.folder).free
    told = (
        f"about {size(shards + scratch)} in {Path(work.folder).parents[2]} ({size(shards)} of shards, {size(scratch)} "
        f"of scratch), and {size(free)} are free"
    )
    if free < SURELY * (shards + scratch):
        raise NoSpaceError(f"the build needs {told}: free some space, or use an output on another disk")
    return f"the build may need {told}" if free < shards + scratch else None


def scratch_bytes(plan: BuildPlan, work: PlannedBuild) -> int:
    """About how many bytes of packed rows lie in scratch; none where the runner shuffles the rows themselves."""
    if work.inline:
        return 0
    return plan.rows * REFERENCE_BYTES if work.images() else plan.source_bytes


def size(count: int) -> str:
    """A number of bytes as people read it."""
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):,.1f} MiB"
