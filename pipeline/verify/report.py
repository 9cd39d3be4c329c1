"""Findings of a verification: problems with their places, and counts of checks; as text or JSON.

>>> findings = Findings()
>>> findings.add("emoji-train.tfrecord-00000-of-00004", "the data has a wrong checksum", record=7, offset=1_234)
>>> print(findings.problems[0])
emoji-train.tfrecord-00000-of-00004, record 7 at byte 1,234: the data has a wrong checksum
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.paths import ADOPT
from recordmill.pipeline.safe_text import printable

MOST = 20  # problems listed per file; the rest are counted
_COUNTED = {each: each for each in ("files", "shards", "records")}
_COUNTED |= {"operations": "operations of graphs", "rows": "raw rows served and read"}
"""The names of the counts, in the report's order."""


@dataclass(frozen=True)
class Problem:
    """A difference between a version and its manifest: in a file of the version, at a record (from 0), at a byte."""

    file: str
    message: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        """One line, with a hostile file name escaped."""
        record = "" if self.record is None else f", record {self.record}"
        byte = "" if self.offset is None else f"{'' if record else ','} at byte {self.offset:,}"
        return f"{printable(self.file)}{record}{byte}: {self.message}"


@dataclass
class Findings:
    """The problems of some files, and counts of checks."""

    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """The number of problems of each file, including unlisted ones."""
    checked: Counter[str] = field(default_factory=Counter)
    """The number of checked `files`, `bytes`, `shards`, `records`, `operations` and `rows`."""
    unchecked: list[str] = field(default_factory=list)  # the skipped checks, with reasons

    def add(self, file: str, message: str, record: int | None = None, offset: int | None = None) -> None:
        """Adds a problem; beyond 20 of a file only counts it."""
        self.counts[file] += 1
        if self.counts[file] <= MOST:
            self.problems.append(Problem(file, message, record, offset))

    def merge(self, *others: "Findings") -> None:
        """Adds the findings of other checks."""
        for other in others:
            self.problems += other.problems
            self.counts.update(other.counts)
            self.checked.update(other.checked)
            self.unchecked += other.unchecked

    @property
    def unnamed(self) -> dict[str, int]:
        """The number of unlisted problems, by file."""
        named = Counter(problem.file for problem in self.problems)
        return {file: count - named[file] for file, count in self.counts.items() if count > named[file]}


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification."""

    manifest: Manifest
    folder: str
    findings: Findings
    seconds: float

    @property
    def is_whole(self) -> bool:
        """Whether the version has no problems."""
        return not self.findings.counts

    def lines(self) -> Iterator[str]:
        """Formats the report for people: problems, counts, skipped checks, and last the verdict."""
        findings = self.findings
        yield from map(str, findings.problems)
        yield from (f"{printable(file)}: and {count:,} more" for file, count in findings.unnamed.items())
        counts = ((findings.checked[key], name) for key, name in _COUNTED.items())
        checked = ", ".join(f"{count:,} {name}" for count, name in counts if count)
        megabytes, seconds = findings.checked["bytes"] / 1e6, max(self.seconds, 1e-9)
        yield f"checked {checked}; {megabytes:,.1f} MB in {self.seconds:.1f} s, {megabytes / seconds:,.0f} MB/s"
        yield from (f"not checked: {check}" for check in findings.unchecked)
        problems, files = findings.counts.total(), len(findings.counts)
        verdict = f"{problems:,} problem{'s' * (problems > 1)} in {files:,} file{'s' * (files > 1)}"
        verdict += f": {ADOPT}" if self.manifest.adopted else ""
        if self.is_whole:
            verdict = "matches its manifest"
        yield printable(f"{self.manifest.name} {self.manifest.version}: {verdict}")

    def to_json(self) -> dict[str, Any]:
        """Formats the report for programs."""
        findings, problems = self.findings, [asdict(problem) for problem in self.findings.problems]
        return {
            "name": self.manifest.name,
            "version": self.manifest.version,
            "folder": self.folder,
            "is_whole": self.is_whole,
            "problems": [{name: each[name] for name in each if each[name] is not None} for each in problems],
            "unnamed": findings.unnamed,
            "checked": dict(sorted(findings.checked.items())),
            "not_checked": findings.unchecked,
            "seconds": round(self.seconds, 3),
            "megabytes_per_second": round(findings.checked["bytes"] / 1e6 / max(self.seconds, 1e-9), 1),
        }


def shown(key: bytes) -> str:
    """Quotes the first 80 bytes of a key for a message.

    >>> shown(b"cats/1.jpg")
    "'cats/1.jpg'"
    """
    return f"'{printable(key[:80].decode('utf-8', 'backslashreplace'))}{'…' if len(key) > 80 else ''}'"
