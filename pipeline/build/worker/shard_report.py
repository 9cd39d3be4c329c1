"""The report of a shard: counted batch by batch as it is built.

It includes the rows' profile (`pipeline.dataset.profile`).
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

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
from recordmill.pipeline.dataset.counts import Counts, Fold, ShardReport
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.profile import FeatureProfile
from recordmill.pipeline.sources.faults import Reject
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.texts.text_stored import ID_COUNTS, IGNORED, LOSS_MASK, MESSAGES, WHOLE
from recordmill.transforms.values.values_stored import SMALLEST, TINY

Ids = npt.NDArray[np.int64]
Stored = Mapping[str, Any]  # stored tensors by feature
Appearance = Mapping[str, npt.NDArray[np.float32]]


class BuiltBatch(NamedTuple):
    """The records of a batch of rows, one a row or a row's windows; and what the shard's report needs of them."""

    records: list[bytes]
    counts: Counts
    rejects: list[Reject]
    lengths: dict[str, Ids]  # the number of ids of each record, by text: int64 [records]
    packed: list[Ids]  # the records' numbers of ids, by pack: int64 [records] each
    digest: bytes  # the digest of the rows' keys and image files
    whole: dict[str, bytes]  # the digests of local files read whole, by `whole_file`
    contents: pa.Table  # the rows' contents, to find duplicates (`pipeline.build.duplicates.fingerprints`)


class ShardTotals:
    """Sums of the batches of a shard."""

    def __init__(self, context: PlannedBuild, rejects: Iterable[Reject] = ()) -> None:
        self._context, self._counts = context, Fold(Counts.sum)
        self._counts.add(Counts(more_windows=None if context.windowed is None else 0))
        self.rejects = [*rejects]
        self.packed: list[list[Ids]] = [[np.zeros(0, np.int64)] for _ in context.packs]
        self._lengths, self._digest = defaultdict[str, list[Ids]](list), hashlib.sha256()
        self._whole, self._contents = dict[str, bytes](), list[pa.Table]()

    def add(self, batch: BuiltBatch) -> None:
        """Adds the next batch."""
        self._counts.add(batch.counts)
        self.rejects += batch.rejects
        for several, more in zip(self.packed, batch.packed, strict=True):
            several.append(more)
        for name, lengths in batch.lengths.items():
            self._lengths[name].append(lengths)
        self._digest.update(batch.digest)
        self._whole |= batch.whole
        self._contents.append(batch.contents)

    @property
    def counts(self) -> Counts:
        """The counts of all rows, with the rejects'."""
        lengths = {name: profiles.measure_lengths(np.concatenate(each)) for name, each in self._lengths.items()}
        at_fault = Counter(reject.column for reject in self.rejects if reject.column)
        return replace(self._counts.sum() or Counts(), lengths=lengths, rejected=len(self.rejects), at_fault=at_fault)

    def report(self, group: int, files: Shard, index_sha256: str) -> ShardReport:
        """Writes the rejects, the contents and the files' digests; returns the report."""
        workspace, step = self._context.workspace, shard_step(group)
        write_file_digests(workspace, group, self._whole)
        write_contents(workspace, group, self._contents)
        rejects = write_rejects(workspace, f"rejects/{step}", self.rejects)
        place = self._context.layout.shard_of_group(group)
        return ShardReport(*place, files, index_sha256, self.counts, rejects, self._digest.hexdigest())


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
    counted = FeatureProfile(rows.num_rows, 0 if column is None else _missing(options, column))
    if options.counts == "numbers" and column is not None:
        return replace(counted, histogram=_histogram(_numbers(column)))
    ids, learned = _ids(stored.get(name)), context.learned[name]
    if ids is None:
        return counted
    if options.counts == "names":
        counts = dict(zip(*(each.tolist() for each in np.unique(ids, return_counts=True)), strict=True))
        few = counts if len(counts) <= profiles.MOST_NAMES and min(counts, default=0) >= 0 else None
        unknown = _unknown_names(options, learned, ids, counted.missing)
        return replace(counted, ids=few, tokens=len(ids), unknown=unknown)
    if options.counts == "words" and name in lengths:
        first, buckets = options.special(learned).unknown, getattr(options, "oov_buckets", 1)
        unknown = 0 if first is None else int(np.count_nonzero((ids >= first) & (ids < first + buckets)))
        histogram = _histogram(lengths[name].astype(np.float32))
        return replace(counted, histogram=histogram, tokens=len(ids), unknown=unknown)
    return counted


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


def counted_values(features: Mapping[str, Any], rows: pa.Table) -> Counter[tuple[str, str]]:
    """Counts the numbers treated as 0, the tokens with a label to ignore, and the messages and ids of chats."""
    found = Counter[tuple[str, str]]()
    for name, options in features.items():
        if options.counts == "numbers" and name in rows.column_names:
            values = np.abs(_numbers(rows[name]))
            found["losses", f"{name} {TINY}"] = int(np.count_nonzero((values > 0) & (values < SMALLEST)))
        elif options.counts == "labels":
            labels = pc.list_flatten(rows[encoded_name(name)]).to_numpy()
            found["losses", f"{name} {IGNORED}"] = int(np.count_nonzero(labels == options.ignore))
        elif encoded_name(name, WHOLE) in rows.column_names:  # of chats
            roles, masks, whole = (rows[encoded_name(name, part)] for part in (MESSAGES, LOSS_MASK, WHOLE))
            found.update(("messages", f"{name} {role}") for role in pc.list_flatten(roles).to_pylist())
            mask, is_cut = pc.list_flatten(masks), pc.greater(whole, pc.list_value_length(masks))
            counted = (pc.sum(mask), pc.count(mask), pc.sum(whole), pc.sum(is_cut))
            found.update({("ids", f"{name} {of}"): n.as_py() or 0 for of, n in zip(ID_COUNTS, counted, strict=True)})
    return +found


def bounds(stored: Stored) -> dict[str, tuple[int, int]]:
    """Returns the least and the greatest of each stored int64 with values, by name."""
    whole = {name: each for name, each in stored.items() if each.dtype == tf.int64}
    flat = {name: getattr(each, "flat_values", each).numpy() for name, each in whole.items()}
    return {name: (int(ids.min()), int(ids.max())) for name, ids in flat.items() if ids.size}


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
