"""The facts of a build that its workers get: the plan's, then the decisions about rows, then the graph.

Sent with the job, so plain, frozen and small.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.runners.worker_environment import worker_threads
from recordmill.pipeline.dataset.placement import Layout
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.split_by import Duplicates, SplitBy
from recordmill.pipeline.versions.forgotten import Forgotten
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.contract.kinds.text import TextOptions

ARROW_TYPES = {ColumnType.NUMBER: pa.float32(), ColumnType.INTEGER: pa.int64()}
Strata = Mapping[str, Sequence[int]]
"""For each class, the upper bounds of the splits' hash ranges (`placement.split_bounds` makes those of all rows)."""
IMAGE_BATCH = 32  # rows that go through the graph at once; constants, because a batch's bounds must not depend
ROW_BATCH = 1024  # on cores or memory
MAX_BUCKETS = 1024  # each chunk and shard sends an element to each


@dataclass(frozen=True)
class RowSchema:
    """The columns of rows: which are read, which feature takes which, and which decide a row's key and split."""

    columns: Columns
    """The raw columns that are asked of the sources."""
    features: Mapping[str, str]
    """The column of each feature that has one."""
    key: Sequence[str] | None
    label: str | None
    classes: tuple[str, ...] | None
    """The label's classes, of the spec or of a frozen analysis; None where the data decide."""
    fills: Mapping[str, Any] = field(default_factory=dict)
    """The value that stands in for a missing one, by optional feature."""
    content_key: str | None = None
    """The column whose content is the key."""
    split_by: SplitBy | None = None
    together: tuple[tuple[str, ...], ...] = ()
    """Groups of features whose lists have equal lengths in each row."""
    frozen_classes: bool = False
    """Whether the label's classes are those of a frozen analysis."""
    source_splits: tuple[str | None, ...] = ()
    """The split that all rows of a source go to, where the spec says so."""
    key_prefixes: tuple[bytes, ...] = ()
    """The beginning of the default keys of each source's rows, where sources belong to spans."""

    def final_type(self, feature: str) -> pa.DataType:
        """Returns the Arrow type of a feature's column in keyed rows."""
        column = self.columns[self.features[feature]]
        value = ARROW_TYPES.get(column.type, pa.binary())
        return pa.list_(value) if column.many else value

    def columns_for(self, images: Collection[str]) -> Columns:
        """Returns the columns that are asked of the sources where the bytes of these image features alone matter."""
        by = self.split_by
        needed = {self.features[name] for name in images} | {
            self.content_key,
            by.group if by else None,
            *(self.key or ()),
        }
        return {
            name: replace(column, presence=column.type is ColumnType.IMAGE and name not in needed)
            for name, column in self.columns.items()
        }

    @property
    def keys_may_cross(self) -> bool:
        """Whether one key may be in several splits: by the hash of the key it is in one."""
        return self.split_by is not None or any(self.source_splits)

    @property
    def source_key(self) -> Sequence[str] | None:
        """The key as a source takes it: columns, or None for the source's own."""
        return () if self.content_key else self.key


@dataclass(frozen=True)
class RowDecisions:
    """Decisions about rows by the jobs before the look; all None where none ran."""

    strata: Strata | None = None
    """The bounds of each class, where the split is by the classes of a feature."""
    moved: str | None = None
    """The folder of units that go to another split, where their duplicates are: a file for each chunk."""
    dropped: str | None = None
    """The folder of duplicates that are left out: a file for each chunk."""


@dataclass(frozen=True, kw_only=True)
class PlannedBuild:
    """A build as its plan knows it, and what the jobs have decided and learned so far."""

    name: str
    workspace: Store
    """The attempt's own: `OUT/.building/<build key>/<run>` (`pipeline.build.attempt.attempts`)."""
    shards: Store
    """The folder of the shards and their indexes, which becomes the version's or is it already."""
    scratch: str
    """A folder on the driver's disk: for it, and for workers of the local runner."""
    features: Mapping[str, FeatureOptions]
    """The features' options; once the graph is made, with models, words and classes."""
    analyzed: frozenset[str]
    """The features whose raw columns the analysis reads."""
    schema: RowSchema
    layout: Layout
    readers: tuple[SourceReader[Any], ...]
    """The readers of the sources that are read; where there are spans, the spec's are in as many parts."""
    spans: tuple[str | None, ...]
    """The span of each source; None where rows belong to none."""
    roots: tuple[str, ...]
    """The folder of each source's images."""
    files: Files
    inline: bool
    """Whether packed rows cross the shuffle themselves; otherwise they are in scratch files."""
    pack_bytes: int
    """Rows are packed when so many bytes of them are together, so that a packed batch is worth its cost."""
    set_threads: int
    """The number of threads that a worker gives to the transform graph; 0 for as many as it has cores."""
    sample_share: float
    """The share of the train split's images that pixel statistics are taken from, 0..1."""
    duplicates: Duplicates
    models: Mapping[str, str]
    """The features whose tokenizer is a model, and the feature that the model is named after, which may be another."""
    forgotten: Forgotten = Forgotten()
    """The keys of rows that are left out."""
    preprocessing: str | None = None
    """The user's own function, `module:function`."""
    user_code: UserCode | None = None
    """The user's modules, as they travel to the workers."""
    row_share: float = 1.0
    """The share of the rows that are kept, by the hash of their keys; below 1 for a trial version."""
    isolated: bool = False
    """Whether each image is decoded first in a process that may crash (`pipeline.build.images.isolation`)."""
    decisions: RowDecisions = RowDecisions()
    export: str = ""
    """The archive of tf.Transform's export (`context.graph`), once the graph is made."""
    groups: frozenset[int] | None = None
    """The groups whose shards are still to be built; None: all."""

    @property
    def threads(self) -> int:
        """The number of threads that this worker gives to the transform graph."""
        return self.set_threads or worker_threads()

    @property
    def assembled(self) -> str:
        """The local folder of the version's files; in a bucket the shards are not among them."""
        return os.path.join(os.path.dirname(self.scratch), "version")

    @property
    def progress(self) -> Store:
        """The folder of the steps' counters: on the driver's disk, if the workers share it."""
        return (
            self.workspace.at("progress")
            if self.inline
            else LocalStore(os.path.join(os.path.dirname(self.scratch), "progress"))
        )

    @property
    def has_spans(self) -> bool:
        """Whether rows belong to spans, perhaps all of them to spans that are kept."""
        return bool(self.layout.spans)

    def buckets(self) -> int:
        """Returns the number of buckets that rows are compared in: about as many rows as a shard's are in each."""
        return min(MAX_BUCKETS, self.layout.groups)

    def bucket_range(self, span: str | None) -> range:
        """Returns the buckets that the records of a span are compared in: its own, since each span is counted alone."""
        if span is None:
            return range(self.buckets())
        spans = list(self.layout.spans)
        count = max(1, self.buckets() // len(spans))
        return range(spans.index(span) * count, (spans.index(span) + 1) * count)

    def images(self) -> dict[str, ImageOptions]:
        """Returns the features whose column is images, with their options."""
        return {name: options for name, options in self.features.items() if isinstance(options, ImageOptions)}

    def measured_images(self) -> dict[str, ImageOptions]:
        """Returns the images whose pixel statistics the analysis needs."""
        return {name: options for name, options in self.images().items() if options.measured}

    def hashed_images(self) -> list[str]:
        """Lists the images that are compared by their perceptual hash: the first of those that read one column."""
        images = [name for name, options in self.images().items() if options.kind == "image"]
        first = {self.schema.features[name]: name for name in reversed(images)}
        return [name for name in images if name in first.values()] if self.duplicates.near else []

    def texts(self) -> dict[str, TextOptions]:
        """Returns the texts, with their options."""
        return {name: options for name, options in self.features.items() if isinstance(options, TextOptions)}

    def label_names(self) -> NameOptions | None:
        """Returns the label's options where its values are names of classes."""
        label = self.features.get(self.schema.label or "")
        return label if isinstance(label, NameOptions) else None

    def batch_rows(self) -> int:
        """Returns the number of rows that go through the transform graph at once."""
        return IMAGE_BATCH if self.images() else ROW_BATCH

    def packed(self) -> tuple[str, int] | None:
        """Returns the text whose documents share records, and how many ids a record holds."""
        return next(((name, text.pack) for name, text in self.texts().items() if text.pack), None)

    def trained(self) -> dict[str, str]:
        """Returns those of `models` that are trained from the data."""
        return {name: owner for name, owner in self.models.items() if self.texts()[owner].model is None}

    def sees_rows(self) -> bool:
        """Whether the analysis is shown the rows of the train split: it needs none where all is given."""
        return bool(self.analyzed or self.measured_images())

    def open_label(self) -> bool:
        """Whether the label's classes are those of the data, of all splits."""
        names = self.label_names()
        return names is not None and not names.classes
