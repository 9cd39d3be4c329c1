"""The failures that end a build: full disks, as one line for the user, and too many rejects.

A build that exceeds a limit on rejects ends as soon as that is certain. The driver adds up the reports of finished
steps while the job runs, and at its end.
"""

import errno
import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import PurePath
from typing import Any

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import LOOK_REPORTS, chunk_step, read_rejects
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.dataset.counts import FILTERED
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.sources.faults import DUPLICATE, Reject
from recordmill.pipeline.versions.stores.base import Store

MIN_ROWS = 20  # the least for `max_share_per_file`: in smaller files a single bad row is a large share
SHOWN_REASONS = 3
LEFT = "rejected.jsonl"
STEP = re.compile(rf"(reports|{LOOK_REPORTS})/(chunk|shard)-\d+\.json")
WHAT_NEXT = "Mend the rows, or raise the limit if the others are enough; then run the same command."
REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EROFS: "make it writable",
    errno.EACCES: "give the permission",
    errno.EPERM: "give the permission",
}


class DiskError(UserError):
    """A disk is full or not writable; the message says where, and what to do."""


def disk_error(error: BaseException, folder: str) -> DiskError | None:
    """Returns the error as one line with its file, or else the folder; None if no disk caused it."""
    chain: list[BaseException] = []  # with causes and contexts, the innermost first
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.insert(0, link)
        link = link.__cause__ or link.__context__
    if any(isinstance(cause, UserError) for cause in chain):
        return None
    for cause in chain:
        for number, remedy in REMEDIES.items():
            if getattr(cause, "errno", None) == number or os.strerror(number) in str(cause):
                path = _file(cause, number) or folder
                return DiskError(f"{os.strerror(number)}: {path}: {remedy}, then run the same command")
    return None


def _file(error: BaseException, number: int) -> str | None:
    """Returns the file of a failure: an attribute, or the quoted path in its text."""
    if isinstance(error, OSError) and error.filename:
        return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    named = re.search(rf"{re.escape(os.strerror(number))}: (?:'[^'\n]+' -> )?'([^'\n]+)'", str(error))
    return named[1] if named else None


def one_line(text: str) -> str:
    """Formats a text of the data for a message: one line, with control characters escaped."""
    return printable(text).replace("\n", "\\n")


class RejectPlaces:
    """The places of a build's rows."""

    def __init__(self, plan: BuildPlan, positions: Sequence[int | None]) -> None:
        """`positions` is the number of positions of each chunk, by its report; None before that."""
        self._plan = plan
        self._bases = list[int | None]()
        before: dict[tuple[int, str], int | None] = {}
        for number, (chunk, count) in enumerate(zip(plan.chunks, positions, strict=True)):
            base = before.get((chunk.source, chunk.file), 0) if chunk.file else 0  # without: numbers of whole files
            base = None if number in plan.gaps else base
            self._bases.append(base)
            before[chunk.source, chunk.file] = None if base is None or count is None else base + count

    def of(self, number: int, position: int) -> tuple[str, int | None]:
        """Returns a position's file, below its source's folder, and the line or record, from 1; None if unknown."""
        chunk, base = self._plan.chunks[number], self._bases[number]
        file, line = self._plan.sources[chunk.source].reader.locate(chunk, position)
        file = posixpath.join(self._plan.folders[chunk.source], file)
        return file, None if line is None or base is None else base + line

    def words(self, number: int, position: int) -> str:
        """Returns the place in a message: `rows.jsonl, line 7`."""
        file, line = self.of(number, position)
        return file if line is None else f"{file}, line {line}"

    def published(self, reject: Reject) -> dict[str, Any]:
        """Returns a reject's line of the published JSONL."""
        (file, line), message = self.of(reject.chunk, reject.position), reject.message
        if reject.first_chunk is not None and reject.first_position is not None:
            message += f": {self.words(reject.first_chunk, reject.first_position)}, which stays"
        return {
            "id": reject.key,
            "column": reject.column,
            "code": reject.reason,
            "message": message,
            "source": self._plan.sources[self._plan.chunks[reject.chunk].source].index,
            "file": file,
            "line": line,
        }

    def lines(self, rejects: Iterable[Reject]) -> bytes:
        """Returns the published JSONL of rejects."""
        lines = "".join(json.dumps(self.published(reject), ensure_ascii=False) + "\n" for reject in rejects)
        return lines.encode("utf-8", "backslashreplace")

    def example(self, reject: Reject) -> str:
        """Formats a reject as an example in a message: its place, column and fault."""
        column = "" if reject.column is None else f", column '{reject.column}'"
        words = f"{self.words(reject.chunk, reject.position)}{column}: {self.published(reject)['message']}"
        return one_line(words)


def leave(rejects: Iterable[Reject], places: RejectPlaces, workspace: Store) -> list[str]:
    """Writes the rejects of a build that fails beside its finished work; returns a line on their file."""
    with suppress(OSError, UserError):
        workspace.write(LEFT, places.lines(sorted(rejects, key=attrgetter("chunk", "position"))))
        return [f"All rejects so far are in {workspace.url}/{LEFT}"]
    return []


class TooManyRejectsError(UserError):
    """More rows were rejected than the spec allows; the message says why."""

    exit_code = ExitCode.REJECTS


@dataclass
class Count:
    """The rows of the whole build, or of one file."""

    chunks_left: int = 0  # to read
    read: int = 0
    examples: dict[str, Reject] = field(default_factory=dict)  # the first reject, by chunk and position, of each reason
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, reject: Reject) -> None:
        """Counts a reject."""
        self.reasons[reject.reason] += 1
        first = self.examples.setdefault(reject.reason, reject)
        if (reject.chunk, reject.position) < (first.chunk, first.position):
            self.examples[reject.reason] = reject

    def of(self, *, duplicates: bool) -> Counter[str]:
        """Returns the counts for one limit: of repeated keys, or of all other reasons."""
        return Counter({each: rows for each, rows in self.reasons.items() if (each == DUPLICATE) == duplicates})


class RejectLimits:
    """The rejects of a build's finished steps, and the limits of its spec."""

    def __init__(self, plan: BuildPlan, planned: PlannedBuild) -> None:
        self._plan, self._planned, self._limits = plan, planned, plan.spec.rejects
        self._chunks = {chunk_step(chunk.index): chunk.index for chunk in plan.chunks}
        self._positions: list[int | None] = [None] * len(plan.chunks)
        self._seen, self._written = set[str](), list[str]()
        self._total = Count(len(plan.chunks))
        self._files: dict[tuple[int, str], Count] = {}
        for chunk in plan.chunks:
            self._file(chunk.index).chunks_left += 1

    def __call__(self) -> None:
        """Reads new reports. Raises: TooManyRejectsError: a limit is exceeded, whatever the remaining rows are."""
        if {self._limits.max_share, self._limits.duplicate_share, self._limits.max_share_per_file} == {None}:
            return
        folders = ["reports", LOOK_REPORTS] if self._planned.inline else ["reports"]
        names = [name for folder in folders for name in sorted(self._planned.workspace.names(folder))]
        new = [name for name in names if STEP.fullmatch(name) and name not in self._seen]
        self._seen.update(new)
        for name, data in self._planned.workspace.read_all(new):
            if data is not None:  # another attempt may have taken it over meanwhile
                self._add(PurePath(name).stem, json.loads(data))
        if new:
            self._check()

    def _file(self, chunk: int) -> Count:
        where = self._plan.chunks[chunk]
        return self._files.setdefault((where.source, where.file), Count())

    def _add(self, step: str, report: dict[str, Any]) -> None:
        if step in self._chunks:
            number = self._chunks[step]
            if self._positions[number] is not None:  # a look read it, too
                return
            self._positions[number] = report["positions"]
            for count in (self._total, self._file(number)):
                count.read += report["read"]
                count.chunks_left -= 1
        if report.get("rejects"):
            self._written.append(report["rejects"])
            rejects = read_rejects(self._planned.workspace, [report["rejects"]])
            for reject in (each for each in rejects if each.reason != FILTERED):  # meant to go
                self._total.add(reject)
                self._file(reject.chunk).add(reject)

    def _check(self) -> None:
        self._compare(self._total, self._limits.max_share, "max_share", "")
        self._compare(self._total, self._limits.duplicate_share, "max_duplicate_share", "")
        if self._limits.max_share_per_file is not None:
            for (_, file), count in self._files.items():
                if file and count.read >= MIN_ROWS:  # a listing has no file name: each file is a row
                    self._compare(count, self._limits.max_share_per_file, "max_share_per_file", f" of {one_line(file)}")

    def _compare(self, count: Count, limit: float | None, option: str, of_file: str) -> None:
        is_known = self._plan.rows_are_exact and count is self._total
        most = count.read if not count.chunks_left else self._plan.rows if is_known else None
        reasons = count.of(duplicates=option == "max_duplicate_share")
        rejected = reasons.total()
        if limit is None or most is None or not rejected or (most and rejected / most <= limit):
            return
        rows = f"{count.read:,} rows{of_file}{' read so far' if count.chunks_left else ''}"
        share = f"{rejected / count.read:.1%}; rejects.{option} allows {limit:.1%}"
        first = f"{rejected:,} of {rows} were rejected, {share}"
        places = RejectPlaces(self._plan, self._positions)
        most_frequent = by_frequency(reasons)[:SHOWN_REASONS]
        examples = {reason: places.example(count.examples[reason]) for reason, _ in most_frequent}
        such = [f"  {reason}: {number:,}, such as {examples[reason]}" for reason, number in most_frequent]
        workspace = self._planned.workspace
        left = leave(read_rejects(workspace, self._written), places, workspace)
        raise TooManyRejectsError("\n".join([first, *such, *left, WHAT_NEXT]))


def by_frequency(reasons: Counter[str]) -> list[tuple[str, int]]:
    """Sorts reasons by descending count, then by name."""
    return sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
