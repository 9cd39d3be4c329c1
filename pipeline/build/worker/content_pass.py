"""The pass over the data that `duplicates` needs where it leaves rows out, moves or refuses them: before all others.

Each chunk leaves the contents of its rows (`duplicates.contents`); pictures are read for it. The driver finds
the duplicates and leaves what workers need to know: the rows that are left out, or what goes to another split.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.pipeline.build.context.build_context import Work
from recordmill.pipeline.build.context.reject_files import write_rejects
from recordmill.pipeline.build.context.steps import chunk_step
from recordmill.pipeline.build.duplicates.choice import choose
from recordmill.pipeline.build.duplicates.contents import (
    Contents,
    content_features,
    content_table,
    digest_rows,
    file_digests,
)
from recordmill.pipeline.build.images.read import Loaded, kept, look_of, pictures_of
from recordmill.pipeline.build.worker.pre_passes import FIRST, leave, left_files, rows_of
from recordmill.pipeline.dataset.atomic_files import write_report
from recordmill.pipeline.sources.base import Chunk
from recordmill.pipeline.sources.rejects import Reject
from recordmill.transforms.contract.image_header import ImageError, check_header

PLACE = ("@source", "@chunk", "@position")


class Row(NamedTuple):
    """Of a row's pictures, by feature, the digests of their files, and how they look."""

    files: Mapping[str, bytes]
    looks: Mapping[str, bytes]


class ContentReader:
    """Reads of a chunk the contents of its rows."""

    what = "contents"

    def __init__(self, work: Work) -> None:
        self._work = replace(work, rows=replace(work.rows, units=True))
        self._names = content_features(work.features, work.rows)
        self._images = {name: options for name, options in work.images().items() if name in self._names}
        self._looks = work.compared_looks()
        self._pictures = pictures_of(work)
        self._unreadable: list[Reject] = []

    def read(self, chunk: Chunk) -> None:
        """Leaves their table; without rows whose pictures cannot be read, which will be rejects."""
        self._unreadable = list[Reject]()
        leave(self._work, self.what, chunk, [self._contents(rows) for rows in rows_of(self._work, chunk)])
        if self._unreadable:  # they may only be away: the next attempt looks whether they are back
            step = f"first-{chunk_step(chunk.index)}"
            name = write_rejects(self._work.path("rejects"), step, self._unreadable)
            write_report(self._work.path("reports"), step, {"rejects": name})

    def _contents(self, rows: pa.Table) -> pa.Table:
        loaded: list[Row] = [Row({}, {})] * rows.num_rows
        if self._images:
            with ThreadPoolExecutor(self._work.threads) as pool:
                read = list(pool.map(self._row, rows.select([*PLACE, *self._images]).to_pylist()))
            rows = rows.filter(pa.array([row is not None for row in read], pa.bool_()))
            loaded = [row for row in read if row is not None]
        files = {name: [row.files[name] for row in loaded] for name in self._images}
        looks = {name: [row.looks[name] for row in loaded] for name in self._looks}
        table = content_table(rows, digest_rows(rows, self._names, files), looks)
        for name in ("unit", "chunk", "position"):
            table = table.append_column(name, rows[f"@{name}"])
        return table

    def _row(self, row: Mapping[str, Any]) -> Row | None:
        """What is found of a row's pictures; None where it will be a reject."""
        files, looks = dict[str, bytes](), dict[str, bytes]()
        try:
            for name, options in self._images.items():
                references = kept(row[name], options)
                several = (self._load(row["@source"], reference, options) for reference in references)
                if name in self._looks:  # of one picture; those of a list are read one after another
                    loaded = list(several)
                    looks[name] = look_of(loaded, options["max_pixels"])
                    several = (one for one in loaded)
                files[name] = file_digests(one.source for one in several)
        except ImageError as error:
            if error.path is not None:
                reject = Reject(row["@chunk"], row["@position"], error.reason, error.message, path=error.path)
                self._unreadable.append(reject)
            return None
        return Row(files, looks)

    def _load(self, source: int, reference: bytes, options: Mapping[str, Any]) -> Loaded:
        """A picture as its shard will load it; where looks do not matter, nothing is decoded."""
        if self._looks:
            return self._pictures.load(source, reference, options)
        data = self._pictures.read(source, reference, options["max_bytes"])
        check_header(data, options["max_pixels"])
        return Loaded(data, None, data, 0)


def with_duplicates(work: Work, chunks: Sequence[Chunk]) -> Work:
    """The work with what becomes of the duplicates, of what `ContentReader` left. Raises: as `choose`."""
    contents = Contents(left_files(work, ContentReader.what, chunks))
    return choose(work, chunks, contents, work.path(FIRST))
