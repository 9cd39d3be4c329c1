"""The options of a build, and its listener: without Beam, so that a command can make them before it loads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recordmill.pipeline.build.context.build_context import PlannedBuild
    from recordmill.pipeline.build.plan import BuildPlan

CHUNK_BYTES = 8 << 20  # 8 MiB of rows: a second or less of one worker's time


@dataclass(frozen=True)
class RunOptions:
    """The options of a build that change no byte of its result."""

    runner: str = "local"
    """`local`, or the name of one of Beam's runners."""
    processes: int = 1
    """The number of worker processes of the local runner, 1 or more."""
    beam_options: tuple[str, ...] = ()
    """Beam's own options, as on a command line."""
    chunk_bytes: int = CHUNK_BYTES
    """About how many bytes of rows are read at a time."""
    work: str | None = None
    """The local folder in which builds for an output at a URL work; by default in the user's cache."""
    again: bool = False
    """Whether to repeat a build whose published version has rejects; it publishes only if other rows are rejected."""
    isolated: bool = False
    """Whether each image is decoded first in a process that may crash."""


@dataclass(frozen=True)
class Listener:
    """Functions that a build calls as it goes on."""

    on_plan: Callable[["BuildPlan", "PlannedBuild"], None] = lambda plan, planned: None
    """The work begins."""
    on_note: Callable[[str], None] = lambda note: None
    """There is a line for the user."""
    on_publish: Callable[[], None] = lambda: None
    """Everything is done except the publishing."""
    on_stage: Callable[[str], None] = lambda stage: None
    """A stage begins that no counter shows: a few words for the user."""
