"""Looks at one chunk: the sums of its rows for every summary; and on the local runner the rows themselves, packed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.pipeline.build.context.rejects import write_rejects
from recordmill.pipeline.build.context.steps import LOOK_REPORTS, chunk_step
from recordmill.pipeline.build.context.workspace import read_report
from recordmill.pipeline.build.summaries.base import Summary
from recordmill.pipeline.build.summaries.fold import Fold
from recordmill.pipeline.build.summaries.look import Look, Sums
from recordmill.pipeline.build.worker.read_chunk import ChunkReader, look_progress
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.source_reader import Chunk


class LookReader:
    """Looks at chunks, one at a time."""

    def __init__(self, look: Look) -> None:
        self._look = look
        for summary in look.summaries:
            summary.prepare()
        self._reader = ChunkReader(look.planned, look.decisions)

    def read(self, chunk: Chunk) -> Sums:
        """Returns a chunk's sums; does not read rows whose sums an earlier attempt wrote."""
        look = self._look
        if (kept := look.read_sums(chunk)) is not None:
            self._count_kept(chunk)
            return kept
        sums = ChunkSums(look, chunk)
        self._reader.look(chunk, sums.add)
        return sums.write()

    def _count_kept(self, chunk: Chunk) -> None:
        planned = self._look.planned
        report = read_report(planned.workspace, f"{LOOK_REPORTS}/{chunk_step(chunk.index)}") if planned.inline else None
        if report is not None:
            counts = {"look_read": report["read"], "look_refused": report["rejected"], "look_chunks": 1}
            look_progress(planned, chunk).add(**counts)


class Piece(NamedTuple):
    """Some rows of a block, for the summaries that take so many at once."""

    size: int
    rows: pa.Table


class ChunkSums:
    """The sums of one chunk."""

    def __init__(self, look: Look, chunk: Chunk) -> None:
        self._look, self._chunk = look, chunk
        self._by_size = dict[int, list[Summary[Any]]]()
        for summary in (summary for summary in look.summaries if summary.sees(chunk)):
            self._by_size.setdefault(summary.rows_at_once, []).append(summary)
        self._sums = {each.name: Fold(each) for summaries in self._by_size.values() for each in summaries}
        self._rejects: list[Reject] = []

    def add(self, rows: pa.Table, rejects: list[Reject]) -> Iterator[int]:
        """Adds a block of keyed rows and the rejects that it had; yields how many rows are done, now and then."""
        self._rejects += rejects
        if not self._by_size:
            yield rows.num_rows
            return
        slowest = min(self._by_size)
        pieces = (Piece(size, rows.slice(start, size)) for size in self._by_size for start in range(0, len(rows), size))
        for piece, tables, found in in_order(self._sum, pieces, self._look.planned.threads):
            for name, table in tables.items():
                self._sums[name].add(table)
            self._rejects += found
            if piece.size == slowest:
                yield len(piece.rows)

    def _sum(self, piece: "Piece") -> tuple["Piece", Sums, list[Reject]]:
        rejects = list[Reject]()
        return piece, {each.name: each.of_rows(piece.rows, rejects) for each in self._by_size[piece.size]}, rejects

    def write(self) -> Sums:
        """Writes the sums, and before them the rejects of rows whose file could not be read, which may be back.

        Returns the sums of the summaries that have any.
        """
        look, away = self._look, [reject for reject in self._rejects if reject.path]
        write_rejects(look.planned.workspace, f"{look.folder}/{chunk_step(self._chunk.index)}", away)
        added = {name: fold.sum() for name, fold in self._sums.items()}
        sums = {name: table for name, table in added.items() if table}
        look.write_sums(self._chunk, sums)
        return sums
