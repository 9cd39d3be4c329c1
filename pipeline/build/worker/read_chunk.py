"""Reads a chunk into rows, keyed and packed by shard; and looks at one: the sums of its rows for every summary.

Reading a chunk to its end writes its report. On the local runner a look reads the rows first: it packs them on its way,
and leaves a list of the packed rows, to avoid a second read.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context import reports
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import LOOK_REPORTS, ChunkReport, Progress, chunk_step, write_report
from recordmill.pipeline.build.summaries.look import FOLDER, Look, Sums
from recordmill.pipeline.build.summaries.summary import Summary, fold_of
from recordmill.pipeline.build.worker.keyed_rows import keyed_blocks
from recordmill.pipeline.build.worker.packing import ImageSpill, Packed, pack
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.base.bounds import REJECTS

OnBlock = Callable[[pa.Table, list[Reject]], Iterator[int]]
"""Looks at a block of keyed rows and its rejects; yields how many rows it has looked at, now and then."""
SizedRows = tuple[int, pa.Table]  # some rows of a block, for the summaries of this `rows_at_once`


class ChunkReader:
    """Reads chunks, one at a time."""

    def __init__(self, planned: PlannedBuild) -> None:
        self._planned, self._groups = planned, planned.groups

    def read(self, chunk: Chunk) -> Iterator[tuple[int, Packed]]:
        """Returns a chunk's packed rows with their groups."""
        listed = LocalStore(self._planned.scratch).read(_list_name(chunk))
        if listed is None:
            return self._read(chunk, lambda rows, rejects: iter([rows.num_rows]))
        packed = ((group, Packed(**each)) for group, each in json.loads(listed))
        return ((group, each) for group, each in packed if self._groups is None or group in self._groups)

    def look(self, chunk: Chunk, on_block: OnBlock) -> None:
        """Passes a chunk's rows to `on_block`, and packs them for the next job, unless that shuffles them inline."""
        packed = [(group, asdict(each)) for group, each in self._read(chunk, on_block, packs=not self._planned.inline)]
        if not self._planned.inline:
            LocalStore(self._planned.scratch).write(_list_name(chunk), json.dumps(packed).encode())

    def _read(self, chunk: Chunk, on_block: OnBlock, *, packs: bool = True) -> Iterator[tuple[int, Packed]]:
        planned, step = self._planned, chunk_step(chunk.index)
        progress = Progress(planned.progress, step) if packs else look_progress(planned, chunk)
        counts, rejects, groups, waiting = Counter[str](), list[Reject](), Counter[int](), list[pa.Table]()
        images = None if packs else planned.measured_images()
        scratch = None if planned.inline else planned.scratch
        with ImageSpill(planned.scratch) as spill:
            for rows, bad, more in keyed_blocks(planned, chunk, images):
                counts.update(more)
                left_out = more["read"] - rows.num_rows - len(bad)
                rejects += bad
                if len(rejects) > REJECTS.most:
                    raise UserError(f"{chunk.file}: {REJECTS.beyond(len(rejects))}: are these its rows?")
                if packs:
                    groups.update(rows["@group"].to_pylist())
                    waiting.append(self._spilled(rows.drop_columns(["@unit"]), spill))
                progress.add(read=len(bad) + left_out, refused=len(bad), left_out=left_out)
                for count in on_block(rows, bad):
                    progress.add(read=count)
                if sum(table.nbytes for table in waiting) >= planned.pack_bytes:
                    yield from pack(waiting, scratch)
                    waiting = []
        yield from pack(waiting, scratch)
        progress.add(chunks=1)
        progress.write()
        folder, bad_rows = ("reports", "rejects") if packs else (LOOK_REPORTS, LOOK_REPORTS)
        left = reports.write_rejects(planned.workspace, f"{bad_rows}/{step}", rejects)
        report = ChunkReport(**counts, rejects=left, groups=dict(sorted(groups.items())))
        write_report(planned.workspace, f"{folder}/{step}", vars(report))

    def _spilled(self, rows: pa.Table, spill: ImageSpill) -> pa.Table:
        """Keeps the rows of unfinished shards; moves images' bytes out of them, unless the runner shuffles the rows."""
        planned, groups = self._planned, self._groups
        if groups is not None:
            rows = rows.filter(pc.is_in(rows["@group"], pa.array(sorted(groups), pa.int64())))
        moved: dict[str, pa.ChunkedArray] = {}
        for name in [] if planned.inline else [name for name, each in planned.images().items() if each.is_reference]:
            column = planned.schema.features[name]
            if column not in moved:
                moved[column] = spill.move(rows[name])
            rows = rows.set_column(rows.schema.get_field_index(name), name, moved[column])
        return rows


def look_progress(planned: PlannedBuild, chunk: Chunk) -> Progress:
    """Returns the counters, prefixed with `look_`, of a look at a chunk that the next job reads again."""
    return Progress(planned.progress, f"look-{chunk_step(chunk.index)}", prefix="look_")


def _list_name(chunk: Chunk) -> str:
    return f"packed-{chunk.index:06d}.json"


class LookReader:
    """Looks at chunks, one at a time."""

    def __init__(self, look: Look) -> None:
        self._look = look
        for summary in look.summaries:
            summary.prepare()
        self._reader = ChunkReader(look.planned)

    def read(self, chunk: Chunk) -> Sums:
        """Returns a chunk's sums; reuses those of an earlier attempt."""
        look, planned = self._look, self._look.planned
        if (kept := look.read_sums(chunk)) is None:
            sums = ChunkSums(look, chunk)
            self._reader.look(chunk, sums.add)
            return sums.write()
        report = reports.read_report(planned.workspace, f"{LOOK_REPORTS}/{chunk_step(chunk.index)}")
        if planned.inline and report is not None:
            look_progress(planned, chunk).add(read=report["read"], refused=report["rejected"], chunks=1)
        return kept


class ChunkSums:
    """The sums of one chunk."""

    def __init__(self, look: Look, chunk: Chunk) -> None:
        self._look, self._chunk = look, chunk
        self._by_size = dict[int, list[Summary[Any]]]()
        for summary in look.summaries:
            self._by_size.setdefault(summary.rows_at_once, []).append(summary)
        self._sums = {each.name: fold_of(each) for summaries in self._by_size.values() for each in summaries}
        self._missing: list[Reject] = []  # of missing files, which may come back

    def add(self, rows: pa.Table, rejects: list[Reject]) -> Iterator[int]:
        """Adds a block of keyed rows and its rejects; yields how many rows are done, now and then."""
        self._missing += [reject for reject in rejects if reject.path]
        if not self._by_size:
            yield rows.num_rows
            return
        slowest = min(self._by_size)
        pieces = ((size, rows.slice(start, size)) for size in self._by_size for start in range(0, len(rows), size))
        for (size, piece), tables, found in in_order(self._sum, pieces, self._look.planned.threads):
            for name, table in tables.items():
                self._sums[name].add(table)
            self._missing += [reject for reject in found if reject.path]
            if size == slowest:
                yield len(piece)

    def _sum(self, piece: SizedRows) -> tuple[SizedRows, Sums, list[Reject]]:
        (size, rows), rejects = piece, list[Reject]()
        return piece, {each.name: each.of_rows(rows, rejects) for each in self._by_size[size]}, rejects

    def write(self) -> Sums:
        """Writes the sums, without empty ones, after the rejects of missing files, which may come back."""
        look = self._look
        reports.write_rejects(look.planned.workspace, f"{FOLDER}/{chunk_step(self._chunk.index)}", self._missing)
        added = {name: fold.sum() for name, fold in self._sums.items()}
        sums = {name: table for name, table in added.items() if table}
        look.write_sums(self._chunk, sums)
        return sums
