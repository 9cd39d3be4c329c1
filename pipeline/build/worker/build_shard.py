"""Builds one shard: rows in hash order, image bytes, the transform graph in a thread pool, examples, file and index.

A shard's report is its commit: it is written when the files are in place.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
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
from recordmill.pipeline.build.worker.batch import BatchTransformer, ImageLoader, RowBatch, StoredGraph
from recordmill.pipeline.build.worker.examples import PackedRecords, encode, to_lists
from recordmill.pipeline.build.worker.packing import Packed, unpack
from recordmill.pipeline.build.worker.shard_report import (
    Appearance,
    ProfileSum,
    ShardTotals,
    Stored,
    profile_of,
    tiny_numbers,
)
from recordmill.pipeline.dataset.file_names import shard_names
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.sources.faults import Reject
from recordmill.transforms.contract.stored import part_name

ORDER = [("@hash", "ascending"), ("@key", "ascending"), ("@chunk", "ascending"), ("@position", "ascending")]


IS_MEASURED = "@measured"
MEASURED = 128  # rows of a shard: its first, by the hashes of their keys, are a sample that no batch or worker decides


class BuiltBatch(NamedTuple):
    """A batch of rows that became records."""

    records: list[bytes]
    """One a row; empty where documents share records."""
    keys: list[bytes]
    texts: Mapping[str, tf.RaggedTensor]
    """The rows' ids by text, int64 [rows, None]."""
    totals: ShardTotals


class ShardBuilder:
    """Builds shards with one transform graph."""

    def __init__(self, context: PlannedBuild) -> None:
        self._context = context
        self._compared = content_features(context.features, context.schema)
        images, reader = context.images(), image_reader(context)
        self._loader = ImageLoader(context, reader)
        meter = functools.cache(lambda name: PixelMeter(reader, images[name]))
        self._transform = BatchTransformer(
            StoredGraph(context),
            {name: context.schema.features[name] for name in images},
            lambda name, data: meter(name).is_decodable(data),
        )

    def build(self, group: int, packed: Iterable[Packed]) -> dict[str, Any]:
        """Writes a shard of the rows that were packed for it, and its report; returns the report."""
        context = self._context
        split, shard = context.layout.shard_of_group(group)
        rows, duplicates = drop_duplicates(unpack(packed).sort_by(ORDER))
        rows = rows.append_column(IS_MEASURED, pa.array(np.arange(rows.num_rows) < MEASURED))
        progress = Progress(context.progress, shard_step(group))
        progress.add(dropped=len(duplicates))
        totals = ShardTotals(duplicates)
        size = context.batch_rows()
        batches = (self._loader.begin(rows.slice(start, size)) for start in range(0, rows.num_rows, size))
        file, index = shard_names(context.name, split, shard, context.layout.shards[split])
        shared = context.packed()
        packing = PackedRecords(*shared) if shared else None
        with ShardWriter(file, index, context.shards.create) as writer:
            for built in chain.from_iterable(in_order(self._build, batches, context.threads)):
                writer.write(packing.add(built.keys, built.texts) if packing else built.records)
                totals.add(built.totals)
                progress.add(written=len(built.keys), dropped=len(built.totals.rejects))
            if packing:
                writer.write(packing.rest())
        progress.write()
        report = {"split": split, "shard": shard, "file": file, "index": index}
        report |= writer.report() | totals.report(context, group)
        if packing:
            report["packed"] = packing.report()
        write_report(context.workspace, f"reports/{shard_step(group)}", report)
        return report

    def _build(self, begun: tuple[pa.Table, BuildImageReader]) -> list[BuiltBatch]:
        """Builds the records of a batch; in several parts where its images are many bytes."""
        return [self._built(*self._transform(batch)) for batch in self._loader.batches(*begun)]

    def _built(self, batch: RowBatch, stored: Stored) -> BuiltBatch:
        keys = batch.rows["@key"].to_pylist()
        files = {name: batch.files[name] for name in self._compared if name in batch.files}
        # A function of the user's may leave texts out, or store no lists.
        texts = {name: stored[name] for name in self._context.texts() if isinstance(stored.get(name), tf.RaggedTensor)}
        lengths = {name: _lengths(name, stored).numpy() for name in texts}
        totals = replace(
            batch.totals,
            written=Counter(batch.rows["@source"].to_pylist()),
            labels=Counter(self._labels(stored)),
            facts=batch.totals.facts + tiny_numbers(self._context.features, batch.rows),
            lengths={name: [each] for name, each in lengths.items()},
            profile=ProfileSum(
                profile_of(self._context.features, batch.rows, stored, lengths, self._appearance(batch, stored))
            ),
            digests=[batch.digest(keys)],
            contents=[content_table(batch.rows, digest_rows(batch.rows, self._compared, files), batch.looks)],
        )
        return BuiltBatch([] if self._context.packed() else encode(keys, stored), keys, texts, totals)

    def _appearance(self, batch: RowBatch, stored: Stored) -> dict[str, Appearance]:
        """Measures the images of the shard's first rows, by feature: the stored ones, as they decode sooner."""
        measured, count = dict[str, Appearance](), sum(batch.rows[IS_MEASURED].to_pylist())
        for name, options in self._context.images().items() if count else ():
            if name in stored and options.store != "raw":
                rows = to_lists(stored[name][:count])
            else:
                rows = [images if isinstance(images, list) else [images] for images in batch.images[name][:count]]
            measure = partial(appearance, [*chain.from_iterable(rows)], options.max_pixels)
            measured[name] = retry_alone(measure, f"measure the images of '{name}'", needs=batch.needs)
        return measured

    def _labels(self, stored: Stored) -> list[int]:
        """Returns the label's ids in all rows; none where it is no category, or the user's function changed it."""
        label = self._context.schema.label
        if label is None or self._context.label_names() is None:
            return []
        flat = stored[label].flat_values if isinstance(stored[label], tf.RaggedTensor) else stored[label]
        return flat.numpy().tolist() if flat.dtype == tf.int64 and flat.shape.rank == 1 else []


def _lengths(name: str, stored: Stored) -> tf.Tensor:
    """Returns the number of ids of each text, int64 [texts]; of several texts a row, one row's after another's."""
    ids, lengths = stored[name], stored.get(part_name(name, "lengths"))
    return ids.row_lengths() if lengths is None else lengths.flat_values


def drop_duplicates(rows: pa.Table) -> tuple[pa.Table, list[Reject]]:
    """Keeps, of sorted rows with one key, the first by source, path and position."""
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
