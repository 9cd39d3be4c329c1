"""Builds one shard: rows in hash order, image bytes, the transform graph in a thread pool, examples, file and index.

A shard's report is its commit: it is written when the files are in place.
"""

import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
import tensorflow_transform as tft

from pipeline.examples import encode
from pipeline.images import PixelMeter, read_image
from pipeline.names import index_name, shard_name
from pipeline.packing import Packed, unpack
from pipeline.progress import Progress
from pipeline.reject_files import write_rejects
from pipeline.rejects import Reject
from pipeline.reports import write_report
from pipeline.steps import shard_step
from pipeline.tfrecord import ShardWriter
from pipeline.work import Work
from transforms.image import ImageError

Item = TypeVar("Item")
Result = TypeVar("Result")
ORDER = [("@hash", "ascending"), ("@key", "ascending"), ("@chunk", "ascending"), ("@position", "ascending")]
TENSOR_TYPES = {pa.binary(): tf.string, pa.float32(): tf.float32, pa.int64(): tf.int64}


@dataclass(frozen=True)
class Built:
    """A batch of rows that became records, and those that did not."""

    records: list[bytes]
    rejects: list[Reject]
    kept: pa.Table
    labels: list[int]
    digest: bytes
    """Of the rows' keys and their pictures' bytes."""


class ShardBuilder:
    """Builds shards with one transform graph."""

    def __init__(self, work: Work, export: str) -> None:
        self._work = work
        self._transform = StoredGraph(work, export)
        self._images = work.images()
        self._meters = {name: PixelMeter(work.files, options, 1) for name, options in self._images.items()}

    def build(self, group: int, packed: Iterable[Packed]) -> dict[str, Any]:
        """Writes a shard of the rows that were packed for it, and its report; gives the report."""
        split, shard = self._work.layout.shard_of_group(group)
        rows, duplicates = drop_duplicates(unpack(packed).sort_by(ORDER))
        progress = Progress(self._work.path("progress"), shard_step(group))
        progress.add(dropped=len(duplicates))
        tally = Tally(self._work, duplicates)
        size = self._work.batch_rows()
        batches = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
        count = self._work.layout.shards[split]
        path = os.path.join(self._work.path("data"), shard_name(self._work.name, split, shard, count))
        index = os.path.join(self._work.path("data"), index_name(self._work.name, split, shard, count))
        with ShardWriter(path, index) as writer:
            for built in in_order(self._batch, batches, self._work.threads):
                writer.write(built.records)
                tally.add(built)
                progress.add(written=len(built.records), dropped=len(built.rejects))
        progress.write()
        report = {"split": split, "shard": shard, **writer.report(), **tally.report(group)}
        write_report(self._work.path("reports"), shard_step(group), report)
        return report

    def _batch(self, rows: pa.Table) -> Built:
        fetched, rejects = self._fetch(rows)
        try:
            stored = self._transform(fetched)
        except tf.errors.InvalidArgumentError:
            if not self._images:
                raise
            fetched, bad = self._drop_undecodable(fetched)
            rejects += bad
            stored = self._transform(fetched)
        keys = fetched["@key"].to_pylist()
        digest = hashlib.sha256(b"".join(keys))
        for name in self._images:
            for data in fetched[name].to_pylist():
                digest.update(data)
        label = self._work.rows.label
        labels = stored[label].numpy().tolist() if label and stored[label].dtype == tf.int64 else []
        return Built(encode(keys, stored), rejects, fetched, labels, digest.digest())

    def _fetch(self, rows: pa.Table) -> tuple[pa.Table, list[Reject]]:
        """Puts the pictures' bytes in the place of their paths; rows whose picture can't be had are rejected."""
        rejects: list[Reject] = []
        if not self._images:
            return rows, rejects
        good = np.ones(rows.num_rows, bool)
        columns = {}
        roots = [self._work.roots[source] for source in rows["@source"].to_pylist()]
        for name, options in self._images.items():
            data: list[bytes] = []
            for place, path in enumerate(rows[name].to_pylist()):
                try:
                    data.append(
                        read_image(self._work.files, roots[place], path.decode(), options) if good[place] else b""
                    )
                except ImageError as error:
                    good[place] = False
                    data.append(b"")
                    rejects.append(_reject(rows, place, error.reason, error.message, self._work.rows.features[name]))
            columns[name] = pa.array(data, pa.binary())
        for name, column in columns.items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows.filter(pa.array(good)), rejects

    def _drop_undecodable(self, rows: pa.Table) -> tuple[pa.Table, list[Reject]]:
        """Tries each picture alone, so that the one that fails is told from those beside it."""
        rejects, good = [], np.ones(rows.num_rows, bool)
        for name, meter in self._meters.items():
            for place, data in enumerate(rows[name].to_pylist()):
                if good[place] and not meter.is_decodable(data):
                    good[place] = False
                    message = "the header is good, the pixels cannot be decoded: the file is cut off or damaged"
                    rejects.append(_reject(rows, place, "undecodable_image", message, self._work.rows.features[name]))
        return rows.filter(pa.array(good)), rejects


class StoredGraph:
    """The analysis' transform graph: a table of raw columns to stored tensors; may be called from several threads."""

    def __init__(self, work: Work, export: str) -> None:
        self._types = {name: TENSOR_TYPES[work.rows.final_type(name)] for name in work.features}
        self._layer = tft.TFTransformOutput(export).transform_features_layer()
        self._graph = tf.function(
            lambda raw: self._layer(raw),
            input_signature=[{name: tf.TensorSpec([None], kind) for name, kind in self._types.items()}],
            autograph=False,
        )
        self._graph.get_concrete_function()  # traced here, not in the threads

    def __call__(self, rows: pa.Table) -> Mapping[str, Any]:
        """Gives the stored tensors by feature.

        Raises:
            tf.errors.InvalidArgumentError: a picture cannot be decoded.
        """
        return self._graph({name: self._tensor(rows[name], kind) for name, kind in self._types.items()})

    def _tensor(self, column: pa.ChunkedArray, kind: tf.DType) -> tf.Tensor:
        if kind == tf.string:
            return tf.constant(np.array(column.to_pylist(), object), tf.string)
        return tf.constant(column.to_numpy(), kind)


class Tally:
    """What the batches of a shard add up to."""

    def __init__(self, work: Work, duplicates: list[Reject]) -> None:
        self._work = work
        self._rejects = duplicates
        self._written: Counter[int] = Counter()
        self._labels: Counter[int] = Counter()
        self._digest = hashlib.sha256()

    def add(self, built: Built) -> None:
        """Adds a batch."""
        self._rejects = self._rejects + built.rejects
        self._written.update(built.kept["@source"].to_pylist())
        self._labels.update(built.labels)
        self._digest.update(built.digest)

    def report(self, group: int) -> dict[str, Any]:
        """Writes the rejects and gives the sums."""
        return {
            "written_by_source": {str(source): count for source, count in sorted(self._written.items())},
            "label_counts": {str(label): count for label, count in sorted(self._labels.items())},
            "rejected": len(self._rejects),
            "rejects": write_rejects(self._work.path("rejects"), shard_step(group), self._rejects),
            "inputs_sha256": self._digest.hexdigest(),
        }


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
    for place in np.flatnonzero(repeated).tolist():
        first = rows.slice(firsts[place], 1).select(["@chunk", "@position"]).to_pylist()[0]
        reject = _reject(rows, place, "duplicate_key", "another row has the same key", None)
        rejects.append(replace(reject, first_chunk=first["@chunk"], first_position=first["@position"]))
    return rows.filter(pa.array(~repeated)), rejects


def _reject(rows: pa.Table, place: int, reason: str, message: str, column: str | None) -> Reject:
    row = rows.slice(place, 1).select(["@key", "@chunk", "@position"]).to_pylist()[0]
    key = row["@key"].decode("utf-8", "replace")
    return Reject(row["@chunk"], row["@position"], reason, message, key, column)


def in_order(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Maps in threads and gives the results in the items' order, with at most three items a thread under way.

    `tf.data` would do the same, but keeps what its generator closes over: every shard's rows would stay in memory.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= 3 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
