"""Builds one shard: rows in hash order, image bytes, the transform graph in a thread pool, examples, file and index.

A shard's report is its commit: it is written when the files are in place.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
import tensorflow_transform as tft

from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.graph_inputs import input_specs
from recordmill.pipeline.build.context.progress import Progress
from recordmill.pipeline.build.context.reject_files import write_rejects
from recordmill.pipeline.build.context.steps import shard_step
from recordmill.pipeline.build.duplicates.contents import (
    content_features,
    content_table,
    digest_rows,
    file_digests,
    write_contents,
)
from recordmill.pipeline.build.images.perceptual_hash import NONE
from recordmill.pipeline.build.images.read import (
    UNDECODABLE,
    Loaded,
    PixelMeter,
    kept,
    perceptual_hash_of,
    pictures_of,
    retry_alone_when_out_of_memory,
)
from recordmill.pipeline.build.worker.examples import encode
from recordmill.pipeline.build.worker.packed_records import PackedRecords
from recordmill.pipeline.build.worker.packing import Packed, unpack
from recordmill.pipeline.dataset.atomic_files import write_report
from recordmill.pipeline.dataset.file_names import index_name, shard_name
from recordmill.pipeline.dataset.text_lengths import measure
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.parallel_map import in_order
from recordmill.pipeline.sources.rejects import Reject
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.tensorflow.image import ImageError

ROW_BYTES = 512 << 20  # 512 MiB: what the pictures of one row may be together
PART_BYTES = 32 << 20  # 32 MiB of pictures that go through the graph at once, and one picture more
ORDER = [("@hash", "ascending"), ("@key", "ascending"), ("@chunk", "ascending"), ("@position", "ascending")]


@dataclass(frozen=True)
class Built:
    """A batch of rows that became records, and those that did not."""

    records: list[bytes]
    """Of each row one; none where documents share records."""
    keys: list[bytes]
    texts: Mapping[str, tf.RaggedTensor]
    """The rows' ids of each text, int64 [rows, None]."""
    rejects: list[Reject]
    sources: list[int]
    """The source of each row."""
    labels: list[int]
    transcoded: Counter[str]
    """Of the pictures that were transcoded, how many of each feature and format: `image TIFF`."""
    digest: bytes
    """Of the rows' keys and their pictures' files."""
    contents: pa.Table
    """What of the rows counts when they are compared (`pipeline.build.duplicates.contents`)."""


class ShardBuilder:
    """Builds shards with one transform graph."""

    def __init__(self, context: BuildContext, export: str) -> None:
        self._context = context
        self._transform = StoredGraph(context, export)
        self._images = context.images()
        self._pictures = pictures_of(context)
        self._meters: dict[str, PixelMeter] = {}
        self._compared = content_features(context.features, context.schema)
        looked = context.duplicates.action != "keep"  # by a first pass
        self._looks = [] if looked else context.hashed_images()

    def build(self, group: int, packed: Iterable[Packed]) -> dict[str, Any]:
        """Writes a shard of the rows that were packed for it, and its report; gives the report."""
        split, shard = self._context.layout.shard_of_group(group)
        rows, duplicates = drop_duplicates(unpack(packed).sort_by(ORDER))
        progress = Progress(self._context.path("progress"), shard_step(group))
        progress.add(dropped=len(duplicates))
        tally = Tally(self._context, duplicates)
        size = self._context.batch_rows()
        batches = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
        count = self._context.layout.shards[split]
        file, index = (name(self._context.name, split, shard, count) for name in (shard_name, index_name))
        folder = self._context.path("version")
        packing = self._packing()
        with ShardWriter(os.path.join(folder, file), os.path.join(folder, index)) as writer:
            for built in chain.from_iterable(in_order(self._parts, batches, self._context.threads)):
                writer.write(packing.add(built.keys, built.texts) if packing else built.records)
                tally.add(built)
                progress.add(written=len(built.sources), dropped=len(built.rejects))
            if packing:
                writer.write(packing.rest())
        progress.write()
        report = {"split": split, "shard": shard, "file": file, "index": index}
        report |= writer.report() | tally.report(group)
        if packing:
            report["packed"] = packing.report()
        write_report(self._context.path("reports"), shard_step(group), report)
        return report

    def _parts(self, rows: pa.Table) -> list[Built]:
        """Builds a batch; in several parts where its pictures are many bytes."""
        parts = list[Built]()
        while rows.num_rows:
            transcoded: Counter[str] = Counter()
            batch, rejects, taken = self._fetch(rows, transcoded)
            parts.append(self._part(batch, rejects, transcoded))
            rows = rows.slice(taken)
        return parts

    def _part(self, batch: "Batch", rejects: list[Reject], transcoded: Counter[str]) -> Built:
        try:
            stored = self._stored(batch)
        except UNDECODABLE:
            if not self._images:
                raise
            batch, undecodable = self._drop_undecodable(batch)
            rejects += undecodable
            stored = self._stored(batch, UNDECODABLE)
        keys = batch.rows["@key"].to_pylist()
        sources = batch.rows["@source"].to_pylist()
        records = [] if self._context.packed() else encode(keys, stored)
        labels, digest = self._labels(stored), batch.digest(keys)
        contents = self._contents(batch)
        return Built(records, keys, self._texts(stored), rejects, sources, labels, transcoded, digest, contents)

    def _contents(self, batch: "Batch") -> pa.Table:
        files = {name: batch.files[name] for name in self._compared if name in batch.files}
        return content_table(batch.rows, digest_rows(batch.rows, self._compared, files), batch.looks)

    def _stored(self, batch: "Batch", doubtful: tuple[type[Exception], ...] = ()) -> Mapping[str, Any]:
        what = f"send {batch.rows.num_rows} rows through the transform graph"
        return retry_alone_when_out_of_memory(lambda: self._transform(batch), what, doubtful, batch.needs)

    def _packing(self) -> PackedRecords | None:
        packed = self._context.packed()
        return None if packed is None else PackedRecords(*packed)

    def _texts(self, stored: Mapping[str, Any]) -> dict[str, tf.RaggedTensor]:
        """The texts' ids; without what a function of the user's left out or made no list."""
        return {name: stored[name] for name in self._context.texts() if isinstance(stored.get(name), tf.RaggedTensor)}

    def _labels(self, stored: Mapping[str, Any]) -> list[int]:
        """The label's ids, of all rows; none where it is no category, or a function of the user's made it another."""
        label = self._context.schema.label
        if label is None or self._context.label_names() is None:
            return []
        flat = stored[label].flat_values if isinstance(stored[label], tf.RaggedTensor) else stored[label]
        return flat.numpy().tolist() if flat.dtype == tf.int64 and flat.shape.rank == 1 else []

    def _fetch(self, rows: pa.Table, transcoded: Counter[str]) -> tuple["Batch", list[Reject], int]:
        """Reads pictures, up to about `PART_BYTES`, and gives how many rows it took.

        A row whose picture can't be had is rejected.
        """
        pictures: dict[str, list[Picture]] = {name: [b""] * rows.num_rows for name in self._images}
        files = {name: [b""] * rows.num_rows for name in self._images}
        looks = {name: [NONE] * rows.num_rows for name in self._looks}
        columns = {name: rows[name].to_pylist() for name in self._images}
        good, rejects, size, needs, taken = np.ones(rows.num_rows, bool), list[Reject](), 0, 0, rows.num_rows
        for place, source in enumerate(rows["@source"].to_pylist() if self._images else ()):
            for name, options in self._images.items():
                references = columns[name][place]
                try:
                    loaded = self._load(source, references, options)
                except ImageError as error:
                    good[place] = False
                    reject = self._reject(rows, place, name, error.reason, error.message)
                    rejects.append(replace(reject, path=error.path))
                    break
                data = [one.data for one in loaded]
                pictures[name][place] = data if isinstance(references, list) else b"".join(data)
                files[name][place] = file_digests(one.source for one in loaded)
                if name in looks:
                    looks[name][place] = perceptual_hash_of(loaded, options.max_pixels)
                transcoded.update(f"{name} {one.transcoded}" for one in loaded if one.transcoded)
                size, needs = size + sum(map(len, data)), max(needs, *(one.needs for one in loaded), 0)
            if size >= PART_BYTES:
                taken = place + 1
                break
        good[taken:] = False
        return Batch(rows, pictures, files, looks, needs + 2 * size).keep(good), rejects, taken

    def _load(self, source: int, references: bytes | list[bytes], options: ImageOptions) -> list[Loaded]:
        """A row's pictures: one or none, or any number where the row has a list."""
        loaded, size = list[Loaded](), 0
        for reference in kept(references, options):
            loaded.append(self._pictures.load(source, reference, options))
            size += len(loaded[-1].data) + (len(loaded[-1].source) if loaded[-1].transcoded else 0)
            if len(loaded) > 1 and size > ROW_BYTES:
                raise ImageError("too_large", f"the row's pictures have more than {ROW_BYTES >> 20} MiB together")
        return loaded

    def _drop_undecodable(self, batch: "Batch") -> tuple["Batch", list[Reject]]:
        """Tries each row by itself, and what fails once more with nothing beside it: only bad ones are dropped."""
        good, rejects = np.ones(batch.rows.num_rows, bool), []
        for place in range(batch.rows.num_rows):
            try:
                self._stored(batch.keep(np.arange(len(good)) == place), UNDECODABLE)
            except UNDECODABLE:
                name = self._damaged(batch, place)
                if name is None:  # not the pictures: an error of a function of the user's
                    raise
                good[place] = False
                message = "the header is good, the pixels cannot be decoded: the file is cut off or damaged"
                rejects.append(self._reject(batch.rows, place, name, "undecodable_image", message))
        return batch.keep(good), rejects

    def _damaged(self, batch: "Batch", place: int) -> str | None:
        """The image feature whose picture fails; None where all are good."""
        for name, options in self._images.items():
            if name not in self._meters:
                self._meters[name] = PixelMeter(self._pictures, options, 1)
            pictures = batch.pictures[name][place]
            if not all(map(self._meters[name].is_decodable, pictures if isinstance(pictures, list) else [pictures])):
                return name
        return None

    def _reject(self, rows: pa.Table, place: int, feature: str, reason: str, message: str) -> Reject:
        return reject_row(rows, place, reason, message, self._context.schema.features[feature])


Picture = bytes | list[bytes]
"""The bytes of a row's picture, or of its pictures."""


@dataclass(frozen=True)
class Batch:
    """Keyed rows and, of each image feature, their pictures' bytes: not in Arrow, where each step would copy them."""

    rows: pa.Table
    pictures: Mapping[str, list[Picture]]
    files: Mapping[str, list[bytes]]
    """Of each image feature, the SHA-256 digests of the rows' files as the source has them."""
    looks: Mapping[str, list[bytes]]
    """Of those that are compared by how they look, their looks (`pipeline.build.images.perceptual_hash`)."""
    needs: int
    """About how many bytes of memory they take in the graph."""

    def keep(self, good: npt.NDArray[np.bool_]) -> "Batch":
        """The rows that are good."""
        if good.all():
            return self
        pictures = {name: list(compress(data, good)) for name, data in self.pictures.items()}
        files, looks = (
            {name: list(compress(data, good)) for name, data in column.items()} for column in (self.files, self.looks)
        )
        return Batch(self.rows.filter(pa.array(good)), pictures, files, looks, self.needs)

    def tensor(self, name: str, kind: tf.DType) -> Any:
        """A feature's raw values: of shape [rows], or ragged."""
        column = self.rows[name]
        if not pa.types.is_list(column.type):
            return tf.constant(self.pictures.get(name) or _plain(column), kind, shape=[self.rows.num_rows])
        lists = self.pictures.get(name)
        values = list(chain.from_iterable(lists)) if lists is not None else _plain(pc.list_flatten(column))
        if lists is not None:  # of a sequence of pictures some may have been cut off
            lengths = np.array([len(one) for one in lists], np.int64)
        else:
            lengths = pc.list_value_length(column).to_numpy().astype(np.int64)
        return tf.RaggedTensor.from_row_lengths(tf.constant(values, kind, shape=[len(values)]), lengths, validate=False)

    def digest(self, keys: list[bytes]) -> bytes:
        """Of the keys and the pictures' files: a damaged picture may decode without an error."""
        return hashlib.sha256(b"".join(chain(keys, *self.files.values()))).digest()


def _plain(column: pa.ChunkedArray) -> Any:
    """An Arrow column as TensorFlow takes it."""
    return column.to_pylist() if column.type == pa.binary() else column.to_numpy()


class StoredGraph:
    """The analysis' transform graph: raw columns to stored tensors; may be called from several threads."""

    def __init__(self, context: BuildContext, export: str) -> None:
        self._specs = input_specs(context)
        self._layer = tft.TFTransformOutput(export).transform_features_layer()
        self._graph = tf.function(
            lambda raw: self._layer(raw),
            input_signature=[self._specs],
            autograph=False,
        )
        self._graph.get_concrete_function()  # traced here, not in the threads

    def __call__(self, batch: Batch) -> Mapping[str, Any]:
        """Gives the stored tensors by feature.

        Raises:
            tf.errors.InvalidArgumentError: a picture cannot be decoded.
        """
        return self._graph({name: batch.tensor(name, spec.dtype) for name, spec in self._specs.items()})


class Tally:
    """What the batches of a shard add up to."""

    def __init__(self, context: BuildContext, duplicates: list[Reject]) -> None:
        self._context = context
        self._rejects = duplicates
        self._written: Counter[int] = Counter()
        self._labels: Counter[int] = Counter()
        self._transcoded: Counter[str] = Counter()
        self._lengths: dict[str, list[npt.NDArray[np.int64]]] = {}
        self._digest = hashlib.sha256()
        self._contents: list[pa.Table] = []

    def add(self, built: Built) -> None:
        """Adds a batch."""
        self._rejects += built.rejects
        self._written.update(built.sources)
        self._labels.update(built.labels)
        self._transcoded.update(built.transcoded)
        for name, ids in built.texts.items():
            self._lengths.setdefault(name, []).append(ids.row_lengths().numpy())
        self._digest.update(built.digest)
        self._contents.append(built.contents)

    def report(self, group: int) -> dict[str, Any]:
        """Writes the rejects and gives the sums."""
        return {
            "written_by_source": {str(source): count for source, count in sorted(self._written.items())},
            "label_counts": {str(label): count for label, count in sorted(self._labels.items())},
            "transcoded": dict(sorted(self._transcoded.items())),
            "lengths": {name: measure(np.concatenate(lengths)) for name, lengths in self._lengths.items()},
            "rejected": len(self._rejects),
            "rejects": write_rejects(self._context.path("rejects"), shard_step(group), self._rejects),
            "inputs_sha256": self._digest.hexdigest(),
            "contents": write_contents(self._context.path("digests"), shard_step(group), self._contents),
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
        reject = reject_row(rows, place, "duplicate_key", "another row has the same key", None)
        rejects.append(replace(reject, first_chunk=first["@chunk"], first_position=first["@position"]))
    return rows.filter(pa.array(~repeated)), rejects


def reject_row(rows: pa.Table, place: int, reason: str, message: str, column: str | None) -> Reject:
    """The reject of a keyed row."""
    row = rows.slice(place, 1).select(["@key", "@chunk", "@position"]).to_pylist()[0]
    key = row["@key"].decode("utf-8", "replace")
    return Reject(row["@chunk"], row["@position"], reason, message, key, column)
