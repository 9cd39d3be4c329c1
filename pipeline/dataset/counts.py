"""Counts of rows and of their records: of a batch, of a shard in its report, of a split or a span.

They are whole numbers, and add up exactly in any order. A shard's report is JSON in the build's workspace; a version
keeps it in the report of a span (`spans/<span>/report.json`), which holds the reports of its shards.

>>> Counts.sum([Counts(labels={0: 2, 7: 1}), Counts(labels={7: 3}, rejected=1)]).labels
Counter({7: 4, 0: 2})
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from recordmill.pipeline.dataset import manifest_parts, profile
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.manifest_parts import PackFile
from recordmill.pipeline.dataset.profile import Lengths, Profile
from recordmill.pipeline.json_values import read_as
from recordmill.transforms.contract.image_facts import COUNTS

Part = TypeVar("Part")
TOGETHER = 64  # counts added up at once: some 2 MiB; those of 65,536 shards would take 7 GB


class Fold(Generic[Part]):
    """Adds up parts as they come, whenever more of them wait than the sum is large."""

    def __init__(
        self, add: Callable[[Sequence[Part]], Part], most: int = TOGETHER, size: Callable[[Part], int] = lambda part: 1
    ) -> None:
        """Takes the function that adds up one or more parts, a part's size, and the most that always may wait."""
        self._add, self._most, self._size = add, most, size
        self._parts: list[Part] = []
        self._waiting = 0
        self.size = 0  # of the sum, without waiting parts

    def add(self, part: Part) -> None:
        """Adds a part."""
        self._parts.append(part)
        self._waiting += self._size(part)
        if self._waiting > max(self._most, self.size):
            self.sum()

    def sum(self) -> Part | None:
        """Returns the sum of all parts; None for no parts."""
        if self._waiting:
            self._parts = [self._add(self._parts)]
            self._waiting, self.size = 0, self._size(self._parts[0])
        return self._parts[0] if self._parts else None


@dataclass(frozen=True)
class Counts:
    """Counts of some rows, and of their records."""

    written: Mapping[int, int] = field(default_factory=dict)  # rows in records, by source
    more_windows: int | None = None  # records beyond the first of each row; None where no text is cut into windows
    labels: Mapping[int, int] = field(default_factory=dict)  # records of each class, by id
    facts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Numbers of images and values by each of `COUNTS`, by feature and name: `("profiles", "image Display P3")`."""
    lengths: Mapping[str, Lengths] = field(default_factory=dict)  # of each text, in ids
    profile: Profile = field(default_factory=dict)
    rejected: int = 0
    at_fault: Mapping[str, int] = field(default_factory=dict)  # rejected rows by the column at fault

    @classmethod
    def sum(cls, several: Iterable["Counts"]) -> "Counts":
        """Adds up any number of counts."""
        parts = [*several]
        windows = [each.more_windows for each in parts if each.more_windows is not None]
        lengths = profile.gathered(each.lengths for each in parts)
        return cls(
            written=_total(each.written for each in parts),
            more_windows=sum(windows) if windows else None,
            labels=_total(each.labels for each in parts),
            facts=_total(each.facts for each in parts),
            lengths={name: profile.add_up_lengths(several) for name, several in lengths.items()},
            profile=profile.add_up(each.profile for each in parts),
            rejected=sum(each.rejected for each in parts),
            at_fault=_total(each.at_fault for each in parts),
        )

    @property
    def statistics(self) -> dict[str, dict[str, Any]]:
        """The part of `statistics` of `dataset.json` that records are counted for: by feature, each of `COUNTS`."""
        found = dict[str, dict[str, Any]]()
        for (count, which), number in sorted(self.facts.items(), key=lambda fact: fact[0][::-1]):
            feature, _, name = which.partition(" ")
            found.setdefault(feature, {}).setdefault(count, {})[name] = number
        return found


def _total(several: Iterable[Mapping[Any, int]]) -> Counter[Any]:
    total = Counter[Any]()
    for each in several:
        total.update(each)
    return total


def _by_number(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(number): count for number, count in counts.items()}


@dataclass(frozen=True)
class ShardReport:
    """A built shard."""

    split: str
    number: int  # in its split
    files: Shard
    index_sha256: str
    counts: Counts = field(default_factory=Counts)
    rejects: str | None = None  # the file of its rejects in the workspace
    inputs_sha256: str = ""  # the digest of its keys and image files

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON, with numbers for keys."""
        files, counts = self.files, self.counts
        facts = {
            which: sorted((of, n) for (count, of), n in counts.facts.items() if count == which) for which in COUNTS
        }
        return {
            **{"split": self.split, "shard": self.number, "file": files.file, "index": files.index},
            "packs": [pack.to_json() for pack in files.packs],
            **{"bytes": files.bytes, "records": files.records, "sha256": files.sha256},
            "index_sha256": self.index_sha256,
            "written_by_source": dict(sorted(counts.written.items())),
            **({} if counts.more_windows is None else {"more_windows": counts.more_windows}),
            "label_counts": dict(sorted(counts.labels.items())),
            **{which: dict(found) for which, found in facts.items()},
            "lengths": counts.lengths,
            "profile": profile.profile_to_json(counts.profile),
            **{"rejected": counts.rejected, "at_fault": dict(sorted(counts.at_fault.items()))},
            **{"rejects": self.rejects, "inputs_sha256": self.inputs_sha256},
        }

    @classmethod
    def of_json(cls, json: Mapping[str, Any]) -> "ShardReport":
        """Reads a report, also one of an earlier Recordmill. Raises: DatasetError: its profile is invalid."""
        packs = tuple(read_as(json.get("packs", []), list[PackFile], "packs"))
        given = {what: json.get(what, "") for what in ("file", "bytes", "records", "sha256", "index")}
        files = Shard(**given, packs=packs)
        counts = Counts(
            written=_by_number(json.get("written_by_source", {})),
            more_windows=json.get("more_windows"),
            labels=_by_number(json.get("label_counts", {})),
            facts={(which, of): number for which in COUNTS for of, number in json.get(which, {}).items()},
            lengths=json.get("lengths", {}),
            profile=profile.profile_of_json(json.get("profile", {})),
            rejected=json["rejected"],
            at_fault=json.get("at_fault", {}),
        )
        named = {name: json.get(name, "") for name in ("index_sha256", "inputs_sha256")}
        return cls(json["split"], json.get("shard", 0), files, counts=counts, rejects=json.get("rejects"), **named)

    @property
    def small(self) -> "ShardReport":
        """The report without the counts by class and value, which fill the memory if all shards keep theirs."""
        return replace(self, counts=replace(self.counts, labels={}, profile={}))


def by_split(reports: Iterable[ShardReport]) -> dict[str, Counts]:
    """Adds up the counts of shards as they come, by split."""
    folds = defaultdict[str, Fold[Counts]](partial(Fold, Counts.sum))
    for report in reports:
        folds[report.split].add(report.counts)
    return {split: whole for split, fold in folds.items() if (whole := fold.sum())}


@dataclass(frozen=True)
class SpanReport:
    """What a later version must know of a span that it keeps."""

    sources: Mapping[str, Mapping[str, int]]  # the fates of the rows of each source of the spec, by its number
    reasons: Mapping[str, int]  # the number of rejects by reason
    duplicates: dict[str, Any]  # the manifest's entry on duplicates within the span
    shards: Sequence[ShardReport | None]  # in the order of their groups; None without rows

    def to_bytes(self) -> bytes:
        """Returns the content of the span's file."""
        return json.dumps(vars(self) | {"shards": [each and each.to_json() for each in self.shards]}).encode()

    @classmethod
    def of_bytes(cls, data: bytes) -> "SpanReport":
        """Reads the result of `to_bytes`. Raises: DatasetError: it is invalid."""
        json = manifest_parts.read_report(data)
        shards = [each and ShardReport.of_json(each) for each in json["shards"]]
        return cls(json["sources"], json["reasons"], json["duplicates"], shards)
