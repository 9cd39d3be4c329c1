"""A folder of images as a source, in the convention of Hugging Face's ImageFolder.

    source: {format: image_folder, path: images/}

With metadata files (`metadata.csv`, `.tsv`, `.jsonl`, `.parquet`) anywhere in the folder, their rows are the rows, read
by their format's reader. Without them every image is a row, and files beside it may be captions:
`formats.image_captions`.

Columns from an image's path: `image`; `file_name`, the path in the folder; `label`, the name of its own folder;
`split`, the name of the first folder. Metadata's own `label` and `split` take precedence. The default key is the path
in Unicode's composed form (NFC). Hidden files and folders are ignored.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from posixpath import splitext
from typing import Any

from recordmill.pipeline.sources.columns import Columns, required
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats.csv import CsvReader
from recordmill.pipeline.sources.formats.image_captions import Listing, captions_of, plan_listing, read_listing
from recordmill.pipeline.sources.formats.image_fields import FILE_NAME, ImageFields, paths_of, with_paths
from recordmill.pipeline.sources.formats.jsonl import JsonLinesReader
from recordmill.pipeline.sources.formats.parquet import ParquetReader
from recordmill.pipeline.sources.globs import escape, without_slash
from recordmill.pipeline.sources.options import Csv, ImageFolder, JsonLines, Parquet, Tsv
from recordmill.pipeline.sources.paths import check_names, is_image, join, note, planning
from recordmill.pipeline.sources.source_reader import Block, Chunk, Plan, SourceError, SourceReader
from recordmill.pipeline.sources.table import TableReader, unused

FORMATS: Mapping[str, Callable[[str], TableReader[Any]]] = {
    "csv": lambda path: CsvReader(Csv(format="csv", path=path)),
    "tsv": lambda path: CsvReader(Tsv(format="tsv", path=path)),
    "jsonl": lambda path: JsonLinesReader(JsonLines(format="jsonl", path=path)),
    "parquet": lambda path: ParquetReader(Parquet(format="parquet", path=path)),
}
NAMES = tuple(f"metadata.{name}" for name in FORMATS)
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar")


@dataclass(frozen=True)
class MetadataRows:
    """The work of a metadata file's chunk."""

    work: Any
    """The chunk's work for its format's reader."""
    fields: ImageFields


class ImageFolderReader(SourceReader[ImageFolder]):
    """Reads a folder of images."""

    def root(self, files: Files) -> str:
        return without_slash(self.source.path)

    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the images, or reads their paths in metadata. `rows` is exact."""
        with planning(self.source.path):
            root, listed = self.root(files), self._listed(files)
            metadata = metadata_files(listed, root)
            if metadata:
                return self._plan_metadata(listed, metadata, files, columns, chunk_bytes)
            return plan_listing(self.source.path, root, listed, files, columns, chunk_bytes)

    def _plan_metadata(
        self, found: Sequence[FileInfo], metadata: list[FileInfo], files: Files, columns: Columns, chunk_bytes: int
    ) -> Plan:
        """Plans the metadata files' rows, reading all image paths: `rows` is exact.

        Raises: SourceError: a file is unreadable, names no image or has no row, or an asked column is missing.
        """
        root = self.root(files)
        names = {file.path: _cut(file, root, files, {}, (), file.bytes).names for file in metadata}
        every = list(dict.fromkeys(chain.from_iterable(names.values())))
        fields = ImageFields.of(every)
        for file_path, found_names in names.items():  # each file must name images, by `file_name` if any does
            if fields.of_path or not ImageFields.of(found_names).columns:
                check_names(join(root, file_path), [FILE_NAME], found_names)
        there = dict.fromkeys([*every, *fields.columns, *fields.of_path])
        check_names(self.source.path, required(columns), there, " in its metadata")
        chunks = [
            replace(chunk, work=MetadataRows(chunk.work, fields))
            for file in metadata
            for chunk in _cut(file, root, files, fields.asked(columns), names[file.path], chunk_bytes).chunks
        ]
        count, paths = _count(chunks, root, files, fields)
        if not count:
            raise SourceError(f"{join(root, metadata[0].path)} holds no row")
        used = {file.path for file in metadata} | paths.keys()
        inputs = FileList(file for file in found if file.path in used)
        left = [file.path for file in found if file.path not in used]
        read = dict.fromkeys([*fields.mains, *map(fields.field, columns)])
        notes = _notes(paths, left, metadata) + unused(every, read)
        others = [name for name in every if name not in fields.fields]
        found_columns = list(dict.fromkeys([*fields.columns, *others, *fields.of_path]))
        total = sum(file.bytes for file in inputs)
        images = total - sum(file.bytes for file in metadata)
        return Plan(chunks, count, total, inputs, notes, True, found_columns, fields.of_path, referred_bytes=images)

    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        """Lists images and captions; with metadata, which may name any file, all files."""
        listed = self._listed(files)
        if metadata_files(listed, self.root(files)):
            return listed
        captions = {file.path for file in captions_of((file for file in listed if is_image(file.path)), listed)}
        return FileList(file for file in listed if is_image(file.path) or file.path in captions)

    def _listed(self, files: Files) -> FileList:
        path, root = self.source.path, self.root(files)
        if not files.is_folder(path):
            if not files.match(escape(path)):
                raise SourceError(f"{path}: no such folder")
            if path.lower().endswith(ARCHIVES):
                raise SourceError(f"{path} is an archive: unpack it, and give the folder")
            folder = posixpath.dirname(path) or "."
            raise SourceError(f"{path} is a file: give its folder, `path: {folder}`")
        below = files.match(f"{escape(root)}/**")
        return FileList(FileInfo(file.path[len(root) + 1 :], *file[1:]) for file in below)

    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads a chunk's rows, without images; the default key is the path in `file_name`, else all fields' paths."""
        root, work = self.root(files), chunk.work
        if isinstance(work, Listing):
            yield from read_listing(chunk, root, files, columns, key)
            return
        asked, inner = work.fields.asked(columns), replace(chunk, work=work.work)
        for block in _table(root, chunk.file).read(inner, files, asked, work.fields.asked_key(key, asked)):
            yield with_paths(chunk, block, columns, work.fields, key)

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """Returns a listing's image, or the metadata file and the row in the chunk as its format counts."""
        if isinstance(chunk.work, Listing):
            return super().locate(chunk, position)
        table = _table(without_slash(self.source.path), chunk.file)
        return table.locate(replace(chunk, work=chunk.work.work), position)


def metadata_files(found: Sequence[FileInfo], root: str) -> list[FileInfo]:
    """Finds the metadata files. Raises: SourceError: a folder has two."""
    metadata = [file for file in found if file.path.endswith(NAMES) and posixpath.basename(file.path) in NAMES]
    by_folder = dict[str, str]()
    for file in metadata:
        folder, name = posixpath.split(file.path)
        if folder in by_folder:
            raise SourceError(f"{posixpath.join(root, folder)} holds both {by_folder[folder]} and {name}; keep one")
        by_folder[folder] = name
    return metadata


def _table(root: str, path: str) -> TableReader[Any]:
    """Returns a metadata file's reader; its glob's root is the folder of images."""
    name = posixpath.basename(path)
    return FORMATS[splitext(name)[1][1:]](f"{escape(root)}/**/{name}")


def _cut(file: FileInfo, root: str, files: Files, asked: Columns, names: Sequence[str], chunk_bytes: int) -> Plan:
    """Plans a file, which may be empty, or lack another's columns."""
    there = {name: column if name in names else replace(column, optional=True) for name, column in asked.items()}
    return _table(root, file.path).cut(files, root, [file], there, chunk_bytes) if file.bytes else Plan([], 0)


def _count(chunks: list[Chunk], root: str, files: Files, fields: ImageFields) -> tuple[int, Counter[str]]:
    """Counts the rows, and the rows identified by each image; 0 for the other images."""
    count, rows = 0, Counter[str]()
    for chunk in chunks:
        inner = replace(chunk, work=chunk.work.work)
        for block in _table(root, chunk.file).read(inner, files, fields.references(), ()):
            count += block.table.num_rows + len(block.rejects)
            for field in fields.fields:
                for path in chain.from_iterable(paths_of(block.table[field])):
                    rows[path or ""] += field in fields.mains
    return count, rows


def _notes(paths: Counter[str], left: list[str], metadata: list[FileInfo]) -> list[str]:
    where = metadata[0].path if len(metadata) == 1 else "any metadata file"
    return [
        *note("images of several rows", sorted(path for path, count in paths.items() if count > 1)),
        *note(f"skipped images without a row in {where}", [path for path in left if is_image(path)]),
        *note("skipped other files", [path for path in left if not is_image(path)]),
    ]
