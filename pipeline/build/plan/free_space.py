"""Checks before the work begins that the disk can hold a build.

The inputs' sizes give an estimate: the shards, and in scratch the packed rows of a local build. So a build is refused
only if less than a quarter of it is free; if less than all of it is, the user gets a note.
"""

import shutil
from pathlib import Path

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions.stores.open_store import is_local

SURELY = 0.25
"""The part of the estimate that is certain to be written: ids and numbers may take a quarter of their text."""


class NoSpaceError(UserError):
    """The disk cannot hold the build; the message says how much it needs and how much is free."""


def check_free_space(plan: BuildPlan, planned: PlannedBuild, kept: int) -> str | None:
    """Compares the estimate, less the bytes of shards that are kept, with the free space.

    Returns:
        A note for the user if it may not fit; None if it should.

    Raises:
        NoSpaceError: it cannot fit.
    """
    shards = max(0, plan.expected_bytes - kept) if is_local(planned.shards.url) else 0
    scratch = 0 if planned.inline else plan.scratch_bytes  # the runner shuffles the rows themselves
    folder = Path(planned.scratch).parent
    free = shutil.disk_usage(next(at for at in (folder, *folder.parents) if at.exists())).free
    needs = (
        f"about {size(shards + scratch)} in {folder.parents[2]} ({size(shards)} of shards, "
        f"{size(scratch)} of scratch), and {size(free)} are free"
    )
    if free < SURELY * (shards + scratch):
        raise NoSpaceError(f"the build needs {needs}: free some space, or use an output on another disk")
    return f"the build may need {needs}" if free < shards + scratch else None


def size(count: int) -> str:
    """A number of bytes in MiB or GiB."""
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):,.1f} MiB"
