"""Lists the chunks of a job: the graph has their number, the workers read them in the workspace."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.chunk_pages import ChunkPages
from recordmill.pipeline.build.context.reports import leaving_error
from recordmill.pipeline.build.context.workspace import Workspace
from recordmill.pipeline.build.duplicates.fingerprints import BUCKET
from recordmill.pipeline.build.worker.packing import Packed, pack, unpack
from recordmill.pipeline.sources.source_reader import Chunk


class ListChunks(beam.PTransform):  # type: ignore[misc]
    """Returns chunks, spread over the workers."""

    def __init__(self, workspace: Workspace, chunks: Sequence[Chunk]) -> None:
        super().__init__()
        self._workspace = workspace
        self._chunks = chunks

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Writes the chunks' pages; adds the steps that number, spread and read the chunks."""
        pages = ChunkPages.write(self._workspace, self._chunks)
        positions = begin | "CountChunks" >> beam.Create([len(pages)]) | "NumberChunks" >> beam.FlatMap(_positions)
        if len(pages) > 1:
            positions |= "SpreadChunks" >> beam.Reshuffle()
        return positions | "ReadPages" >> beam.Map(partial(read_chunk, pages))


def read_chunk(pages: ChunkPages, position: int) -> Chunk:
    """Reads a chunk in a worker."""
    with leaving_error(pages.workspace):
        return pages.read(position)


def _positions(count: int) -> Iterable[int]:
    return range(count)


Bucket = tuple[int, Packed | Iterable[Packed]]


def send(planned: PlannedBuild, table: pa.Table) -> Iterator[tuple[int, Packed]]:
    """Packs rows by their buckets."""
    return pack(table, None if planned.inline else planned.scratch)


def rows_of(packed: Packed | Iterable[Packed]) -> pa.Table:
    """Returns the rows of a bucket."""
    return unpack([packed] if isinstance(packed, Packed) else packed).drop_columns([BUCKET])


class Send(beam.DoFn):  # type: ignore[misc]
    """Sends the rows that a step makes of a bucket to the buckets that it names; by default they stay in theirs."""

    def __init__(self, planned: PlannedBuild, step: Callable[..., pa.Table]) -> None:
        self._planned, self._step = planned, step

    def process(self, element: Bucket, *sides: Any) -> Iterator[tuple[int, Packed]]:
        """Takes one bucket, and what the step needs besides."""
        with leaving_error(self._planned.workspace):
            table = self._step(rows_of(element[1]), *sides)
            if BUCKET not in table.column_names:
                table = table.append_column(BUCKET, pa.array(np.full(table.num_rows, element[0])))
            yield from send(self._planned, table)


class Keep(beam.DoFn):  # type: ignore[misc]
    """Leaves what a function makes of a bucket in the workspace; yields what it returns."""

    def __init__(self, planned: PlannedBuild, write: Callable[..., Any]) -> None:
        self._planned, self._write = planned, write

    def process(self, element: Bucket, *sides: Any) -> Iterator[Any]:
        """Takes one bucket, and what the function needs besides."""
        with leaving_error(self._planned.workspace):
            yield self._write(self._planned, element[0], rows_of(element[1]), *sides)
