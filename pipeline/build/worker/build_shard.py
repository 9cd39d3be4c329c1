"""Builds one shard: rows in hash order, image bytes, the transform graph in a thread pool, examples, file and index.

A shard's report is its commit: it is written when the files are in place.

Stored tensors become `tf.train.Example`s, the same bytes in every process: the protocol buffer's own deterministic
encoder sorts the features by name; tfx_bsl's encoder does not.

Documents of a shard are packed by the bounded-space best fit of Csirik and Johnson (1991): a document goes into the
fullest open row with room for it, else opens a row; beyond `OPEN_ROWS` open rows, the fullest is closed. The rows
follow from the order of the documents alone. A document longer than a row is cut into pieces: each but the last fills a
row. A document without ids is in no row. Nothing else is left out.

>>> packer = RowPacker(4)
>>> [row.lengths for row in packer.add(b"a", np.arange(3))], [row.lengths for row in packer.add(b"b", np.arange(5))]
([], [[4], [3, 1]])
"""

import functools
import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from recordmill.pipeline.build.worker import shard_report
from recordmill.pipeline.build.worker.batch import BatchTransformer, ChatLoader, ImageLoader, RowBatch, StoredGraph
from recordmill.pipeline.build.worker.packing import Packed, unpack
from recordmill.pipeline.build.worker.shard_report import Ids, ShardTotals, Stored
from recordmill.pipeline.dataset.file_names import shard_names
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.sources.faults import Reject
from recordmill.transforms.contract.stored import KEY, part_name

ORDER = [("@hash", "ascending"), ("@key", "ascending"), ("@chunk", "ascending"), ("@position", "ascending")]
IS_MEASURED = "@measured"
MEASURED = 128  # rows of a shard: its first, by the hashes of their keys: a sample independent of batches and workers


class BuiltBatch(NamedTuple):
    """The records of a batch of rows."""

    records: list[bytes]
    """One a row; empty if documents share records."""
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
        self._loader, self._chats = ImageLoader(context, reader), ChatLoader(context)
        meter = functools.cache(lambda name: PixelMeter(reader, images[name]))
        self._transform = BatchTransformer(
            StoredGraph(context),
            {name: context.schema.features[name] for name in images},
            lambda name, data: meter(name).is_decodable(data),
        )

    def build(self, group: int, packed: Iterable[Packed]) -> dict[str, Any]:
        """Writes a shard of packed rows, and its report; returns the report."""
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
        """Builds the records of a batch; in several parts if its images are many bytes."""
        return [self._built(*self._transform(self._chats(batch))) for batch in self._loader.batches(*begun)]

    def _built(self, batch: RowBatch, stored: Stored) -> BuiltBatch:
        keys = batch.rows["@key"].to_pylist()
        files = {name: batch.files[name] for name in self._compared if name in batch.files}
        # The user's function may leave texts out, or store no lists.
        texts = {name: stored[name] for name in self._context.texts() if isinstance(stored.get(name), tf.RaggedTensor)}
        lengths = {name: _lengths(name, stored).numpy() for name in texts}
        measured = self._appearance(batch, stored)
        profile = shard_report.profile_of(self._context.features, batch.rows, stored, lengths, measured)
        totals = replace(
            batch.totals,
            written=Counter(batch.rows["@source"].to_pylist()),
            labels=Counter(self._labels(stored)),
            facts=batch.totals.facts + shard_report.tiny_numbers(self._context.features, batch.rows),
            lengths={name: [each] for name, each in lengths.items()},
            profile=shard_report.ProfileSum(profile),
            digests=[batch.digest(keys)],
            contents=[content_table(batch.rows, digest_rows(batch.rows, self._compared, files), batch.looks)],
        )
        return BuiltBatch([] if self._context.packed() else encode(keys, stored), keys, texts, totals)

    def _appearance(self, batch: RowBatch, stored: Stored) -> dict[str, shard_report.Appearance]:
        """Measures the images of the shard's first rows, by feature: the stored ones if any, as they decode faster."""
        measured, count = dict[str, shard_report.Appearance](), sum(batch.rows[IS_MEASURED].to_pylist())
        for name, options in self._context.images().items() if count else ():
            if name in stored and options.store != "raw":
                rows = to_lists(stored[name][:count])
            else:
                rows = [images if isinstance(images, list) else [images] for images in batch.images[name][:count]]
            measure = functools.partial(appearance, [*chain.from_iterable(rows)], options.max_pixels)
            measured[name] = retry_alone(measure, f"measure the images of '{name}'", needs=batch.needs)
        return measured

    def _labels(self, stored: Stored) -> list[int]:
        """Returns the label's ids in all rows; none if it is not a category, or the user's function changed it."""
        label = self._context.schema.label
        if label is None or self._context.label_names() is None:
            return []
        flat = stored[label].flat_values if isinstance(stored[label], tf.RaggedTensor) else stored[label]
        return flat.numpy().tolist() if flat.dtype == tf.int64 and flat.shape.rank == 1 else []


def _lengths(name: str, stored: Stored) -> tf.Tensor:
    """Returns the number of ids of each text, int64 [texts], row by row."""
    ids, lengths = stored[name], stored.get(part_name(name, "lengths"))
    return ids.row_lengths() if lengths is None else lengths.flat_values


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


def to_lists(stored: Any) -> list[list[Any]]:
    """Converts a stored tensor, of shape [rows, …] or ragged, to one list of values a row."""
    if isinstance(stored, tf.RaggedTensor):
        values, splits = stored.values.numpy().tolist(), stored.row_splits.numpy().tolist()
        return [values[start:end] for start, end in zip(splits, splits[1:], strict=False)]
    values = stored.numpy()
    return values.reshape(len(values), math.prod(values.shape[1:])).tolist()


def encode(keys: Sequence[bytes], stored: Mapping[str, Any]) -> list[bytes]:
    """Serializes rows, maybe none: every stored feature, and the row's key as feature `key`."""
    columns = [(name, _FIELDS[tensor.dtype], to_lists(tensor)) for name, tensor in stored.items()]
    columns.append((KEY, "bytes_list", [[key] for key in keys]))
    return [_serialize([(name, field, rows[row]) for name, field, rows in columns]) for row in range(len(keys))]


_FIELDS = {tf.string: "bytes_list", tf.int64: "int64_list", tf.float32: "float_list"}


def _serialize(row: list[tuple[str, str, list[Any]]]) -> bytes:
    example = tf.train.Example()
    features = example.features.feature
    for name, kind, values in row:
        getattr(features[name], kind).value.extend(values)
    return example.SerializeToString(deterministic=True)


OPEN_ROWS = 64  # 0.1 to 2 % of the places stay empty; 256 rows save hardly more, 8 waste up to three times as much


@dataclass
class PackedRow:
    """An open row."""

    key: bytes
    """The first document's key."""
    documents: int = 0
    """The number of documents that begin in it."""
    pieces: list[Ids] = field(default_factory=list)

    @property
    def lengths(self) -> list[int]:
        """The number of ids of each document, or piece of one."""
        return [len(piece) for piece in self.pieces]


class RowPacker:
    """Packs one shard's documents; holds the ids of at most `open_rows` rows."""

    def __init__(self, width: int, open_rows: int = OPEN_ROWS) -> None:
        """Takes the number of ids in a row, at least 1, and the most open rows."""
        self._width, self._open_rows = width, open_rows
        self._open: dict[int, PackedRow] = {}
        self._spaces: list[tuple[int, int]] = []
        """The free places and the number of each open row, ascending: the fullest first, then the oldest."""
        self._opened = 0

    def add(self, key: bytes, ids: Ids) -> list[PackedRow]:
        """Adds the next document, int64 of shape [ids]; returns the rows that it closes, in order."""
        closed: list[PackedRow] = []
        for start in range(0, len(ids), self._width):
            row = self._place(key, ids[start : start + self._width])
            row.documents += int(start == 0)
            if self._spaces[0][0] == 0 or len(self._spaces) > self._open_rows:
                closed.append(self._open.pop(self._spaces.pop(0)[1]))
        return closed

    def rest(self) -> list[PackedRow]:
        """Closes and returns the open rows, the oldest first."""
        rows = list(self._open.values())
        self._open, self._spaces = {}, []
        return rows

    def _place(self, key: bytes, piece: Ids) -> PackedRow:
        """Puts a piece into the fullest row with room for it, or into a new one."""
        fullest = bisect_left(self._spaces, (len(piece), 0))
        if fullest < len(self._spaces):
            free, number = self._spaces.pop(fullest)
        else:
            free, number, self._opened = self._width, self._opened, self._opened + 1
            self._open[number] = PackedRow(key)
        self._open[number].pieces.append(piece.copy())  # a view would keep all ids of its batch in memory
        insort(self._spaces, (free - len(piece), number))
        return self._open[number]


class PackedRecords:
    """Packs one shard's documents into Examples: the row's ids as bytes, each document's length, the first's key."""

    def __init__(self, feature: str, width: int) -> None:
        """Takes the text's name and the number of ids in a record."""
        self._feature, self._packer = feature, RowPacker(width)
        self._documents = self._ids = 0

    def add(self, keys: Sequence[bytes], stored: Mapping[str, tf.RaggedTensor]) -> list[bytes]:
        """Packs the next documents, the text ragged int64 [documents, None]; returns the complete records."""
        ids = stored[self._feature]
        values, splits = ids.values.numpy(), ids.row_splits.numpy()
        rows = []
        for key, start, end in zip(keys, splits, splits[1:], strict=False):
            self._documents += int(start == end)  # not in a row
            rows += self._packer.add(key, values[start:end])
        return self._encoded(rows)

    def rest(self) -> list[bytes]:
        """Returns the records of the open rows."""
        return self._encoded(self._packer.rest())

    def report(self) -> dict[str, int]:
        """Counts the documents, including those without ids, and the ids in the records."""
        return {"documents": self._documents, "ids": self._ids}

    def _encoded(self, rows: Sequence[PackedRow]) -> list[bytes]:
        if not rows:
            return []
        self._documents += sum(row.documents for row in rows)
        self._ids += sum(sum(row.lengths) for row in rows)
        lengths = [len(row.lengths) for row in rows]
        parts = {
            "": tf.constant([np.concatenate(row.pieces).astype("<i4").tobytes() for row in rows]),
            "lengths": tf.RaggedTensor.from_row_lengths(np.concatenate([row.lengths for row in rows]), lengths),
        }
        return encode(
            [row.key for row in rows], {part_name(self._feature, part): values for part, values in parts.items()}
        )
