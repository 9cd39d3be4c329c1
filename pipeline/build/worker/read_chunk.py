"""Reads one chunk: rows, keyed and packed by shard, and the analysis' share of them.

A chunk's report is written when it has been read to its end.
"""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.analysis.inputs import AnalysisRows
from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.progress import Progress
from recordmill.pipeline.build.context.rejects import write_rejects
from recordmill.pipeline.build.context.steps import chunk_step
from recordmill.pipeline.build.worker.keyed_rows import keyed_blocks
from recordmill.pipeline.build.worker.packing import Packed, pack
from recordmill.pipeline.build.worker.spill import ImageSpill
from recordmill.pipeline.dataset.atomic_files import write_report
from recordmill.pipeline.sources.base import Chunk
from recordmill.pipeline.sources.rejects import Reject


class ChunkReader:
    """Reads chunks, one at a time."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._analysis = AnalysisRows(context)

    def read(self, chunk: Chunk) -> Iterator[tuple[int, Packed] | pa.RecordBatch]:
        """Gives packed rows with their groups, and record batches for the analysis."""
        context = self._context
        step = chunk_step(chunk.index)
        progress = Progress(context.path("progress"), step)
        positions, duplicates, rejects, groups, waiting = 0, 0, list[Reject](), Counter[int](), list[pa.Table]()
        with ImageSpill(self._context.path("scratch")) as spill:
            for rows, bad, dropped, covered in keyed_blocks(context, context.decisions, chunk):
                duplicates += dropped
                positions += covered
                rejects += bad
                groups.update(rows["@group"].to_pylist())
                waiting.append(self._spilled(self._unbuilt(rows), spill))
                progress.add(read=len(bad) + dropped, refused=len(bad), left_out=dropped)
                for piece in self._analysis.pieces(rows):
                    if context.export is None:
                        yield from self._analysis.batches(piece)
                    progress.add(read=piece.num_rows)
                if sum(table.nbytes for table in waiting) >= self._context.pack_bytes:
                    yield from self._pack(waiting)
                    waiting = []
        yield from self._pack(waiting)
        progress.add(chunks=1)
        progress.write()
        report = {
            "read": groups.total() + len(rejects) + duplicates,
            "positions": positions,
            "rejected": len(rejects),
            "duplicates": duplicates,
            "rejects": write_rejects(context.path("rejects"), step, rejects),
            "groups": {str(group): count for group, count in sorted(groups.items())},
        }
        write_report(context.path("reports"), step, report)

    def _unbuilt(self, rows: pa.Table) -> pa.Table:
        """Keeps the rows whose shards are still to be built, with the columns that these need."""
        groups, rows = self._context.groups, rows.drop_columns(["@unit"])
        return rows if groups is None else rows.filter(pc.is_in(rows["@group"], pa.array(sorted(groups), pa.int64())))

    def _spilled(self, rows: pa.Table, spill: ImageSpill) -> pa.Table:
        """Moves images' bytes out of the rows, unless the runner shuffles the rows themselves."""
        if self._context.inline:
            return rows
        moved: dict[str, pa.ChunkedArray] = {}
        for name in self._context.images():
            column = self._context.schema.features[name]
            if column not in moved:
                moved[column] = spill.move(rows[name])
            rows = rows.set_column(rows.schema.get_field_index(name), name, moved[column])
        return rows

    def _pack(self, tables: list[pa.Table]) -> Iterator[tuple[int, Packed]]:
        if tables:
            yield from pack(pa.concat_tables(tables), None if self._context.inline else self._context.path("scratch"))
