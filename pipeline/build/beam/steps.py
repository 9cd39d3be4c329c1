"""Steps that jobs share: chunks are listed, and functions run on workers, also on rows that are spread over buckets.

A step takes the rows of one bucket, as one table. On the local runner the rows are in scratch files, and only names are
shuffled (`worker.packing`). Every step leaves its `UserError` in the workspace, where the driver reads it.

    pipeline | ListChunks(workspace, chunks) | ParDo(WorkerStep(planned, make))   # make()(chunk) -> elements
    rows | GroupByKey() | ParDo(Send(planned, step, to)) # step(table) -> table, to(table) -> with each row's bucket
    rows | GroupByKey() | ParDo(Keep(planned, write))   # write(planned, bucket, table) -> anything small
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.chunk_pages import ChunkPages
from recordmill.pipeline.build.context.graph import install_user_code
from recordmill.pipeline.build.context.reports import leaving_error
from recordmill.pipeline.build.duplicates.fingerprints import BUCKET
from recordmill.pipeline.build.worker.packing import Packed, pack, unpack
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.versions.stores.base import Store

Bucket = tuple[int, Packed | Iterable[Packed]]
TableStep = Callable[[pa.Table], pa.Table]


class Composite(beam.PTransform):  # type: ignore[misc]
    """A transform whose parts a function adds; the graph does not hold its arguments, as `beam.ptransform_fn` does."""

    def __init__(self, add: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        self._add, self._arguments = add, arguments

    def expand(self, values: Any) -> Any:
        """Adds the parts."""
        return self._add(values, *self._arguments)


def composite(add: Callable[..., Any]) -> Callable[..., Composite]:
    """Makes a transform of a function of its input and of other arguments."""
    return partial(Composite, add)


@composite
def ListChunks(begin: beam.pvalue.PBegin, workspace: Store, chunks: Sequence[Chunk]) -> beam.PCollection:
    """Spreads chunks over the workers: the graph has their number, the workers read them in the workspace."""
    pages = ChunkPages.write(workspace, chunks)
    positions = (
        begin | "CountChunks" >> beam.Create([len(pages)]) | "NumberChunks" >> beam.FlatMap(lambda count: range(count))
    )
    if len(pages) > 1:
        positions |= "SpreadChunks" >> beam.Reshuffle()
    return positions | "ReadPages" >> beam.Map(partial(read_chunk, pages))


def read_chunk(pages: ChunkPages, position: int) -> Chunk:
    """Reads a chunk in a worker."""
    with leaving_error(pages.workspace):
        return pages.read(position)


class Step(beam.DoFn):  # type: ignore[misc]
    """Yields what a function makes of an element and of side inputs."""

    def __init__(self, planned: PlannedBuild, function: Callable[..., Any]) -> None:
        self._planned, self._function = planned, function

    def process(self, element: Any, *sides: Any) -> Iterator[Any]:
        """Takes one element, and what the function needs besides."""
        with leaving_error(self._planned.workspace):
            yield from self._function(element, *sides)


class WorkerStep(Step):
    """A step whose function each worker makes, once the user's code is loaded: sources may be the user's own."""

    def __init__(self, planned: PlannedBuild, make: Callable[[], Callable[..., Iterable[Any]]]) -> None:
        self._planned, self._make = planned, make

    def setup(self) -> None:
        """Makes the function."""
        install_user_code(self._planned)
        self._function = self._make()


class Send(Step):
    """Sends the rows that a step makes of a bucket to the buckets that it or `to` adds; by default they stay."""

    def __init__(self, planned: PlannedBuild, function: Callable[..., Any], to: TableStep | None = None) -> None:
        super().__init__(planned, function)
        self._to = to

    def process(self, element: Bucket, *sides: Any) -> Iterator[tuple[int, Packed]]:
        """Takes one bucket, and what the step needs besides."""
        with leaving_error(self._planned.workspace):
            table = self._function(rows_of(element[1]), *sides)
            if self._to is not None:
                table = self._to(table)
            if BUCKET not in table.column_names:
                table = table.append_column(BUCKET, pa.array(np.full(table.num_rows, element[0])))
            yield from send(self._planned, table)


class Keep(Step):
    """Leaves what a function makes of a bucket in the workspace; yields what it returns."""

    def process(self, element: Bucket, *sides: Any) -> Iterator[Any]:
        """Takes one bucket, and what the function needs besides."""
        with leaving_error(self._planned.workspace):
            yield self._function(self._planned, element[0], rows_of(element[1]), *sides)


def send(planned: PlannedBuild, table: pa.Table) -> Iterator[tuple[int, Packed]]:
    """Packs rows by their buckets."""
    return pack(table, None if planned.inline else planned.scratch)


def rows_of(packed: Packed | Iterable[Packed]) -> pa.Table:
    """Reads the rows of a bucket."""
    return unpack([packed] if isinstance(packed, Packed) else packed).drop_columns([BUCKET])
