"""The facts of a build that its workers get: the plan's, then the decisions about rows, then the graph.

Sent with the job, so plain, frozen and small.
"""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Self

import pyarrow as pa

from recordmill.pipeline.build.runners.worker_environment import worker_threads
from recordmill.pipeline.dataset.manifest_parts import Pack
from recordmill.pipeline.dataset.placement import Layout
from recordmill.pipeline.sources.batches import batches, pack, packed_bytes, unpack
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.source_reader import Chunk, SourceReader
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.split_by import Duplicates, SplitBy
from recordmill.pipeline.versions.base import Forgotten
from recordmill.pipeline.versions.stores.base import OutputError, Store
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.base.columns import Columns, ColumnType
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.images.image_spec import Image
from recordmill.transforms.images.mask_spec import Mask, Masks
from recordmill.transforms.texts.text_stored import Window

ARROW_TYPES = {ColumnType.NUMBER: pa.float32(), ColumnType.INTEGER: pa.int64()}
AnyImage = Image | Mask | Masks
Strata = Mapping[str, Sequence[int]]
"""For each class, the upper bounds of the splits' hash ranges (`placement.split_bounds` makes those of all rows)."""
IMAGE_BATCH = 32  # rows that go through the graph at once; constants, because a batch's bounds must not depend
ROW_BATCH = 1024  # on cores or memory
MAX_BUCKETS = 1024  # each chunk and shard sends an element to each
BUCKET_ROWS = 32_768  # some 3 MB of fingerprints
FOLDER = "chunks"
PAGE_CHUNKS = 500  # 10 million chunks are 20,000 pages, and their bounds and digests take 0.5 MB of the graph
WRITERS = 8


@dataclass(frozen=True)
class RowSchema:
    """The columns of rows: those to read, each feature's, and those that decide a row's key and split."""

    columns: Columns  # raw columns to read
    features: Mapping[str, str]  # column of each feature that has one
    key: Sequence[str] | None
    label: str | None
    classes: tuple[str, ...] | None  # label's classes, from the spec or a frozen analysis; None if the data decide
    fills: Mapping[str, Any] = field(default_factory=dict)  # default for a missing value, by optional feature
    fields: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For a feature of several columns, the column of each field: numbers make a list, lists are joined value by value,
    others make JSON objects."""
    drawn: Mapping[str, bool] = field(default_factory=dict)  # features of shapes: whether each object is a value
    content_key: str | None = None  # the key digests this column
    split_by: SplitBy | None = None
    together: tuple[tuple[str, ...], ...] = ()  # groups of features with lists of equal lengths in each row
    frozen_classes: bool = False  # whether a frozen analysis gives the label's classes
    source_splits: tuple[str | None, ...] = ()  # split for all rows of a source, if the spec names one
    key_prefixes: tuple[bytes, ...] = ()  # prefix of default keys, by source; empty without spans

    @property
    def named(self) -> dict[str, str]:
        """The column of each feature in messages; both of a pair."""
        pairs = {name: fields for name, fields in self.fields.items() if "second" in fields}
        return {**self.features, **{name: ", ".join(fields.values()) for name, fields in pairs.items()}}

    def final_type(self, feature: str) -> pa.DataType:
        """Returns the Arrow type of a feature's column in keyed rows."""
        column = self.columns[self.features[feature]]
        value = ARROW_TYPES.get(column.type, pa.binary())
        return pa.list_(value) if self.drawn.get(feature, column.many or self.joins_numbers(feature)) else value

    def joins_numbers(self, feature: str) -> bool:
        """Whether a feature's values are lists, of one number from each of several columns."""
        return feature in self.fields and self.columns[self.features[feature]].type is ColumnType.NUMBER

    def columns_for(self, images: Collection[str]) -> Columns:
        """Returns the columns to read if only these image features need their bytes."""
        group = self.split_by.group if self.split_by else None
        needed = {self.content_key, group, *(self.key or ()), *(self.features[name] for name in images)}
        return {
            name: replace(column, presence=column.is_file and name not in needed)
            for name, column in self.columns.items()
        }

    @property
    def keys_may_cross(self) -> bool:
        """Whether one key may be in several splits: not if its hash decides."""
        return self.split_by is not None or any(self.source_splits)

    @property
    def source_key(self) -> Sequence[str] | None:
        """The key columns for a source; None for its default key."""
        return () if self.content_key else self.key


@dataclass(frozen=True)
class RowDecisions:
    """Decisions about rows by the jobs before the look; None where no job ran."""

    strata: Strata | None = None  # bounds of each class, if the split is by class
    moved: str | None = None  # folder of units moved to the split of their duplicates, a file per chunk
    dropped: str | None = None  # folder of dropped duplicates, a file per chunk
    filtered: str | None = None  # folder of the user's filter's answers, a file per chunk that a pass has read


@dataclass(frozen=True, kw_only=True)
class PlannedBuild:
    """A build for its workers: the plan, and what the jobs have decided and learned so far."""

    name: str
    workspace: Store  # attempt's: `OUT/.building/<build key>/<run>` (`pipeline.build.attempt.attempts`)
    shards: Store  # folder of shards and indexes; it becomes the version's, or already is
    scratch: str  # a folder on the driver's disk, for the driver and local workers
    features: Mapping[str, Feature]
    learned: Mapping[str, Learned]  # by feature; with models and words once the graph is made
    analyzed: frozenset[str]  # features that the analysis reads
    schema: RowSchema
    layout: Layout
    readers: tuple[SourceReader[Any], ...]  # readers of the sources; with spans, one for each part of a source
    spans: tuple[str | None, ...]  # span of each source; None without spans
    roots: tuple[str, ...]  # folder of each source's images
    files: Files
    inline: bool  # whether packed rows cross the shuffle; otherwise they are in scratch files
    pack_bytes: int  # bytes of rows to pack together: a smaller batch is not worth its cost
    set_threads: int  # threads of the transform graph per worker; 0: the number of cores
    sample_share: float  # share of the train split's images in pixel statistics, 0..1
    duplicates: Duplicates
    models: Mapping[str, str]  # feature that each tokenizer model is named after, by feature
    forgotten: Forgotten = Forgotten()  # keys of rows to leave out
    rows: int = MAX_BUCKETS * BUCKET_ROWS  # to read, estimated
    packs: tuple[Pack, ...] = ()  # rows of several records
    preprocessing: str | None = None  # user's own function, `module:function`
    filter: str | None = None  # likewise
    user_code: UserCode | None = None  # user's modules
    row_share: float = 1.0  # share of rows to keep, by key hash; below 1 for a trial
    isolated: bool = False
    """Whether each image is decoded first in a process that may crash (`pipeline.build.images.isolation`)."""
    decisions: RowDecisions = RowDecisions()
    export: str = ""  # the archive of tf.Transform's export (`context.graph`), once the graph is made
    groups: frozenset[int] | None = None  # groups of shards to build; None: all

    @property
    def threads(self) -> int:
        """The number of threads for the transform graph on this worker."""
        return self.set_threads or worker_threads()

    @property
    def assembled(self) -> str:
        """The local folder of the version's files; without shards if these are in a bucket."""
        return os.path.join(os.path.dirname(self.scratch), "version")

    @property
    def progress(self) -> Store:
        """The folder of the steps' counters, on the driver's disk if the workers share it."""
        local = os.path.join(os.path.dirname(self.scratch), "progress")
        return self.workspace.at("progress") if self.inline else LocalStore(local)

    @property
    def has_spans(self) -> bool:
        """Whether rows belong to spans."""
        return bool(self.layout.spans)

    def buckets(self) -> int:
        """Returns the number of buckets for comparing rows, at most one a shard: each has a cost for every shard."""
        return min(MAX_BUCKETS, self.layout.groups, 1 + self.rows // BUCKET_ROWS)

    def bucket_range(self, span: str) -> range:
        """Returns the buckets of a span's records: spans share none, since each is counted alone."""
        spans = list(self.layout.spans) or [""]
        count = max(1, self.buckets() // len(spans))
        return range(spans.index(span) * count, (spans.index(span) + 1) * count)

    def images(self) -> dict[str, Any]:
        """Returns the image features, with their options; masks last, as they need their images."""
        images = {name: each for name, each in self.features.items() if each.is_image}
        return dict(sorted(images.items(), key=lambda each: each[1].is_mask))

    def measured_images(self) -> dict[str, Image]:
        """Returns the images that need pixel statistics."""
        return {name: each for name, each in self.images().items() if each.learns}

    def hashed_images(self) -> list[str]:
        """Lists the images to compare by perceptual hash: one per column."""
        images = [name for name, options in self.images().items() if options.kind == "image"]
        first = {self.schema.features[name]: name for name in reversed(images)}
        return [name for name in images if name in first.values()] if self.duplicates.near else []

    def texts(self) -> dict[str, Any]:
        """Returns the texts, with their options."""
        return {name: options for name, options in self.features.items() if options.counts == "words"}

    @property
    def windowed(self) -> tuple[tuple[str, ...], Window] | None:
        """The text to cut into windows, if any, and the labels of its tokens; and the windows' size."""
        for name, text in self.texts().items():
            if text.windows is not None:
                labels = (other for other, each in self.features.items() if getattr(each, "text", None) == name)
                return (name, *labels), text.windows
        return None

    def inputs(self) -> list[str]:
        """Lists the features with a column that the graph takes."""
        return [name for name in self.schema.features if self.features[name].is_input]

    def encoded(self) -> list[tuple[str, str]]:
        """Lists the features, and their parts, that a step before the graph makes; the graph has placeholders."""
        texts = [(name, part) for name, each in self.texts().items() if each.in_library for part in each.library_parts]
        return [*texts, *((name, "") for name, each in self.features.items() if not each.is_input)]

    def graph_type(self, feature: str) -> pa.DataType:
        """Returns the Arrow type of the graph's input: ids of a text tokenized before it, or the column's."""
        return pa.list_(pa.int64()) if self.features[feature].in_library else self.schema.final_type(feature)

    def batch_rows(self) -> int:
        """Returns the batch size of the transform graph."""
        return IMAGE_BATCH if self.images() else ROW_BATCH

    def trained(self) -> dict[str, str]:
        """Returns the entries of `models` to train from the data."""
        return {name: owner for name, owner in self.models.items() if self.texts()[owner].model is None}

    def open_label(self) -> bool:
        """Whether the data of all splits decide the label's classes."""
        label: Any = self.features.get(self.schema.label or "")
        return label is not None and label.counts == "names" and not label.given_classes


@dataclass(frozen=True)
class ChunkPages:
    """Chunks by their positions, from 0."""

    workspace: Store
    digests: tuple[bytes, ...]
    """The digest of each page, its file's name: a worker unpickles only what the driver wrote."""
    bounds: tuple[int, ...]  # position of each page's first chunk and, last, the number of chunks

    @classmethod
    def write(cls, workspace: Store, chunks: Sequence[Chunk]) -> Self:
        """Writes missing pages: two jobs of a build read the same chunks. Raises: OSError, OutputError."""
        counts, pages = [0], dict[bytes, bytes]()
        for page in batches(chunks, packed_bytes, PAGE_CHUNKS):
            data = pack(page)
            counts.append(len(page))
            pages[_digest(data)] = data
        there = workspace.sizes(FOLDER)
        missing = {name: page for digest, page in pages.items() if (name := _name(digest)) not in there}
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(workspace.write, missing, missing.values()))
        return cls(workspace, tuple(pages), tuple(accumulate(counts)))

    def __len__(self) -> int:
        return self.bounds[-1]

    def read(self, position: int) -> Chunk:
        """Returns a chunk; the last pages are cached. Raises: OSError, OutputError: the page is gone or damaged."""
        page = bisect_right(self.bounds, position) - 1
        return _read(self.workspace, self.digests[page])[position - self.bounds[page]]


def _name(digest: bytes) -> str:
    return f"{FOLDER}/{digest.hex()}"


def _digest(page: bytes) -> bytes:
    return hashlib.blake2b(page, digest_size=16).digest()


@lru_cache(maxsize=2)
def _read(workspace: Store, digest: bytes) -> list[Chunk]:
    page, path = workspace.read(_name(digest)), f"{workspace.url}/{_name(digest)}"
    if page is None:
        raise FileNotFoundError(f"{path} is gone: another attempt at this build goes on with its work")
    if _digest(page) != digest:
        raise OutputError(f"{path} is not what the driver wrote: run the same command again")
    return list(unpack(page))
