"""What a check found: problems, each with its place, and how much was looked at.

>>> found = Findings()
>>> found.tell("emoji-train.tfrecord-00000-of-00004", "the checksum of its data is wrong", record=7, offset=1_234)
>>> print(found.problems[0])
emoji-train.tfrecord-00000-of-00004, record 7 at byte 1,234: the checksum of its data is wrong
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from recordmill.pipeline.terminal_text import printable

MOST = 20  # problems of one file that are named; the others are counted


@dataclass(frozen=True)
class Problem:
    """Something that is not as the manifest says."""

    file: str
    """Its path in the version's folder."""
    message: str
    record: int | None = None
    """The record's number in its shard, from 0."""
    offset: int | None = None
    """Where it begins in the file, in bytes."""

    def __str__(self) -> str:
        """One line; what a file's name holds cannot reach a terminal's controls."""
        place = printable(self.file)
        if self.record is not None:
            place += f", record {self.record}"
        if self.offset is not None:
            place += f"{',' if self.record is None else ''} at byte {self.offset:,}"
        return f"{place}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """Gives the problem without the places that it has not."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass
class Findings:
    """The problems of some files, and counts of what was checked."""

    problems: list[Problem] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    """How many problems each file has, those that are not named among them."""
    checked: Counter[str] = field(default_factory=Counter)
    """How many `files`, `bytes`, `shards`, `records`, `operations`, `rows` were looked at."""
    unchecked: list[str] = field(default_factory=list)
    """What could not be looked at, and why."""

    def tell(self, file: str, message: str, record: int | None = None, offset: int | None = None) -> None:
        """Adds a problem; of a file with many it is only counted."""
        self.told[file] += 1
        if self.told[file] <= MOST:
            self.problems.append(Problem(file, message, record, offset))

    def add(self, other: "Findings") -> None:
        """Adds what another check found."""
        self.problems += other.problems
        self.told.update(other.told)
        self.checked.update(other.checked)
        self.unchecked += other.unchecked

    @property
    def unnamed(self) -> dict[str, int]:
        """The files with more problems than are named, and how many more."""
        named = Counter(problem.file for problem in self.problems)
        return {file: count - named[file] for file, count in self.told.items() if count > named[file]}


def shown(key: bytes) -> str:
    """A key as a message names it, at most 80 characters of it.

    >>> shown(b"cats/1.jpg")
    "'cats/1.jpg'"
    """
    return f"'{printable(key[:80].decode('utf-8', 'backslashreplace'))}{'…' if len(key) > 80 else ''}'"
