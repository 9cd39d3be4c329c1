"""The contract of a summary: a fact about all rows, added up exactly, that a build needs before it writes them.

A look (`pipeline.build.beam.jobs`) reads every chunk once, for all of its summaries:

    of_rows   a worker makes a small Arrow table of each block of keyed rows
    add       a worker adds up a chunk's tables, and writes the chunk's file, which a later attempt keeps
    buckets   each row of the sum gets a bucket, to share the next steps among workers
    add       a worker adds up one bucket of all chunks, and writes it: `look/<look>/<name>/bucket-003.arrow`
    reduce    it keeps the driver's part, such as the candidates for a vocabulary
    result    the driver makes the result from all reduced buckets

So `add` must be exact, associative and commutative: the result must not depend on the order of rows, workers or
attempts. The driver never sees the full buckets: reduced ones must not grow with the rows beyond the spec's limits. The
shortest example is `look.RowsSeen`.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.arrow_files import of_bytes, to_bytes
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import as_tensor
from recordmill.pipeline.dataset.counts import Fold
from recordmill.pipeline.sources.faults import Reject
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.base.graph import Context, Prepared
from recordmill.transforms.engines.tensorflow_features import KINDS

BUCKETS = 8  # the workers that add up one summary at once; 1 more costs every chunk another element in the shuffle
Buckets = npt.NDArray[np.int64]
Result = TypeVar("Result")
FOLD_ROWS = 1 << 17  # rows that wait to be added up: some 10 MB of words
TABLE_ROWS = 64  # a table's own objects take the memory of as many rows
DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Summary(ABC, Generic[Result]):
    """A fact about the rows. Travels to workers, so it is plain, frozen and small."""

    name: ClassVar[str]  # names its files; unique in a look
    rows_at_once: ClassVar[int] = 4096  # the most rows of one call of `of_rows`; fewer if rows are slow, such as images
    of_read_rows: ClassVar[bool] = False  # true: the driver needs it for the rows read, without those of kept spans
    planned: PlannedBuild

    @cached_property
    def features(self) -> Collection[str]:
        """The summarized features, by default all; without any, the summary is skipped."""
        return self.planned.features

    def prepare(self) -> None:  # noqa: B027 - optional
        """Makes the costly parts of `of_rows` in a worker, before its threads begin."""

    @abstractmethod
    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Makes a table of keyed rows (`pipeline.build.worker.keyed_rows`), maybe none, in a thread of a worker.

        Takes `rows_at_once` rows or less, whatever the sources' blocks. Appends the rejects that it finds to a new
        list: the look keeps those that another attempt may be able to read, and the job that writes the shards rejects
        the rows.
        """

    @abstractmethod
    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up one or more tables of `of_rows` or `add`, in any order."""

    def buckets(self, table: pa.Table) -> Buckets:
        """Chooses each row's bucket, 0 to `BUCKETS` - 1, for `add` and `reduce`; by default the first for all."""
        return np.zeros(table.num_rows, np.int64)

    def reduce(self, table: pa.Table) -> pa.Table:
        """Keeps the driver's part of a bucket, added up over all chunks; by default everything."""
        return table

    @abstractmethod
    def result(self, tables: Sequence[pa.Table]) -> Result:
        """Makes the result in the driver from the reduced buckets, none if no row counts. Raises: UserError."""


def add_up(tables: Sequence[pa.Table], keys: Sequence[str], values: Mapping[str, str]) -> pa.Table:
    """Adds up rows of tables with equal `keys`; `values` are other columns, each with `sum`, `min` or `max`."""
    added = pa.concat_tables(tables).group_by(list(keys)).aggregate(list(values.items()))
    return added.select([*keys, *(f"{name}_{way}" for name, way in values.items())]).rename_columns([*keys, *values])


def by_feature(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yields each feature with its rows."""
    for feature in table["feature"].unique().to_pylist():
        yield feature, table.filter(pc.equal(table["feature"], feature))


def fold_of(summary: Summary[Any]) -> Fold[pa.Table]:
    """Returns an empty fold of a summary's tables."""
    return Fold(summary.add, FOLD_ROWS, lambda table: table.num_rows + TABLE_ROWS)


def add_tables(summary: Summary[Any], tables: Iterable[pa.Table]) -> pa.Table | None:
    """Adds up tables of a summary; returns None for no tables."""
    fold = fold_of(summary)
    for table in tables:
        fold.add(table)
    return fold.sum()


def to_file(tables: Mapping[str, pa.Table], subject: str) -> bytes:
    """Writes tables by name as a file with a digest, which `of_file` reads only for the same subject.

    >>> data = to_file({"rows": pa.table({"rows": [3]})}, "chunk 7")
    >>> of_file(data, "chunk 7")["rows"].num_rows, of_file(data[:-1], "chunk 7"), of_file(data, "chunk 8")
    (1, None, None)
    """
    cells = pa.table({"name": list(tables), "table": pa.array(map(to_bytes, tables.values()), pa.large_binary())})
    data = to_bytes(cells)
    return hashlib.sha256(subject.encode() + data).digest() + data


def of_file(data: bytes | None, subject: str) -> dict[str, pa.Table] | None:
    """Reads them back; None for a missing or damaged file, or another subject's."""
    if data is None or data[:DIGEST] != hashlib.sha256(subject.encode() + data[DIGEST:]).digest():
        return None
    return {row["name"]: of_bytes(row["table"]) for row in of_bytes(data[DIGEST:]).to_pylist()}


def train_rows(planned: PlannedBuild, rows: pa.Table, columns: Iterable[str] | None = None) -> pa.Table:
    """Selects the keyed rows of the train split, with all or some columns."""
    is_train = pc.equal(rows["@split"], planned.layout.splits.index("train"))
    return (rows if columns is None else rows.select([*columns])).filter(is_train)


def prepared(options: Feature, column: pa.ChunkedArray) -> Prepared:
    """Prepares a feature's column of keyed rows by the graph's function (`Kind.prepare`), eagerly, without tracing."""
    return KINDS[options.kind].prepare(options, as_tensor(column), Context())
