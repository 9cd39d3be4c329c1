"""The report of a shard: counted batch by batch as it is built, and added up over all shards by the driver.

It includes the rows' profile (`pipeline.dataset.profile`).

>>> sums = ShardSums()
>>> sums.add({"split": "train", "label_counts": {"0": 2}, "profile": {}, "records": 2})
{'split': 'train', 'records': 2}
>>> sums.labels["train"]
Counter({0: 2})
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from recordmill.pipeline.build.context.arrow_files import write_file_digests
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import shard_step, write_rejects
from recordmill.pipeline.build.duplicates.fingerprints import write_contents
from recordmill.pipeline.build.texts.encode import encoded_name
from recordmill.pipeline.dataset import profile as profiles
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import FeatureProfile, Profile
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.spec.features.feature import Feature
from recordmill.transforms.contract.image_facts import COUNTS
from recordmill.transforms.contract.kinds.base import Learned
from recordmill.transforms.contract.kinds.text import IGNORED
from recordmill.transforms.contract.kinds.values import SMALLEST, TINY

Ids = npt.NDArray[np.int64]
Stored = Mapping[str, Any]
"""Stored tensors by feature."""
Appearance = Mapping[str, npt.NDArray[np.float32]]
TOGETHER = 64  # profiles added up at once: some 2 MiB
LARGE = ("label_counts", "profile")


class ProfileSum:
    """Adds up profiles as they come, `TOGETHER` at a time: 65,536 shards' profiles would take 7 GB."""

    def __init__(self, *first: Profile) -> None:
        self.parts = list(first)

    def add(self, more: Iterable[Profile]) -> None:
        """Adds profiles."""
        self.parts += more
        if len(self.parts) > TOGETHER:
            self.parts = [self.sum()]

    def sum(self) -> dict[str, FeatureProfile]:
        """Returns the sum of all profiles."""
        return profiles.add_up(self.parts)


@dataclass
class ShardTotals:
    """Sums of a batch's rows, or of several batches'."""

    rejects: list[Reject] = field(default_factory=list)
    written: Counter[int] = field(default_factory=Counter)
    """The number of rows in records, by source."""
    more_windows: int = 0
    """The records beyond the first of each row."""
    labels: Counter[int] = field(default_factory=Counter)
    """The records of each class, by id."""
    facts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Numbers of images and values by each of `COUNTS`, by feature and name: `("profiles", "image Display P3")`."""
    lengths: dict[str, list[npt.NDArray[np.int64]]] = field(default_factory=dict)
    """The number of ids of each record, by text."""
    profile: ProfileSum = field(default_factory=ProfileSum)
    digests: list[bytes] = field(default_factory=list)
    """The digests of the batches' keys and image files."""
    whole: dict[str, bytes] = field(default_factory=dict)
    """The digests of local files read whole, by `whole_file`."""
    contents: list[pa.Table] = field(default_factory=list)
    """The rows' contents, to find duplicates (`pipeline.build.duplicates.fingerprints`)."""

    def add(self, batch: "ShardTotals") -> None:
        """Adds the sums of the next batch."""
        self.rejects += batch.rejects
        self.written.update(batch.written)
        self.more_windows += batch.more_windows
        self.labels.update(batch.labels)
        self.facts.update(batch.facts)
        for name, lengths in batch.lengths.items():
            self.lengths.setdefault(name, []).extend(lengths)
        self.profile.add(batch.profile.parts)
        self.digests += batch.digests
        self.whole |= batch.whole
        self.contents += batch.contents

    def report(self, context: PlannedBuild, group: int) -> dict[str, Any]:
        """Writes the rejects, the contents and the files' digests; returns the rejects' file and the sums."""
        write_file_digests(context.workspace, group, self.whole)
        write_contents(context.workspace, group, self.contents)
        return {
            "written_by_source": {str(source): count for source, count in sorted(self.written.items())},
            **({} if context.windowed is None else {"more_windows": self.more_windows}),
            "label_counts": {str(label): count for label, count in sorted(self.labels.items())},
            **{key: {of: n for (count, of), n in sorted(self.facts.items()) if count == key} for key in COUNTS},
            "lengths": {
                name: profiles.measure_lengths(np.concatenate(lengths)) for name, lengths in self.lengths.items()
            },
            "profile": profiles.profile_to_json(self.profile.sum()),
            "rejected": len(self.rejects),
            "at_fault": dict(sorted(Counter(reject.column for reject in self.rejects if reject.column).items())),
            "rejects": write_rejects(context.workspace, f"rejects/{shard_step(group)}", self.rejects),
            "inputs_sha256": hashlib.sha256(b"".join(self.digests)).hexdigest(),
        }


class ShardSums:
    """Sums of shards' reports."""

    def __init__(self) -> None:
        self.labels: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """The records of each class, by split and id."""
        self._profiles: defaultdict[str, ProfileSum] = defaultdict(ProfileSum)

    def add(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Adds a report; returns it without the counts by class or value."""
        split = report["split"]
        self.labels[split].update({int(label): count for label, count in report.get("label_counts", {}).items()})
        self._profiles[split].add([profiles.profile_of_json(report.get("profile", {}))])
        return {name: value for name, value in report.items() if name not in LARGE}

    def profiles(self) -> dict[str, dict[str, FeatureProfile]]:
        """Returns the profile of each split with shards."""
        return {split: profile.sum() for split, profile in self._profiles.items()}


def profile_of(
    context: PlannedBuild,
    rows: pa.Table,
    stored: Stored,
    lengths: Mapping[str, Ids],
    measured: Mapping[str, Appearance] = MappingProxyType({}),
) -> dict[str, FeatureProfile]:
    """Counts every feature of the spec, in keyed rows and in their stored tensors.

    `lengths` are the number of ids of each text, int64 [texts], and `measured` the appearance of images, by feature.
    """
    profile = {name: _feature(context, name, rows, stored, lengths) for name in context.features}
    for name, measures in measured.items():
        histograms = {measure: _histogram(values) for measure, values in measures.items() if len(values)}
        profile[name] = replace(profile[name], appearance=histograms)
    return profile


def _feature(
    context: PlannedBuild, name: str, rows: pa.Table, stored: Stored, lengths: Mapping[str, Ids]
) -> FeatureProfile:
    options: Any = context.features[name]
    column = rows[name] if name in rows.column_names else None
    missing = 0 if column is None else _missing(options, column)
    if options.counts == "numbers" and column is not None:
        return FeatureProfile(rows.num_rows, missing, _histogram(_numbers(column)))
    ids = _ids(stored.get(name))
    if ids is not None and options.counts == "names":
        counts = dict(zip(*(each.tolist() for each in np.unique(ids, return_counts=True)), strict=True))
        few = counts if len(counts) <= profiles.MOST_NAMES else None
        unknown = _unknown_names(options, context.learned[name], ids, missing)
        return FeatureProfile(rows.num_rows, missing, None, few, len(ids), unknown)
    if ids is not None and options.counts == "words" and name in lengths:
        histogram = _histogram(lengths[name].astype(np.float32))
        return FeatureProfile(
            rows.num_rows, missing, histogram, None, len(ids), _unknown_words(options, context.learned[name], ids)
        )
    return FeatureProfile(rows.num_rows, missing)


def _missing(options: Feature, column: pa.ChunkedArray) -> int:
    """Counts NaN, empty strings and empty lists; of required values only lists and texts may be empty."""
    if pa.types.is_list(column.type):
        return int(pc.sum(pc.equal(pc.list_value_length(column), 0)).as_py() or 0)
    if not (options.optional or options.counts == "words"):
        return 0
    if pa.types.is_floating(column.type):
        return int(np.count_nonzero(np.isnan(column.to_numpy())))
    if pa.types.is_binary(column.type):
        return int(pc.sum(pc.equal(pc.binary_length(column), 0)).as_py() or 0)
    return 0


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    values = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    numbers = values.to_numpy().astype(np.float32)
    return numbers[np.isfinite(numbers)]


def lost_values(features: Mapping[str, Any], rows: pa.Table) -> Counter[tuple[str, str]]:
    """Counts the numbers treated as 0, and the tokens with a label to ignore."""
    found = Counter[tuple[str, str]]()
    for name, options in features.items():
        if options.counts == "numbers" and name in rows.column_names:
            values = np.abs(_numbers(rows[name]))
            found["losses", f"{name} {TINY}"] = int(np.count_nonzero((values > 0) & (values < SMALLEST)))
        elif options.counts == "labels":
            labels = pc.list_flatten(rows[encoded_name(name)]).to_numpy()
            found["losses", f"{name} {IGNORED}"] = int(np.count_nonzero(labels == options.ignore))
    return +found


def _histogram(values: npt.NDArray[np.float32]) -> Histogram:
    seen = Histogram.of(values)
    return seen if len(seen.keys) <= profiles.MOST_VALUES else Histogram.merged([seen], profiles.MOST_VALUES)


def _ids(stored: object) -> Ids | None:
    """Returns a feature's ids, int64 [ids]; None if the user's function stores something else."""
    flat = stored.flat_values if isinstance(stored, tf.RaggedTensor) else stored
    return flat.numpy() if isinstance(flat, tf.Tensor) and flat.dtype == tf.int64 and flat.shape.rank == 1 else None


def _unknown_names(options: Any, learned: Learned, ids: Ids, missing: int) -> int:
    """Counts the ids of names outside of the vocabulary; all hashed names and all labels are known."""
    if not options.has_vocabulary or learned.is_label:
        return 0
    if not options.oov_buckets:  # unknown and missing names share the id 0
        return int(np.count_nonzero(ids == 0)) - missing
    return int(np.count_nonzero((ids > 0) & (ids <= options.oov_buckets)))


def _unknown_words(options: Any, learned: Learned, ids: Ids) -> int:
    first, buckets = options.special(learned).unknown, getattr(options, "oov_buckets", 1)
    return 0 if first is None else int(np.count_nonzero((ids >= first) & (ids < first + buckets)))
