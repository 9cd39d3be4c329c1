"""A folder of images as a source, in the convention of Hugging Face's ImageFolder.

    source: {format: image_folder, path: images/}

With `metadata.csv` or `metadata.jsonl` in the folder or in folders below it, their rows are the rows: `file_name` is
the image's path relative to the metadata file's folder, the other columns are as they are named. Images without a row
are left out, and counted. What a row of JSON or CSV is: `pipeline.sources.json_parser`, `pipeline.sources.csv_rows`.

Without them every image is a row, and `label` is the name of the folder that it lies in; an image in the root has none.

Always there: `image` and `file_name`, the path relative to the root; and `label`, if the metadata has no column of that
name. A row's default key is that path in Unicode's composed form (NFC). Hidden files and folders are not looked at.
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from pipeline.columns import Columns, ColumnType
from pipeline.globs import escape
from pipeline.sources.base import Block, Chunk, FileInfo, Files, Plan, Source, SourceError
from pipeline.sources.cells import typed_column
from pipeline.sources.checks import RawRows, check_column, check_columns, make_block
from pipeline.sources.image_metadata import (
    CSV,
    FILE_NAME,
    IMAGE,
    JSONL,
    LABEL,
    metadata_chunks,
    metadata_columns,
    metadata_files,
    read_metadata,
)
from pipeline.sources.paths import SUFFIXES, check_names, is_image, join, path_key, planning

ROW_BYTES = 2 << 10  # 2 KiB: what an image's row counts as when a listing is cut, so that 8 MiB are 4,096 images
BLOCK_ROWS = 16_384
SHOWN_FILES = 3


@dataclass(frozen=True)
class Listing:
    """What a chunk of a folder without metadata is: the images' paths."""

    names: tuple[str, ...]


class ImageFolder(Source):
    """A folder of images: in folders by class, or with metadata files."""

    format: Literal["image_folder"]
    path: str = Field(min_length=1)
    """The folder."""

    def root(self, files: Files) -> str:
        """The folder."""
        return self.path.rstrip("/")

    def plan(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the images; where there is metadata, reads its paths, so that `rows` is exact.

        Raises:
            SourceError: there is no such folder, no image or no row in it, or an asked column is nowhere.
        """
        with planning(self.path):
            root = self.root(files)
            if not files.is_folder(self.path):
                raise SourceError(f"{self.path}: no such folder")
            found = [
                FileInfo(file.path[len(root) + 1 :], file.bytes, file.modified)
                for file in files.match(f"{escape(root)}/**")
            ]
            metadata = metadata_files(found, root)
            if metadata:
                return self._plan_metadata(found, metadata, files, columns, chunk_bytes)
            return self._plan_listing(found, columns, chunk_bytes)

    def _plan_listing(self, found: list[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        images = [file for file in found if is_image(file.path)]
        if not images:
            raise SourceError(f"{self.path} holds no {CSV}, no {JSONL} and no image ({', '.join(sorted(SUFFIXES))})")
        check_names(self.path, columns, (IMAGE, FILE_NAME, LABEL), f" and no {CSV} or {JSONL} to give more")
        others = [file.path for file in found if not is_image(file.path)]
        return Plan(_listing_chunks(images, chunk_bytes), len(images), _bytes(images), images, _ignored(others))

    def _plan_metadata(
        self, found: list[FileInfo], metadata: list[FileInfo], files: Files, columns: Columns, chunk_bytes: int
    ) -> Plan:
        names, types = metadata_columns(metadata, self.root(files), files)
        has_label = LABEL in names
        check_names(self.path, columns, dict.fromkeys([*names, *_of_path(has_label)]), " in its metadata")
        types = {name: types[name] for name in columns if name in types}
        chunks = [chunk for file in metadata for chunk in metadata_chunks(file, types, has_label, chunk_bytes)]
        rows, paths = self._rows(chunks, files)
        if not rows:
            raise SourceError(f"{join(self.root(files), metadata[0].path)} holds no row")
        paths |= {file.path for file in metadata}
        inputs = [file for file in found if file.path in paths]
        left = [file.path for file in found if file.path not in paths]
        return Plan(chunks, rows, _bytes(inputs), inputs, _without_row(left, metadata) + _ignored(left))

    def _rows(self, chunks: list[Chunk], files: Files) -> tuple[int, set[str]]:
        """Counts the rows of metadata and gathers the paths of their images."""
        rows, paths = 0, set[str]()
        for chunk in chunks:
            for block in self.read(chunk, files, {IMAGE: ColumnType.PATH}, ()):
                rows += block.table.num_rows + len(block.rejects)
                paths.update(block.table[IMAGE].to_pylist())
        return rows, paths

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads a chunk's rows; the images themselves are not looked at.

        Raises:
            OSError: the metadata file cannot be read any more.
        """
        if isinstance(chunk.work, Listing):
            for start in range(0, len(chunk.work.names), BLOCK_ROWS):
                names = chunk.work.names[start : start + BLOCK_ROWS]
                raw = RawRows({}, np.arange(start, start + len(names)), None, {}, [], len(names))
                yield _block(chunk, raw, {}, names, columns, key)
            return
        of_path = _of_path(chunk.work.has_label)
        asked = {IMAGE: ColumnType.PATH} | {name: kind for name, kind in columns.items() if name not in of_path}
        for raw in read_metadata(chunk, self.root(files), files, asked):
            checked = check_columns(raw, asked, posixpath.dirname(chunk.file))
            yield _block(chunk, raw, checked, checked.pop(IMAGE).to_pylist(), columns, key)

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """The image of a listing, or the metadata file and the 1-based line inside the chunk."""
        if isinstance(chunk.work, Listing):
            return chunk.work.names[position], None
        return chunk.file, position + 1


def _block(
    chunk: Chunk,
    raw: RawRows,
    checked: dict[str, pa.Array],
    paths: Sequence[str | None],
    columns: Columns,
    key: Sequence[str] | None,
) -> Block:
    """Adds the columns that come of the images' paths (None where a path is bad), and the keys."""
    for name in columns:
        if name not in checked:  # it comes of the path
            cells = [path and _folder_name(path) for path in paths] if name == LABEL else paths
            values = typed_column(name, columns[name], cells, raw.faults)
            checked[name] = check_column(name, columns[name], values, "", raw.faults)
    keys = pa.array([path and path_key(path) for path in paths], pa.binary()) if key is None else None
    return make_block(chunk, raw, {name: checked[name] for name in columns}, keys, key)


def _of_path(has_label: bool) -> tuple[str, ...]:
    """The columns that come of an image's path."""
    return (IMAGE, FILE_NAME) if has_label else (IMAGE, FILE_NAME, LABEL)


def _folder_name(path: str) -> str | None:
    return posixpath.basename(posixpath.dirname(path)) or None


def _bytes(inputs: list[FileInfo]) -> int:
    return sum(file.bytes for file in inputs)


def _listing_chunks(images: list[FileInfo], chunk_bytes: int) -> list[Chunk]:
    parts = -(-len(images) * ROW_BYTES // chunk_bytes)
    bounds = [len(images) * part // parts for part in range(parts + 1)]
    cuts = [images[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
    return [Chunk(0, 0, "", _bytes(cut), Listing(tuple(file.path for file in cut))) for cut in cuts if cut]


def _without_row(left: list[str], metadata: list[FileInfo]) -> list[str]:
    images = [path for path in left if is_image(path)]
    where = metadata[0].path if len(metadata) == 1 else "any metadata file"
    return [f"images without a row in {where}, left out: {_named(images)}"] if images else []


def _ignored(left: list[str]) -> list[str]:
    """Files that are no image, or whose names are not UTF-8."""
    others = [path for path in left if not is_image(path)]
    return [f"other files, left out: {_named(others)}"] if others else []


def _named(paths: list[str]) -> str:
    """A count and the first few names."""
    names = ", ".join(path.encode("utf-8", "replace").decode() for path in paths[:SHOWN_FILES])
    return f"{len(paths):,} ({names}{', …' if len(paths) > SHOWN_FILES else ''})"
