"""The request for a build, without Beam: a command makes it before Beam loads."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from recordmill.pipeline.build.runners.flink_cluster import FlinkOptions
from recordmill.pipeline.build.runners.job import Job
from recordmill.pipeline.json_values import Positive, check_types

CHUNK_BYTES = 8 << 20  # 8 MiB of rows: a second or less of one worker's time


class Stage(StrEnum):
    """The stages of a build in order, with the text for the user; the history has their names."""

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
    """`local`, `flink`, `dataflow`, or the class name of a runner of Beam, such as `PrismRunner`."""
    processes: Positive | None = None
    """The number of worker processes of the local runner, 1 or more; None: by cores, memory and the work."""
    beam_options: tuple[str, ...] = ()
    """Beam's own options, as on a command line."""
    chunk_bytes: Positive = CHUNK_BYTES
    """About how many bytes of rows are read at a time."""
    work: str | None = None
    """The local scratch folder for an output at a URL; by default in the user's cache."""
    temp: str | None = None
    """A folder, or a URL, that TensorFlow opens from every worker: for tf.Transform's analyzers in `preprocessing`."""
    again: bool = False
    """Whether to repeat the build of a version with rejects; publishes only if other rows are rejected."""
    isolated: bool = False
    """Whether each image is first decoded in a process that may crash."""
    attempts: Positive = 3
    """The number of attempts on runners except the local one: a cluster may fail."""
    spans: tuple[str, ...] = ()
    """The spans to build, all others kept from the live version; by default the changed ones."""
    compact: bool = False
    """Whether to read all spans again and merge them into the usual number of shards."""
    limit: Positive | None = None
    """About how many rows to build, sampled by key hash; None: all."""
    flink: FlinkOptions = FlinkOptions()
    """The options of the runner `flink`."""
    metrics: str | None = None
    """The file for metrics (OpenMetrics), overwritten at the build's end."""

    def __post_init__(self) -> None:
        check_types(vars(self), type(self).__annotations__)


@dataclass(frozen=True)
class Listener:
    """Callbacks of a build."""

    on_plan: Callable[..., None] = lambda plan, planned: None
    """The work begins, of a `BuildPlan` and a `PlannedBuild`."""
    on_note: Callable[[str], None] = lambda note: None
    """A line for the user."""
    on_publish: Callable[[], None] = lambda: None
    """Everything is done except publishing."""
    on_stage: Callable[[str], None] = lambda stage: None
    """A `Stage` begins, or a wait that no counter shows: a few words for the user."""
    on_job: Callable[[Job | None], None] = lambda job: None
    """A job on a cluster begins, or ends (None); whoever ends the process in between must cancel it."""
