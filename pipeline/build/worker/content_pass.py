"""The pass over the data that `duplicates` needs where it leaves rows out, moves or refuses them.

Each chunk writes the contents of its rows (`duplicates.contents`), for which images are read. The driver finds the
duplicates and writes the files that workers read: the rows to leave out, or the units to move to another split.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.pipeline.build.context.row_schema import RowDecisions
from recordmill.pipeline.build.duplicates.choice import choose
from recordmill.pipeline.build.duplicates.contents import (
    Contents,
    content_features,
    content_table,
    digest_rows,
    file_digests,
)
from recordmill.pipeline.build.images.read import ImageReader, Loaded, image_reader, kept, perceptual_hash_of
from recordmill.pipeline.build.worker.pre_passes import FIRST, PrePass
from recordmill.pipeline.sources.base import Chunk
from recordmill.pipeline.sources.rejects import Reject
from recordmill.transforms.contract.image_header import ImageError, check_header
from recordmill.transforms.contract.kinds.image import ImageOptions

PLACE = ("@source", "@chunk", "@position")


class Row(NamedTuple):
    """A row's images by feature: the digests of their files, and their perceptual hashes."""

    files: Mapping[str, bytes]
    looks: Mapping[str, bytes]


class ContentPass(PrePass[RowDecisions]):
    """Decides on the duplicates by the contents of all rows."""

    name = "contents"

    @cached_property
    def _names(self) -> list[str]:
        return content_features(self.planned.features, self.planned.schema)

    @cached_property
    def _images(self) -> dict[str, ImageOptions]:
        return {name: options for name, options in self.planned.images().items() if name in self._names}

    @cached_property
    def _hashed(self) -> list[str]:
        return self.planned.hashed_images()

    @cached_property
    def _reader(self) -> ImageReader:
        return image_reader(self.planned)

    def summarize(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Gives the contents, without rows whose images cannot be read, which will be rejects."""
        loaded: list[Row] = [Row({}, {})] * rows.num_rows
        if self._images:
            with ThreadPoolExecutor(self.planned.threads) as pool:
                references = rows.select([*PLACE, *self._images]).to_pylist()
                read = list(pool.map(partial(self._row, rejects), references))
            rows = rows.filter(pa.array([row is not None for row in read], pa.bool_()))
            loaded = [row for row in read if row is not None]
        files = {name: [row.files[name] for row in loaded] for name in self._images}
        looks = {name: [row.looks[name] for row in loaded] for name in self._hashed}
        table = content_table(rows, digest_rows(rows, self._names, files), looks)
        for name in ("unit", "chunk", "position"):
            table = table.append_column(name, rows[f"@{name}"])
        return table

    def _row(self, rejects: list[Reject], row: Mapping[str, Any]) -> Row | None:
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
            rejects.append(Reject(row["@chunk"], row["@position"], error.reason, error.message, path=error.path))
            return None
        return Row(files, looks)

    def _load(self, source: int, reference: bytes, options: ImageOptions) -> Loaded:
        """Loads an image as its shard will; decodes nothing where perceptual hashes do not matter."""
        if self._hashed:
            return self._reader.load(source, reference, options)
        data = self._reader.read(source, reference, options.max_bytes)
        check_header(data, options.max_pixels)
        return Loaded(data, None, data, 0)

    def result(self, chunks: Sequence[Chunk]) -> RowDecisions:
        """Decides, after the decisions of earlier passes. Raises: as `choose`."""
        contents = Contents([self.file(chunk) for chunk in chunks])
        return choose(self.planned, self.decisions, chunks, contents, self.planned.path(FIRST))
