"""A worker's files in the workspace for its driver: reports, progress, rejects, and its error.

Files work on every runner: none reports rows before it ends, and Beam passes only an exception's traceback as text,
with a changed message. An error of exit code 75, such as a store's 503, may pass: the job fails, and is retried.

    with leaving_error(workspace):              # in a worker
        ...
    with raising_left_error(workspace):         # in the driver, around the job alone: a runner may retry, and succeed
        ...
"""

import errno
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from recordmill.pipeline.build.runners.job import JobFailedError
from recordmill.pipeline.dataset.counts import ShardReport
from recordmill.pipeline.dataset.paths import attempt_name
from recordmill.pipeline.errors import ExitCode, UserError, code_of
from recordmill.pipeline.sources.faults import DUPLICATE, Fault, Reject
from recordmill.pipeline.versions.stores.base import Store

FOLDERS = ("scratch", "progress", "version")
ANALYSIS = "analysis"  # the step between reading chunks and building shards: learned values, and the graph with them
LOOK_REPORTS = "look/reports"
"""The folder of a look's chunk reports; on runners that shuffle rows, the next job reads the chunks again."""
SECONDS = 0.3  # between two writes of a counter's file
ERROR = "error"  # the file's name; of several workers' errors the last stays


def chunk_step(index: int) -> str:
    """Names the step of reading one chunk, and its reports."""
    return f"chunk-{index:06d}"


def shard_step(group: int) -> str:
    """Names the step of building one shard, and its reports."""
    return f"shard-{group:06d}"


def write_report(workspace: Store, name: str, report: Mapping[str, Any]) -> None:
    """Writes `name.json`."""
    workspace.write(f"{name}.json", json.dumps(report).encode())


def read_report(workspace: Store, name: str) -> dict[str, Any] | None:
    """Reads a report; None if it does not exist."""
    data = workspace.read(f"{name}.json")
    return None if data is None else json.loads(data)


@dataclass(frozen=True)
class ChunkReport:
    """A read chunk: its rows, by what became of them."""

    read: int = 0
    positions: int = 0  # that it covers in its source
    rejected: int = 0
    duplicates: int = 0
    forgotten: int = 0
    rejects: str | None = None  # the file of its rejects
    groups: Mapping[int, int] = field(default_factory=dict)
    """The number of rows packed for each group: those of all chunks fill the memory."""

    @classmethod
    def of_json(cls, json: Mapping[str, Any]) -> Self:
        """Reads the JSON of its fields."""
        return cls(**{**json, "groups": {int(group): count for group, count in json["groups"].items()}})


def read_chunks(workspace: Store, count: int) -> Iterator[ChunkReport | None]:
    """Reads the reports of chunks 0 to `count` - 1; None for one that does not exist."""
    for report in _read_reports(workspace, map(chunk_step, range(count))):
        yield None if report is None else ChunkReport.of_json(report)


def read_shards(workspace: Store, groups: Iterable[int]) -> Iterator[ShardReport | None]:
    """Reads the reports of the shards of groups, in their order; None for one that does not exist."""
    for report in _read_reports(workspace, map(shard_step, groups)):
        yield None if report is None else ShardReport.of_json(report)


def _read_reports(workspace: Store, steps: Iterable[str]) -> Iterator[dict[str, Any] | None]:
    for _, data in workspace.read_all([f"reports/{step}.json" for step in steps]):
        yield None if data is None else json.loads(data)


class Progress:
    """The counters of one step at work, such as one chunk or one shard; a repeated step overwrites its own file."""

    def __init__(
        self, workspace: Store, step: str, clock: Callable[[], float] = time.monotonic, prefix: str = ""
    ) -> None:
        """`prefix` begins the counters' names."""
        self._workspace, self._name, self._clock, self._prefix = workspace, f"{step}.json", clock, prefix
        self._counts = Counter[str]()
        self._saved: Counter[str] | None = None
        self._written = 0.0

    def add(self, **counts: int) -> None:
        """Adds to the counters, and writes them every `SECONDS`, or less often to a bucket."""
        self._counts.update({f"{self._prefix}{name}": count for name, count in counts.items() if count})
        if any(counts.values()) and self._clock() - self._written > max(SECONDS, self._workspace.pause):
            self.write()

    def write(self) -> None:
        """Overwrites the file, unless it holds these counters."""
        self._written = self._clock()
        if self._counts != self._saved:
            self._saved = self._counts.copy()
            self._workspace.write(self._name, json.dumps(self._counts).encode(), durable=False)


class ProgressReader:
    """Adds up the counters of all steps; caches unchanged files."""

    def __init__(self, workspace: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._workspace, self._clock, self._looked = workspace, clock, -workspace.pause
        self._stamps: dict[str, Hashable] = {}
        self._counts: dict[str, Mapping[str, int]] = {}

    def read(self) -> Mapping[str, int]:
        """Returns the sums of all counters by name."""
        if self._clock() - self._looked >= self._workspace.pause:
            self._looked = self._clock()
            stamps = {name: stamp for name, stamp in self._workspace.stamps("").items() if name.endswith(".json")}
            changed = [name for name, stamp in stamps.items() if self._stamps.get(name) != stamp]
            for name, data in self._workspace.read_all(changed):
                if data is not None:  # else the next look finds it
                    self._counts[name], self._stamps[name] = json.loads(data), stamps[name]
        total: Counter[str] = Counter()
        for counts in self._counts.values():
            total.update(counts)
        return total


def reject_row(rows: pa.Table, row: int, fault: Fault, first: tuple[int, int] | tuple[()] = ()) -> Reject:
    """Makes the reject of a keyed row; `first` is the chunk and position of the row kept instead."""
    (values,) = rows.slice(row, 1).select(["@key", "@chunk", "@position"]).to_pylist()
    return fault.reject(values["@chunk"], values["@position"], values["@key"].decode("utf-8", "replace"), *first)


def reject_duplicate_key(rows: pa.Table, row: int, first: tuple[int, int]) -> Reject:
    """Makes the reject of a repeated key; the row at chunk and position `first` stays."""
    return reject_row(rows, row, Fault(DUPLICATE, "another row has the same key", None), first)


def write_rejects(workspace: Store, prefix: str, rejects: list[Reject]) -> str | None:
    """Writes a step's rejects under a unique name; returns the name, or None without rejects."""
    if not rejects:
        return None
    name = f"{attempt_name(prefix)}.jsonl"
    lines = "".join(json.dumps(reject.to_json()) + "\n" for reject in rejects)
    workspace.write(name, lines.encode())
    return name


def read_rejects(workspace: Store, names: Iterable[str]) -> Iterator[Reject]:
    """Reads the rejects of several steps. Raises: FileNotFoundError."""
    for name, data in workspace.read_all(names):
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{workspace.url}/{name}")
        for line in data.splitlines():
            yield Reject(**json.loads(line))


class WorkerError(UserError):
    """A worker failed with a `UserError` of this message."""


class DeadWorkerError(UserError):
    """A worker process died; the message names the process, the reason, and the remedy."""

    def __init__(self, process: int, status: int) -> None:
        """Takes the exit status as `subprocess` gives it: the negative number of a signal, or an exit code."""
        number = -status if status < 0 else status - 128  # a shell adds 128
        reason = f"ended with status {status}"
        with suppress(ValueError):
            reason = f"died of {signal.Signals(number).name}"
        if number == signal.SIGKILL:
            reason = "was killed (SIGKILL): most likely memory ran out; use fewer --processes, or a larger machine"
        super().__init__(f"worker process {process} {reason}")


@contextmanager
def leaving_error(workspace: Store) -> Iterator[None]:
    """Writes the type and message of a `UserError` to the workspace, and reraises it."""
    try:
        yield
    except UserError as error:
        with suppress(OSError, UserError):  # the folder may be gone, or its disk full: the driver will notice
            passes = code_of(error) is ExitCode.TRY_AGAIN
            report = {"message": str(error), "type": type(error).__name__, "passes": passes}
            write_report(workspace, ERROR, report)
        raise


def left_error(workspace: Store, end: str = "") -> WorkerError | JobFailedError | None:
    """Returns the error that a worker left; None if none did.

    The message repeats `end`, the cluster's word on the job's end, unless that names the error's type: a retry may have
    succeeded, and the job may have failed for another reason.
    """
    report = read_report(workspace, ERROR)
    if report is None:
        return None
    message = report["message"]
    if end and report["type"] not in end:
        message = f"{message}; the job's end: {end}"
    return JobFailedError(message) if report["passes"] else WorkerError(message)


@contextmanager
def raising_left_error(workspace: Store) -> Iterator[None]:
    """Replaces a runner's error by the one left by a worker. Raises: WorkerError; JobFailedError: it may pass."""
    workspace.delete(f"{ERROR}.json")  # that of an earlier job
    try:
        yield
    except Exception as error:
        left = left_error(workspace, str(error) if isinstance(error, JobFailedError) else "")
        if left is None:
            raise
        raise left from error
