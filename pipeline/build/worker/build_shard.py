"""Builds one shard: rows in hash order, image bytes, the transform graph in a thread pool, examples, file and index.

A shard's report is its commit: it is written when the files are in place.

Stored tensors become `tf.train.Example`s with features in the order of their names; tfx_bsl's encoder keeps no order.
Windows of a long text become several records, after the graph, which knows texts only whole: as Hugging Face's
`return_overflowing_tokens`, with a stride of `length - stride` and no special tokens of its own.

>>> [part.tolist() for part in windows(np.array([0, 9]), Window(length=4, stride=3))]
[[0, 1, 1, 1], [0, 0, 1, 2], [0, 0, 3, 6], [0, 4, 4, 3]]
"""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import Progress, reject_duplicate_key, shard_step, write_report
from recordmill.pipeline.build.duplicates.fingerprints import content_features, content_table, digest_rows
from recordmill.pipeline.build.images.perceptual_hash import appearance
from recordmill.pipeline.build.images.read import BuildImageReader, PixelMeter, image_reader, retry_alone
from recordmill.pipeline.build.texts.encode import RowEncoder
from recordmill.pipeline.build.worker import shard_report
from recordmill.pipeline.build.worker.batch import BatchTransformer, ImageLoader, RowBatch, StoredGraph, early_ends
from recordmill.pipeline.build.worker.keyed_rows import unequal
from recordmill.pipeline.build.worker.packing import Packed, unpack
from recordmill.pipeline.build.worker.shard_report import BuiltBatch, Ids, ShardTotals, Stored
from recordmill.pipeline.dataset.counts import Counts, ShardReport
from recordmill.pipeline.dataset.examples import examples
from recordmill.pipeline.dataset.file_names import shard_file
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.manifest_parts import PackFile
from recordmill.pipeline.dataset.tfrecord import ShardWriter, pack
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.sources.faults import Fault, Faults, Reject
from recordmill.transforms.base.bounds import WINDOWS
from recordmill.transforms.base.stored import KEY, LAST, Ragged, part_name, positions_of, splits_of
from recordmill.transforms.images.image_facts import COUNTS
from recordmill.transforms.texts.text_stored import WINDOW_PARTS, Window

ORDER = [("@hash", "ascending"), ("@key", "ascending"), ("@chunk", "ascending"), ("@position", "ascending")]
IS_MEASURED = "@measured"
ID_BYTES = 8
MEASURED = 128  # rows of a shard: its first, by the hashes of their keys: a sample independent of batches and workers


class ShardBuilder:
    """Builds shards with one transform graph."""

    def __init__(self, context: PlannedBuild) -> None:
        self._context = context
        self._compared = content_features(context.features, context.schema)
        images, reader = context.images(), image_reader(context)
        self._loader = ImageLoader(context, reader)
        self._encode = RowEncoder(context.features, context.learned, context.schema.named)
        meter = functools.cache(lambda name: PixelMeter(reader, images[name]))
        self._transform = BatchTransformer(
            StoredGraph(context),
            {name: context.schema.features[name] for name, each in images.items() if not each.is_mask},
            lambda name, data: meter(name).is_decodable(data),
            context.preprocessing,
        )

    def build(self, group: int, packed: Iterable[Packed]) -> None:
        """Writes a shard of packed rows, and its report."""
        context, step = self._context, shard_step(group)
        rows, duplicates = drop_duplicates(unpack(packed).sort_by(ORDER))
        progress = Progress(context.progress, step)
        progress.add(dropped=len(duplicates))

        def built() -> Iterator[BuiltBatch]:
            for batch in self.built(rows):
                yield batch
                progress.add(written=sum(batch.counts.written_by_source.values()), dropped=len(batch.rejects))

        report = write_shard(context, group, built(), duplicates)
        progress.write()
        write_report(context.workspace, f"reports/{step}", report.to_json())

    def built(self, rows: pa.Table, measured: int = MEASURED) -> Iterator[BuiltBatch]:
        """Yields the records of keyed rows by the batch, in order; measures the images of the first rows."""
        rows = rows.append_column(IS_MEASURED, pa.array(np.arange(rows.num_rows) < measured))
        size = self._context.batch_rows()
        batches = (self._loader.begin(rows.slice(start, size)) for start in range(0, rows.num_rows, size))
        if rows.num_rows <= size:  # starting a thread takes longer than many a shard's rows
            return chain.from_iterable(map(self._build, batches))
        return chain.from_iterable(in_order(self._build, batches, self._context.threads))

    def _build(self, begun: tuple[pa.Table, BuildImageReader]) -> list[BuiltBatch]:
        """Builds the records of a batch; in several parts if its images are many bytes."""
        parts = list[BuiltBatch]()
        for batch in self._loader.batches(*begun):
            rows, faults = self._encode(batch.rows)
            parts.append(self._built(*self._transform(replace(batch, rows=rows).without(faults))))
        return parts

    def _built(self, batch: RowBatch, stored: Stored) -> BuiltBatch:
        early = early_ends(batch, stored)
        stored = {name: tensor for name, tensor in stored.items() if not name.endswith(LAST)}
        batch, stored = self._aligned(batch, stored)
        keys = batch.rows["@key"].to_pylist()
        files = {name: batch.files[name] for name in self._compared if name in batch.files}
        measured, lengths = self._appearance(batch, stored), self._all_lengths(stored)
        profile = shard_report.profile_of(self._context, batch.rows, stored, lengths, measured)
        if (windowed := self._context.windowed) is not None:
            stored, of_rows = expand(stored, *windowed)
            keys, lengths = [keys[row] for row in of_rows.tolist()], self._all_lengths(stored)
        found = batch.facts + early + shard_report.counted_values(self._context.features, batch.rows)
        facts: dict[str, Any] = {of: {name: n for (count, name), n in found.items() if count == of} for of in COUNTS}
        counts = Counts(
            written_by_source=Counter(batch.rows["@source"].to_pylist()),
            more_windows=None if windowed is None else len(keys) - batch.rows.num_rows,
            label_counts=Counter(self._labels(stored)),
            **facts,
            profile=profile,
            bounds=shard_report.bounds(stored) if self._context.preprocessing else None,
        )
        return BuiltBatch(
            records=encode(keys, stored),
            counts=counts,
            rejects=batch.rejects,
            lengths=lengths,
            packed=[_counts(stored, each.features[:1])[:, 0] for each in self._context.packs],
            digest=batch.digest(batch.rows["@key"].to_pylist()),
            whole=batch.whole,
            contents=content_table(batch.rows, digest_rows(batch.rows, self._compared, files), batch.looks),
        )

    def _all_lengths(self, stored: Stored) -> dict[str, Ids]:
        """Returns the numbers of ids by text; the user's function may leave texts out, or store no lists."""
        found = dict[str, Ids]()
        for name in self._context.texts():
            if isinstance(ids := stored.get(name), tf.RaggedTensor):
                lengths = stored.get(part_name(name, "lengths"))  # of several texts a row
                found[name] = np.diff(ids.row_splits.numpy()) if lengths is None else lengths.flat_values.numpy()
        return found

    def _aligned(self, batch: RowBatch, stored: Stored) -> tuple[RowBatch, Stored]:
        """Rejects rows with lists of a pack that differ in length, and with too much in windows."""
        columns, faults = self._context.schema.features, Faults()
        if (windowed := self._context.windowed) is not None:
            faults = too_much_in_windows(stored, *windowed)
        for each in self._context.packs:
            faults = unequal(each.features, _counts(stored, each.features), columns) | faults
        if not faults:
            return batch, stored
        good = [row not in faults for row in range(batch.rows.num_rows)]
        return batch.without(faults), {name: tf.ragged.boolean_mask(each, good) for name, each in stored.items()}

    def _appearance(self, batch: RowBatch, stored: Stored) -> dict[str, shard_report.Appearance]:
        """Measures the images of the shard's first rows, by feature: the stored ones if any, as they decode faster."""
        measured, count = dict[str, shard_report.Appearance](), sum(batch.rows[IS_MEASURED].to_pylist())
        images = self._context.images() if count else {}
        for name, options in [each for each in images.items() if not each[1].is_mask]:
            if name in stored and options.store != "raw":
                files = _column(stored[name][:count]).values
            else:
                rows = (each if isinstance(each, list) else [each] for each in batch.images[name][:count])
                files = [*chain.from_iterable(rows)]
            measure = functools.partial(appearance, files, options.max_pixels, options.pixel_options)
            measured[name] = retry_alone(measure, f"measure the images of '{name}'", needs=batch.needs)
        return measured

    def _labels(self, stored: Stored) -> list[int]:
        """Returns the label's ids in all records; none if it is not a category, or the user's function changed it."""
        label = self._context.schema.label
        if label is None or self._context.features[label].counts != "names":
            return []
        flat = stored[label].flat_values if isinstance(stored[label], tf.RaggedTensor) else stored[label]
        return flat.numpy().tolist() if flat.dtype == tf.int64 and flat.shape.rank == 1 else []


def _counts(stored: Stored, features: Sequence[str], option: str = "pack") -> Ids:
    """Returns the number of values of each list, int64 [rows, features]. Raises: UserError: a feature is no list."""
    for name in features:
        ids = stored.get(name)
        if not isinstance(ids, tf.RaggedTensor) or ids.dtype != tf.int64 or ids.ragged_rank != 1:
            raise UserError(f"`preprocessing` stores '{name}' as no list of int64, and its `{option}` needs one")
    return np.stack([np.diff(stored[name].row_splits.numpy()) for name in features], 1)


def drop_duplicates(rows: pa.Table) -> tuple[pa.Table, list[Reject]]:
    """Keeps the first by source, path and position of sorted rows with one key; returns the others as rejects."""
    if rows.num_rows < 2:
        return rows, []
    keys = rows["@key"].combine_chunks()
    repeated = np.concatenate([[False], pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)])
    if not repeated.any():
        return rows, []
    firsts = np.maximum.accumulate(np.where(repeated, 0, np.arange(len(repeated))))
    rejects = []
    for row in np.flatnonzero(repeated).tolist():
        (first,) = rows.slice(firsts[row], 1).select(["@chunk", "@position"]).to_pylist()
        rejects.append(reject_duplicate_key(rows, row, (first["@chunk"], first["@position"])))
    return rows.filter(pa.array(~repeated)), rejects


def encode(keys: Sequence[bytes], stored: Mapping[str, Any]) -> list[bytes]:
    """Serializes rows, maybe none: every stored feature, and the row's key as feature `key`."""
    columns = {name: _column(tensor) for name, tensor in stored.items()}
    return examples({**columns, KEY: Ragged(keys, np.arange(len(keys) + 1))})


def _column(stored: Any) -> Ragged:
    """Returns a stored tensor as a list of values a row."""
    flat, splits = _flat(stored)
    values = flat.numpy()
    return Ragged(values.tolist() if values.dtype == object else values, splits)


def _flat(stored: Any) -> tuple[tf.Tensor, Ids]:
    """Returns the values of a stored tensor, of shape [rows, …] or ragged, and where each row's begin and end."""
    if isinstance(stored, tf.RaggedTensor):
        return stored.values, stored.row_splits.numpy()
    flat = stored if stored.shape.rank == 1 else tf.reshape(stored, [-1])
    return flat, np.arange(len(stored) + 1) * math.prod(stored.shape[1:])


def write_shard(
    context: PlannedBuild, group: int, batches: Iterable[BuiltBatch] = (), rejects: Iterable[Reject] = ()
) -> ShardReport:
    """Writes a shard of some batches, or of none; returns its report. `rejects` are further ones.

    Packs the records for each pack by their numbers of ids.
    """
    split, number = context.layout.shard_of_group(group)
    totals, packs, shards = ShardTotals(context, rejects), list[PackFile](), context.layout.shards[split]
    file, index = (shard_file(context.name, split, what, number, shards) for what in ("tfrecord", "index"))
    with ShardWriter(file, index, context.shards.create) as writer:
        for batch in batches:
            writer.write(batch.records)
            totals.add(batch)
    for given, several in zip(context.packs, totals.packed, strict=True):
        counts = np.concatenate(several)
        made = pack(counts, given.length, split=given.split)
        name = shard_file(context.name, split, f"pack-{given.length}", number, shards)
        with context.shards.create(name) as output:
            output.write(made.to_bytes())
        packs.append(made.describe(given.length, name, *given.lost(counts)))
    files = Shard(file, writer.bytes, writer.records, writer.sha256, index, packs=tuple(packs))
    return totals.report(group, files, writer.index_entry()["sha256"])


class Windows(NamedTuple):
    """The windows of some rows, in order; int64 [windows] each."""

    rows: Ids
    numbers: Ids  # from 0 in each row
    starts: Ids  # the places of their first ids in the rows' ids
    sizes: Ids  # their numbers of ids


def windows(lengths: Ids, window: Window) -> Windows:
    """Cuts texts by their numbers of ids, int64 [rows]: one window or more of each; the last reaches the end."""
    counts = _counts_of_windows(lengths, window)
    rows = np.repeat(np.arange(len(lengths)), counts)
    numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = numbers * window.stride
    return Windows(rows, numbers, starts, np.minimum(lengths[rows] - starts, window.length))


def _counts_of_windows(lengths: Ids, window: Window) -> Ids:
    return np.asarray(1 + np.maximum(-(-(lengths - window.length) // window.stride), 0))


def too_much_in_windows(stored: Stored, names: Sequence[str], window: Window) -> Faults:
    """Finds rows with too many bytes in their windows, which repeat the row's other features; others as `expand`."""
    ids = _counts(stored, names[:1], "window")[:, 0]
    others = sum(_bytes(values) for name, values in stored.items() if name not in names)
    counts = _counts_of_windows(ids, window)
    found = counts * (others + ID_BYTES * len(names) * np.minimum(ids, window.length))
    too_much = np.flatnonzero((found > WINDOWS.most) & (counts > 1)).tolist()
    return {row: Fault(WINDOWS.reason, WINDOWS.beyond(int(found[row]))) for row in too_much}


def _bytes(stored: Any) -> Ids:
    """Returns the bytes of each row's values, without a copy of strings."""
    flat, splits = _flat(stored)
    sizes = tf.strings.length(flat).numpy() if flat.dtype == tf.string else np.full(len(flat), ID_BYTES)
    return np.diff(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])[splits])


def expand(stored: Stored, names: Sequence[str], window: Window) -> tuple[Stored, Ids]:
    """Returns the stored tensors of a text's windows, and each window's row; other features are repeated.

    `names` are the text and the labels of its tokens, lists of equal lengths.

    Raises:
        UserError: the text is stored as something else.
    """
    made, first = windows(_counts(stored, names[:1], "window")[:, 0], window), stored[names[0]].row_splits.numpy()
    splits, places = splits_of(made.sizes), positions_of(first[made.rows] + made.starts, made.sizes)
    of_window: dict[str, Any] = {
        name: tf.RaggedTensor.from_row_splits(stored[name].flat_values.numpy()[places], splits, validate=False)
        for name in names
    }
    for part, numbers in zip(WINDOW_PARTS, made[1:3], strict=True):
        of_window[part_name(names[0], part)] = tf.constant(numbers)
    repeated = {name: tf.gather(values, made.rows) for name, values in stored.items() if name not in of_window}
    return {**repeated, **of_window}, made.rows
