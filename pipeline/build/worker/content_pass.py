"""The pass over the data that `duplicates` needs where it leaves rows out, moves or refuses them: before all others.

Each chunk writes the contents of its rows (`duplicates.contents`), for which images are read. The driver finds the
duplicates and writes the files that workers read: the rows to leave out, or the units to move to another split.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reject_files import write_rejects
from recordmill.pipeline.build.context.row_schema import RowDecisions
from recordmill.pipeline.build.context.steps import chunk_step
from recordmill.pipeline.build.duplicates.choice import choose
from recordmill.pipeline.build.duplicates.contents import (
    Contents,
    content_features,
    content_table,
    digest_rows,
    file_digests,
)
from recordmill.pipeline.build.images.read import Loaded, image_reader, kept, perceptual_hash_of
from recordmill.pipeline.build.worker.pre_passes import FIRST, pass_result_files, rows_of, write_pass_result
from recordmill.pipeline.dataset.atomic_files import write_report
from recordmill.pipeline.sources.base import Chunk
from recordmill.pipeline.sources.rejects import Reject
from recordmill.transforms.contract.image_header import ImageError, check_header
from recordmill.transforms.contract.kinds.image import ImageOptions

PLACE = ("@source", "@chunk", "@position")


class Row(NamedTuple):
    """A row's images by feature: the digests of their files, and their perceptual hashes."""

    files: Mapping[str, bytes]
    looks: Mapping[str, bytes]


class ContentReader:
    """Reads the contents of a chunk's rows."""

    name = "contents"

    def __init__(self, planned: PlannedBuild, decisions: RowDecisions) -> None:
        self._planned, self._decisions = planned, decisions
        self._names = content_features(planned.features, planned.schema)
        self._images = {name: options for name, options in planned.images().items() if name in self._names}
        self._hashed = planned.hashed_images()
        self._reader = image_reader(planned)
        self._unreadable: list[Reject] = []

    def read(self, chunk: Chunk) -> None:
        """Writes their table, without rows whose images cannot be read, which will be rejects."""
        self._unreadable = list[Reject]()
        tables = map(self._contents, rows_of(self._planned, self._decisions, chunk, with_units=True))
        write_pass_result(self._planned, self.name, chunk, list(tables))
        if self._unreadable:  # they may only be away: the next attempt looks whether they are back
            step = f"first-{chunk_step(chunk.index)}"
            name = write_rejects(self._planned.path("rejects"), step, self._unreadable)
            write_report(self._planned.path("reports"), step, {"rejects": name})

    def _contents(self, rows: pa.Table) -> pa.Table:
        loaded: list[Row] = [Row({}, {})] * rows.num_rows
        if self._images:
            with ThreadPoolExecutor(self._planned.threads) as pool:
                read = list(pool.map(self._row, rows.select([*PLACE, *self._images]).to_pylist()))
            rows = rows.filter(pa.array([row is not None for row in read], pa.bool_()))
            loaded = [row for row in read if row is not None]
        files = {name: [row.files[name] for row in loaded] for name in self._images}
        looks = {name: [row.looks[name] for row in loaded] for name in self._hashed}
        table = content_table(rows, digest_rows(rows, self._names, files), looks)
        for name in ("unit", "chunk", "position"):
            table = table.append_column(name, rows[f"@{name}"])
        return table

    def _row(self, row: Mapping[str, Any]) -> Row | None:
        """Reads a row's images; gives None for a row that will be a reject."""
        files, looks = dict[str, bytes](), dict[str, bytes]()
        try:
            for name, options in self._images.items():
                references = kept(row[name], options)
                images: Iterator[Loaded] = (self._load(row["@source"], reference, options) for reference in references)
                if name in self._hashed:  # one image; a sequence is never hashed, and read one by one
                    loaded = list(images)
                    looks[name] = perceptual_hash_of(loaded, options.max_pixels)
                    images = iter(loaded)
                files[name] = file_digests(image.source for image in images)
        except ImageError as error:
            if error.path is not None:
                reject = Reject(row["@chunk"], row["@position"], error.reason, error.message, path=error.path)
                self._unreadable.append(reject)
            return None
        return Row(files, looks)

    def _load(self, source: int, reference: bytes, options: ImageOptions) -> Loaded:
        """Loads an image as its shard will; decodes nothing where perceptual hashes do not matter."""
        if self._hashed:
            return self._reader.load(source, reference, options)
        data = self._reader.read(source, reference, options.max_bytes)
        check_header(data, options.max_pixels)
        return Loaded(data, None, data, 0)


def decide_duplicates(planned: PlannedBuild, chunks: Sequence[Chunk]) -> RowDecisions:
    """Decides what becomes of the duplicates, from the files of `ContentReader`. Raises: as `choose`."""
    contents = Contents(pass_result_files(planned, ContentReader.name, chunks))
    return choose(planned, chunks, contents, planned.path(FIRST))
