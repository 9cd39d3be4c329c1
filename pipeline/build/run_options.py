"""The options of a build, and its listener: without Beam, so that a command can make them before it loads."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from recordmill.pipeline.build.runners.flink_cluster import FlinkOptions
from recordmill.pipeline.build.runners.job import Job
from recordmill.pipeline.errors import UserError

CHUNK_BYTES = 8 << 20  # 8 MiB of rows: a second or less of one worker's time


class Stage(StrEnum):
    """The stages of a build, in their order, each with the words for the user; the history names them."""

    PLAN = "looking at the sources"
    LOAD = "loading Apache Beam and TensorFlow"
    LOOK = "looking at the rows"
    WRITE = "building shards"
    COMPARE = "comparing the sources with those that were read"
    SERVE = "saving the serving model"
    PUBLISH = "writing digests and the manifest"


@dataclass(frozen=True)
class RunOptions:
    """The options of a build: where and how it runs, and which spans it reads."""

    runner: str = "local"
    """`local`, `flink`, `dataflow`, `prism`, or the name of one of Beam's runners."""
    processes: int = 1
    """The number of worker processes of the local runner, 1 or more."""
    beam_options: tuple[str, ...] = ()
    """Beam's own options, as on a command line."""
    chunk_bytes: int = CHUNK_BYTES
    """About how many bytes of rows are read at a time."""
    work: str | None = None
    """The local folder of rows on their way to their shards, for an output at a URL; by default in the user's cache."""
    temp: str | None = None
    """A folder, or a URL, that TensorFlow opens from every worker: for tf.Transform's analyzers in `preprocessing`."""
    again: bool = False
    """Whether to repeat a build whose published version has rejects; it publishes only if other rows are rejected."""
    isolated: bool = False
    """Whether each image is decoded first in a process that may crash."""
    attempts: int = 3
    """The number of attempts on any runner but the local one: a failed job may be the cluster's fault."""
    spans: tuple[str, ...] = ()
    """The spans to build, while all others are kept from the live version; by default those that have changed."""
    compact: bool = False
    """Whether the rows of all spans are read again, and put together into shards of the usual number and order."""
    limit: int | None = None
    """About how many rows a trial version holds, a sample by the hash of their keys; None: a build of all rows."""
    flink: FlinkOptions = FlinkOptions()
    """The options of the runner `flink`."""
    metrics: str | None = None
    """The file of metrics (OpenMetrics) that the build's end replaces."""

    def __post_init__(self) -> None:
        if self.spans and self.compact:
            raise UserError("--span builds some spans and --compact reads all: give one of them")


@dataclass(frozen=True)
class Listener:
    """Functions that a build calls as it goes on."""

    on_plan: Callable[..., None] = lambda plan, planned: None
    """The work begins, of a `BuildPlan` and a `PlannedBuild`."""
    on_note: Callable[[str], None] = lambda note: None
    """There is a line for the user."""
    on_publish: Callable[[], None] = lambda: None
    """Everything is done except the publishing."""
    on_stage: Callable[[str], None] = lambda stage: None
    """A stage begins, of `Stage`, or a wait that no counter shows: a few words for the user."""
    on_job: Callable[[Job | None], None] = lambda job: None
    """A job on a cluster begins, or ends (None): who ends the process before must cancel it."""
