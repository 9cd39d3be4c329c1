"""A batch of keyed rows: loads its images, and sends it through the transform graph.

Rejects only the rows with an image that cannot be loaded or decoded.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import as_tensor, input_specs, unpack_graph
from recordmill.pipeline.build.context.reports import reject_row
from recordmill.pipeline.build.images import read
from recordmill.pipeline.build.images.read import UNDECODABLE, BuildImageReader, Loaded
from recordmill.pipeline.build.images.transcode import as_jpeg
from recordmill.pipeline.build.texts.encode import encoded_name, graph_column
from recordmill.pipeline.build.worker.shard_report import Stored
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.sources.faults import Fault, Faults, Reject
from recordmill.transforms.base.stored import LAST, UNENCODED, part_name
from recordmill.transforms.engines.transform_graph import TransformGraph, transform_graph
from recordmill.transforms.images.decode import ends_early
from recordmill.transforms.images.image_facts import EARLY
from recordmill.transforms.images.image_header import JPEG, ImageError
from recordmill.transforms.images.image_parts import without_metadata
from recordmill.transforms.images.image_spec import ImageSequence
from recordmill.transforms.images.jpeg_parts import is_one_run
from recordmill.transforms.images.mask_spec import OfImage

ImageBytes = bytes | list[bytes]  # the bytes of a row's image, or of its images
GREY, ROUNDED = 128_000, 2_000  # the luma of an absent block (`last_luma`), and what rounding its colours may add
PART_BYTES = 8 << 20  # 8 MiB: the image that reaches it ends the batch; a thread holds several times as much


@dataclass(frozen=True)
class RowBatch:
    """Keyed rows and, by image feature, their images' bytes; not in Arrow, as each step would copy them."""

    rows: pa.Table
    images: Mapping[str, list[ImageBytes]]
    files: Mapping[str, list[bytes]]  # the joined SHA-256 digests of each row's original files, by image feature
    looks: Mapping[str, list[bytes]]
    """Perceptual hashes, by image feature compared by them (`pipeline.build.images.perceptual_hash`)."""
    needs: int  # about how many bytes of memory the images take in the graph
    rejects: list[Reject] = field(default_factory=list)
    facts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Numbers of all loaded images by each of `image_facts.COUNTS`, by feature and name."""
    whole: dict[str, bytes] = field(default_factory=dict)  # the digests of local files read whole, by `whole_file`

    def without(self, faults: Faults) -> "RowBatch":
        """Rejects the rows at fault."""
        if not faults:
            return self
        good = np.ones(self.rows.num_rows, bool)
        good[list(faults)] = False
        rejects = [reject_row(self.rows, row, fault) for row, fault in sorted(faults.items())]
        return replace(self._keep(good), rejects=self.rejects + rejects)

    def each(self) -> Iterator["RowBatch"]:
        """Yields each row alone."""
        rows = np.arange(self.rows.num_rows)
        return (self._keep(rows == row) for row in rows)

    def _keep(self, good: npt.NDArray[np.bool_]) -> "RowBatch":
        images = {name: list(compress(values, good)) for name, values in self.images.items()}
        files, looks = (
            {name: list(compress(values, good)) for name, values in column.items()}
            for column in (self.files, self.looks)
        )
        return replace(self, rows=self.rows.filter(pa.array(good)), images=images, files=files, looks=looks)

    def tensor(self, name: str) -> Any:
        """Returns a feature's raw values: of shape [rows], or ragged."""
        column, images = graph_column(self.rows, name), self.images.get(name)
        if images is None:
            return as_tensor(column)
        if not pa.types.is_list(column.type):
            return tf.constant(images, tf.string, shape=[self.rows.num_rows])
        values = list(chain.from_iterable(images))  # a sequence may be cut at `max_length`
        flat = tf.constant(values, tf.string, shape=[len(values)])
        return tf.RaggedTensor.from_row_lengths(flat, np.array([len(row) for row in images], np.int64), validate=False)

    def digest(self, keys: list[bytes]) -> bytes:
        """Digests the keys and the images' files: a damaged image may decode without an error."""
        return hashlib.sha256(b"".join(chain(keys, *self.files.values()))).digest()


class ImageLoader:
    """Loads the images of keyed rows; may be called from several threads."""

    def __init__(self, context: PlannedBuild, reader: BuildImageReader) -> None:
        self._reader = reader
        self._images = context.images()
        self._columns = context.schema.features
        is_hashed = context.duplicates.action == "keep"  # otherwise the pass over the contents has hashed them
        self._hashed = context.hashed_images() if is_hashed else []

    def begin(self, rows: pa.Table) -> tuple[pa.Table, BuildImageReader]:
        """Begins to read the rows' images ahead from slow stores; returns the arguments of `batches`."""
        columns = [rows[name].to_pylist() for name in ("@source", *self._images)]
        wanted = (
            (source, references, options)
            for source, *row in zip(*columns, strict=True)
            for references, options in zip(row, self._images.values(), strict=True)
        )
        return rows, self._reader.reading_ahead(read.arguments(wanted))

    def batches(self, rows: pa.Table, reader: BuildImageReader) -> Iterator[RowBatch]:
        """Yields the rows with their images, in order; several batches if the images are many bytes."""
        if not self._images:
            yield RowBatch(rows, {}, {}, {}, 0)
            return
        with reader:
            while rows.num_rows:
                loaded, taken = self._load_first(rows, reader)
                yield loaded
                rows = rows.slice(taken)

    def _load_first(self, rows: pa.Table, reader: BuildImageReader) -> tuple[RowBatch, int]:
        """Loads the images of the first rows, up to about `PART_BYTES`; also returns how many rows it took."""
        images: dict[str, list[ImageBytes]] = {name: [] for name in self._images}
        files: dict[str, list[bytes]] = {name: [] for name in self._images}
        looks: dict[str, list[bytes]] = {name: [] for name in self._hashed}
        rejects, facts, whole = list[Reject](), Counter[tuple[str, str]](), dict[str, bytes]()
        good, size, needs = list[bool](), 0, 0
        columns = [rows[name].to_pylist() for name in ("@source", *self._images)]
        for row, (source, *references) in enumerate(zip(*columns, strict=True)):
            loaded = self._load_row(source, references, reader)
            good.append(not isinstance(loaded, Fault))
            if isinstance(loaded, Fault):
                rejects.append(reject_row(rows, row, loaded))
                continue
            for reference, (name, parts) in zip(references, loaded.items(), strict=True):
                data = [part.data for part in parts]
                images[name].append(data if isinstance(reference, list) else b"".join(data))
                of_files = [part for part in parts if part.source]  # without further pages
                digests = [hashlib.sha256(part.source).digest() for part in of_files]
                files[name].append(b"".join(digests))
                whole |= {part.file: digest for part, digest in zip(of_files, digests, strict=True) if part.file}
                if name in looks:
                    looks[name].append(read.perceptual_hash_of(parts, self._images[name]))
                facts.update((count, f"{name} {of}") for part in parts for count, of in part.counts)
                size, needs = size + sum(map(len, data)), max(needs, *(part.needs for part in parts), 0)
            if size >= PART_BYTES:
                break
        loaded_rows = rows.slice(0, len(good)).filter(pa.array(np.array(good)))
        return RowBatch(loaded_rows, images, files, looks, needs + 2 * size, rejects, facts, whole), len(good)

    def _load_row(
        self, source: int, references: Sequence[bytes | list[bytes]], reader: BuildImageReader
    ) -> dict[str, list[Loaded]] | Fault:
        """Loads a row's images by feature; returns a fault if an image cannot be loaded."""
        loaded = dict[str, list[Loaded]]()
        for reference, (name, options) in zip(references, self._images.items(), strict=True):
            try:
                beside = loaded.get(options.image, ()) if isinstance(options, OfImage) else ()
                parts = [*reader.load_all(source, reference, options, beside)]
                is_whole = isinstance(options, ImageSequence) and options.pages == "all"
                if is_whole and options.length not in (None, len(parts)):
                    message = f"the row has {len(parts)} pages, `length` allows {options.length}"
                    raise ImageError("wrong_type", message)
                loaded[name] = parts
            except ImageError as error:
                return Fault(error.reason, error.message, self._columns[name], error.path)
        return loaded


@lru_cache(maxsize=1)
def _traced(graph: TransformGraph, specs: tuple[tuple[str, tf.TypeSpec], ...]) -> Callable[..., Stored]:
    """Traces the graph once a process, for all its shards: not in their threads."""

    def unencoded(raw: Stored) -> Stored:
        stored = graph(raw)
        return {name: stored[name] for name in stored if part_name(name, UNENCODED) not in stored}

    # A `tf.function` itself keeps its lock for ever if inputs do not match.
    return tf.function(unencoded, input_signature=[dict(specs)], autograph=False).get_concrete_function()


class StoredGraph:
    """The transform graph: raw columns to stored tensors; may be called from several threads."""

    def __init__(self, context: PlannedBuild) -> None:
        self._specs = input_specs(context)
        self._beside = {part_name(name, part): encoded_name(name, part) for name, part in context.encoded()}
        self._images = context.images()
        self._loaded = transform_graph(unpack_graph(context.workspace, context.export))  # keeps the graph's tables
        self._graph = _traced(self._loaded, tuple(self._specs.items()))

    def __call__(self, batch: RowBatch) -> Stored:
        """Returns the stored tensors by feature.

        Raises:
            tf.errors.InvalidArgumentError: an image cannot be decoded.
            UserError: the user's function returned more or fewer values than rows.
        """
        stored = dict(self._graph({name: batch.tensor(name) for name in self._specs}))
        stored |= {name: as_tensor(batch.rows[column]) for name, column in self._beside.items() if name in stored}
        for name, options in self._images.items():
            if (unencoded := stored.pop(part_name(name, UNENCODED), None)) is not None:
                stored[name] = _each(partial(as_jpeg, options=options), unencoded)
            elif options.strips and name in stored:
                stored[name] = _each(without_metadata, stored[name])
        for name, values in stored.items():
            if values.shape[0] != batch.rows.num_rows:
                of = f"{values.shape[0]:,} values for a batch of {batch.rows.num_rows:,} rows"
                raise UserError(f"`preprocessing` stores {of} as '{name}': return one a row, in the rows' order")
        return stored


def _each(change: Callable[[bytes], bytes], images: Any) -> Any:
    """Changes stored images, strings of shape [rows] or ragged [rows, None]."""
    if isinstance(images, tf.RaggedTensor):
        return images.with_flat_values(_each(change, images.flat_values))
    return tf.constant([change(data) for data in images.numpy().tolist()], tf.string, images.shape)


def early_ends(batch: RowBatch, stored: Stored) -> Counter[tuple[str, str]]:
    """Counts the JPEGs with an early end, as in `RowBatch.facts`: asks libjpeg, which takes a second decode, in doubt.

    Where a single run of data ends before its last block, this block is mid-grey, as the output `LAST` tells. Restart
    markers and further scans hide it, and the user's function may drop the output.
    """
    found = Counter[tuple[str, str]]()
    for name, rows in batch.images.items():
        files = [data for row in rows for data in (row if isinstance(row, list) else [row])]
        last = stored.get(part_name(name, LAST))
        lumas = getattr(last, "flat_values", last)
        hints = np.full(len(files), GREY) if lumas is None else lumas.numpy()
        for data, is_grey in zip(files, np.abs(hints - GREY) <= ROUNDED, strict=True):
            if data.startswith(JPEG) and (is_grey or not is_one_run(data)):
                asked = partial(ends_early, data)
                is_early = read.retry_alone(asked, f"decode an image of {len(data):,} bytes", needs=batch.needs)
                found["losses", f"{name} {EARLY}"] += is_early
    return +found


class BatchTransformer:
    """Transforms batches with a graph that may fail; may be called from several threads."""

    def __init__(
        self,
        graph: Callable[[RowBatch], Stored],
        image_columns: Mapping[str, str],
        is_decodable: Callable[[str, bytes], bool],
        own: str | None = None,
    ) -> None:
        """Takes the graph, the column of each image feature, and a test whether the graph decodes a feature's image.

        The graph raises `tf.errors.InvalidArgumentError` for an undecodable image; so may `own`, the user's function.
        """
        self._graph, self._image_columns, self._is_decodable, self._own = graph, image_columns, is_decodable, own

    def __call__(self, batch: RowBatch) -> tuple[RowBatch, Stored]:
        """Returns the transformed rows, with the rejects of the others, and their stored tensors.

        Raises:
            tf.errors.InvalidArgumentError: the graph fails for another reason than an image.
            OutOfMemoryError: memory is short, even alone.
            UserError: the user's function fails for a row.
        """
        try:
            return batch, self._stored(batch)
        except UNDECODABLE:
            if not self._image_columns and self._own is None:
                raise
        batch = self._drop_undecodable(batch)
        return batch, self._stored(batch, UNDECODABLE)

    def _stored(self, batch: RowBatch, doubtful: tuple[type[Exception], ...] = ()) -> Stored:
        purpose = f"send {batch.rows.num_rows} rows through the transform graph"
        return read.retry_alone(lambda: self._graph(batch), purpose, doubtful, batch.needs)

    def _drop_undecodable(self, batch: RowBatch) -> RowBatch:
        """Tries each row by itself, and retries a failed one with no other at work: drops only undecodable ones."""
        faults = Faults()
        for row, alone in enumerate(batch.each()):
            try:
                self._stored(alone, UNDECODABLE)
            except UNDECODABLE as error:
                at_fault = (
                    column
                    for name, column in self._image_columns.items()
                    for images in alone.images[name]  # of its one row
                    if not all(
                        self._is_decodable(name, data) for data in (images if isinstance(images, list) else [images])
                    )
                )
                column = next(at_fault, None)
                if column is None and self._own is None:
                    raise
                if column is None:
                    key = cut(repr(alone.rows["@key"][0].as_py().decode(errors="replace")))
                    raise UserError(f"`{self._own}` failed: {type(error).__name__}; the row: {key}") from error
                faults[row] = Fault("undecodable_image", read.MESSAGE, column)
        return batch.without(faults)
