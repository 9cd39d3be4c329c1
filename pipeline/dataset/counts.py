"""Counts of rows and of their records: of a batch, of a shard in its report, of a split or a span.

They are whole numbers, and add up exactly in any order. A shard's report is JSON in the build's workspace; a version
keeps it in the report of a span (`spans/<span>/report.json`), which holds the reports of its shards.

>>> Counts.sum([Counts(label_counts={0: 2, 7: 1}), Counts(label_counts={7: 3}, rejected=1)]).label_counts
Counter({7: 4, 0: 2})
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Generic, TypeVar

from recordmill.pipeline.dataset import manifest_parts, profile
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.manifest_parts import PackFile
from recordmill.pipeline.dataset.profile import Lengths, Profile
from recordmill.pipeline.json_values import read_as
from recordmill.transforms.images.image_facts import COUNTS

Part = TypeVar("Part")
FILTERED = "filtered"  # the code of rejects by the user's filter, which are counted by its reasons
TOTALS = ("written_by_source", "label_counts", *COUNTS, "at_fault")  # the fields of `Counts` by key
TOGETHER = 64  # counts added up at once: some 2 MiB; those of 65,536 shards would take 7 GB


class Fold(Generic[Part]):
    """Adds up parts as they come: whenever the waiting ones are larger than their sum so far."""

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
    """Counts of some rows, and of their records, by the names and in the order of their JSON."""

    written_by_source: Mapping[int, int] = field(default_factory=dict)  # rows in records
    more_windows: int | None = None  # records beyond the first of each row; None where no text is cut into windows
    label_counts: Mapping[int, int] = field(default_factory=dict)  # records of each class, by id
    transcoded: Mapping[str, int] = field(default_factory=dict)
    """The first of `image_facts.COUNTS`: numbers of images and values, by feature and name: `image GIF`."""
    profiles: Mapping[str, int] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)  # of chats, by role
    ids: Mapping[str, int] = field(default_factory=dict)  # of chats, each of `ID_COUNTS`
    lengths: Mapping[str, Lengths] = field(default_factory=dict)  # of each text, in ids
    profile: Profile = field(default_factory=dict)
    rejected: int = 0
    at_fault: Mapping[str, int] = field(default_factory=dict)  # rejected rows by the column at fault
    bounds: Mapping[str, tuple[int, int]] | None = None  # of the int64 stored by the user's `preprocessing`, by name

    @classmethod
    def sum(cls, several: Iterable["Counts"]) -> "Counts":
        """Adds up any number of counts."""
        parts, totals = [*several], {name: Counter[Any]() for name in TOTALS}
        for name, total in totals.items():
            for each in parts:
                total.update(getattr(each, name))
        windows = [each.more_windows for each in parts if each.more_windows is not None]
        lengths = profile.gathered(each.lengths for each in parts)
        bounds = profile.gathered(each.bounds or {} for each in parts)
        return cls(
            **totals,
            bounds={name: (min(map(min, each)), max(map(max, each))) for name, each in bounds.items()} or None,
            more_windows=sum(windows) if windows else None,
            lengths={name: profile.add_up_lengths(several) for name, several in lengths.items()},
            profile=profile.add_up(each.profile for each in parts),
            rejected=sum(each.rejected for each in parts),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the counts as JSON, some with numbers for keys."""
        json = {name: value for name, value in vars(self).items() if value is not None}
        totals = {name: dict(sorted(json[name].items())) for name in TOTALS}
        return json | totals | {"profile": profile.profile_to_json(self.profile)}

    @classmethod
    def of_json(cls, json: Mapping[str, Any]) -> "Counts":
        """Reads them back, also those of an earlier Recordmill. Raises: DatasetError: the profile is invalid."""
        given = {each.name: json[each.name] for each in fields(cls) if each.name in json}
        for name in given.keys() & {"written_by_source", "label_counts"}:
            given[name] = {int(number): count for number, count in given[name].items()}
        return cls(**given | {"profile": profile.profile_of_json(json.get("profile", {}))})

    @property
    def statistics(self) -> dict[str, dict[str, Any]]:
        """The part of `statistics` of `dataset.json` that records are counted for: by feature, each of `COUNTS`."""
        found = dict[str, dict[str, Any]]()
        every = ((which, count, number) for count in COUNTS for which, number in getattr(self, count).items())
        for which, count, number in sorted(every):
            feature, _, name = which.partition(" ")
            found.setdefault(feature, {}).setdefault(count, {})[name] = number
        return found


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
        """Returns the report as JSON, some with numbers for keys."""
        files = self.files
        return {
            **{"split": self.split, "shard": self.number, "file": files.file, "index": files.index},
            "packs": [pack.to_json() for pack in files.packs],
            **{"bytes": files.bytes, "records": files.records, "sha256": files.sha256},
            **{"index_sha256": self.index_sha256, **self.counts.to_json()},
            **{"rejects": self.rejects, "inputs_sha256": self.inputs_sha256},
        }

    @classmethod
    def of_json(cls, json: Mapping[str, Any]) -> "ShardReport":
        """Reads it back, as `Counts.of_json`."""
        packs = tuple(read_as(json.get("packs", []), list[PackFile], "packs"))
        given = {what: json.get(what, "") for what in ("file", "bytes", "records", "sha256", "index")}
        digests = {name: json.get(name, "") for name in ("index_sha256", "inputs_sha256")}
        files, counts = Shard(**given, packs=packs), Counts.of_json(json)
        return cls(json["split"], json.get("shard", 0), files, counts=counts, rejects=json.get("rejects"), **digests)

    @property
    def small(self) -> "ShardReport":
        """The report without the counts by class and value, which fill the memory if all shards keep theirs."""
        return replace(self, counts=replace(self.counts, label_counts={}, profile={}))


def counted_as(code: str, message: str) -> str:
    """Returns the name that a reject is counted under: `filtered: too short` of a filter's."""
    return f"{FILTERED}: {message}" if code == FILTERED else code


def by_split(reports: Iterable[ShardReport]) -> dict[str, Counts]:
    """Adds up the counts of shards as they come, by split."""
    folds = defaultdict[str, Fold[Counts]](partial(Fold, Counts.sum))
    for report in reports:
        folds[report.split].add(report.counts)
    return {split: whole for split, fold in folds.items() if (whole := fold.sum())}


@dataclass(frozen=True)
class SpanReport:
    """The facts of a span that a later version needs to keep it."""

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
