"""The facts of a version that its manifest and its class names state: `show`, report, card and notebook render them.

A kind that this Recordmill does not know hinders nothing: its description is None, its words are those of the manifest.

>>> VersionFacts(folder, read_manifest(folder)).features["label"].stored  # doctest: +SKIP
'int64 ids'
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from recordmill.pipeline.dataset.manifest import DatasetError, Json, Manifest
from recordmill.pipeline.dataset.manifest_words import statistics_words, stored_words, summary
from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.dataset.profile import describe_lengths
from recordmill.pipeline.dataset.vocabulary import read_vocabulary
from recordmill.pipeline.rows import read_reject_lines
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.text import TextDescription
from recordmill.transforms.contract.stored import Stored


class FeatureFacts(NamedTuple):
    """A feature, in words."""

    name: str
    kind: str
    is_label: bool
    description: Description | None
    """None where the kind, or one of its options, is unknown."""
    stored: str
    """The stored value: `JPEG 224×224×3`."""
    learned: Sequence[str]
    """Statistics of the values, piece by piece."""
    lengths: str
    """The lengths of a text in ids, and the cost of padding; empty for other kinds."""

    @property
    def parts(self) -> Mapping[str, Stored]:
        """The stored tensors, by part; none of an unknown kind."""
        return {} if self.description is None else self.description.parts()


class ClassCounts(NamedTuple):
    """The records of each class of the label."""

    names: Sequence[str]
    by_split: Mapping[str, Sequence[int]]
    """A count for each name."""

    @property
    def totals(self) -> list[int]:
        """The records of each class in all splits."""
        return [sum(counts) for counts in zip(*self.by_split.values(), strict=True)]


class RejectFacts(NamedTuple):
    """The rejects of one reason."""

    reason: str
    rows: int
    examples: Sequence[Json]
    """The first ones, as the file of rejects has them."""


@dataclass(frozen=True)
class VersionFacts:
    """A version's facts; those that need its files are read when they are asked for."""

    folder: Location
    manifest: Manifest

    @property
    def records(self) -> int:
        """The records of all splits."""
        return sum(split.records for split in self.manifest.splits.values())

    @property
    def bytes(self) -> int:
        """The bytes of all shards."""
        return sum(split.bytes for split in self.manifest.splits.values())

    @cached_property
    def features(self) -> Mapping[str, FeatureFacts]:
        """The features, in the order of the spec."""
        return {name: self._feature(name, json) for name, json in self.manifest.features.items()}

    def _feature(self, name: str, json: Json) -> FeatureFacts:
        description, statistics, lengths = None, self.manifest.statistics.get(name, {}), ""
        with suppress(DatasetError):
            description = read_description(json)
        if isinstance(description, TextDescription) and statistics.get("lengths"):
            text = description
            lengths = describe_lengths(statistics["lengths"], max_length=text.max_length, packed=text.packed)
        learned = tuple(statistics_words(name, description, statistics))
        stored, is_label = stored_words(description, json), name == self.manifest.label
        return FeatureFacts(name, str(json.get("kind")), is_label, description, stored, learned, lengths)

    @cached_property
    def classes(self) -> ClassCounts | None:
        """The records by class; None where the label is no category. Raises: DatasetError: the names are damaged."""
        counted = {name: split.label_counts for name, split in self.manifest.splits.items() if split.label_counts}
        label = self.features.get(self.manifest.label or "")
        if not counted or label is None or label.description is None:
            return None
        names = read_vocabulary(self.folder, label.description, label.name)
        number = min(len(names), *map(len, counted.values()))
        return ClassCounts(names[:number], {split: counts[:number] for split, counts in counted.items()})

    @property
    def duplicates(self) -> Sequence[str]:
        """The duplicates, a line each; examples are indented."""
        return tuple(summary(self.manifest.duplicates))

    def rejects(self, examples: int = 0) -> list[RejectFacts]:
        """Returns the rejects by reason, the most frequent first, with as many examples of each.

        Raises:
            DatasetError: the file of rejects is missing or damaged.
        """
        counts = self.manifest.rejects.get("by_reason", {})
        shown: dict[str, list[Json]] = {reason: [] for reason in counts}
        for file in self.manifest.rejects.get("files", []) if examples else ():
            for _, reject in read_reject_lines(self.folder, file["file"]):
                some = shown.setdefault(str(reject.get("code")), [])
                if len(some) < examples:
                    some.append(reject)
        order = sorted(shown, key=lambda reason: (-counts.get(reason, 0), reason))
        return [RejectFacts(reason, counts.get(reason, 0), shown[reason]) for reason in order]
