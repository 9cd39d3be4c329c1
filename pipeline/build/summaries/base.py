"""The contract of a summary: what a build must know of its rows before it writes them, added up exactly.

A look (`pipeline.build.beam.look`) reads every chunk once, for all of its summaries:

    of_rows   a worker makes a small Arrow table of each block of keyed rows
    add       a worker adds up a chunk's tables; they are written as the chunk's file, which a later attempt keeps
    buckets   each row of the sum names its bucket, so that several workers can share what follows
    add       a worker adds up one bucket of all chunks, and writes it: `look/<look>/<name>/bucket-003.arrow`
    reduce    it keeps what the driver needs, such as the candidates for a vocabulary
    result    the driver makes the result of the reduced buckets, of which together it holds them all

So `add` must be exact, associative and commutative: neither the order of rows nor workers nor attempts may show. The
driver never sees the full buckets: what `reduce` leaves must not grow with the rows beyond what the spec keeps.

    class RowsBySource(Summary[dict[int, int]]):
        name = "rows"

        def of_rows(self, rows, rejects):
            counts = rows["@source"].value_counts()
            return pa.table({"source": counts.field("values"), "rows": counts.field("counts")})

        def add(self, tables):
            return add_up(tables, ["source"], {"rows": "sum"})

        def result(self, tables):
            return {row["source"]: row["rows"] for table in tables for row in table.to_pylist()}
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.source_reader import Chunk

BUCKETS = 8
"""So many workers can add up one summary at once; 1 more costs every chunk another element in the shuffle."""
Buckets = npt.NDArray[np.int64]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Summary(ABC, Generic[Result]):
    """One thing to know of the rows. Travels to workers, so it is plain, frozen and small."""

    name: ClassVar[str]
    """Names its files; unique in a look."""
    rows_at_once: ClassVar[int] = 4096
    """The most rows of one call of `of_rows`; fewer where a row takes long, as one with images does."""
    of_read_rows: ClassVar[bool] = False
    """True: the driver needs it of the rows that are read, without those of kept spans."""
    planned: PlannedBuild

    @property
    def is_needed(self) -> bool:
        """Whether the spec needs it."""
        return True

    def sees(self, chunk: Chunk) -> bool:
        """Whether the rows of a chunk count."""
        return True

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Makes in a worker, before its threads begin, what `of_rows` needs and is costly to make."""

    @abstractmethod
    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Makes the table of some keyed rows (`pipeline.build.worker.keyed_rows`), in a worker, in one of its threads.

        Appends the rejects that it finds, which the look keeps only where another attempt may find the row readable;
        the job that writes the shards rejects the rows themselves. No rows give a table of no rows.

        Args:
            rows: `rows_at_once` of a chunk, or fewer: a constant, so that nothing depends on how sources cut blocks.
            rejects: a list of this call's own.
        """

    @abstractmethod
    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up tables of `of_rows`, of `add`, or of both, of which there is at least one, in any order."""

    def buckets(self, table: pa.Table) -> Buckets:
        """Returns the bucket of each row, 0 to `BUCKETS` - 1: rows that `add` or `reduce` must see together share one.

        By default all rows are in the first one, which suits what has few rows.
        """
        return np.zeros(table.num_rows, np.int64)

    def reduce(self, table: pa.Table) -> pa.Table:
        """Keeps of one bucket, added up over all chunks, what the driver needs; by default everything."""
        return table

    @abstractmethod
    def result(self, tables: Sequence[pa.Table]) -> Result:
        """Makes the result of the reduced buckets in the driver: none where no chunk has a row that counts.

        Raises:
            UserError: a build cannot go on with these rows.
        """


def add_up(tables: Sequence[pa.Table], keys: Sequence[str], values: Mapping[str, str]) -> pa.Table:
    """Adds up the rows of tables that agree in the columns `keys`.

    Args:
        tables: at least one, all with the same columns.
        keys: the columns that name what is counted.
        values: the other columns, with the exact way to add each up: `sum` of whole numbers, `min` or `max`.
    """
    added = pa.concat_tables(tables).group_by(list(keys)).aggregate(list(values.items()))
    return added.select([*keys, *(f"{name}_{way}" for name, way in values.items())]).rename_columns([*keys, *values])
