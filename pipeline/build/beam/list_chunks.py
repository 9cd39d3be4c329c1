"""Lists the chunks of a job: the graph has their number, the workers read them in the workspace."""

from collections.abc import Iterable, Sequence
from functools import partial

import apache_beam as beam

from recordmill.pipeline.build.context.chunk_pages import ChunkPages
from recordmill.pipeline.build.context.failures import leaving_error
from recordmill.pipeline.build.context.workspace import Workspace
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
