"""Checks before the work begins that the disk can hold a build's shards and the packed rows of its scratch."""

import shutil
from pathlib import Path

from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.errors import UserError

SURELY = 0.25  # of the estimate is certain to be written: ids and numbers may take a quarter of their text


class NoSpaceError(UserError):
    """The disk cannot hold the build."""


def check_free_space(plan: BuildPlan, run: str, *, holds_shards: bool, holds_rows: bool, kept: int = 0) -> str | None:
    """Returns a note for the user if a run's folder may be too small for the estimate, less `kept` bytes of shards.

    Raises: NoSpaceError: less than `SURELY` fits.
    """
    folder = Path(run).absolute()
    shards = max(0, plan.expected_bytes - kept) if holds_shards else 0
    scratch = plan.scratch_bytes if holds_rows else 0
    free = shutil.disk_usage(next(at for at in (folder, *folder.parents) if at.exists())).free
    needs = (
        f"about {size(shards + scratch)} in {folder.parents[2]} ({size(shards)} of shards, "
        f"{size(scratch)} of scratch), and {size(free)} are free"
    )
    if free < SURELY * (shards + scratch):
        raise NoSpaceError(f"the build needs {needs}: free some space, or use an output on another disk")
    return f"the build may need {needs}" if free < shards + scratch else None


def size(count: int) -> str:
    """Formats a number of bytes in MiB or GiB."""
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):,.1f} MiB"
