"""A folder of images as a source, in the convention of Hugging Face's ImageFolder.

    source: {format: image_folder, path: images/}

With metadata files (`metadata.csv`, `.tsv`, `.jsonl`, `.parquet`) anywhere in the folder, their rows are the rows, read
by their format's reader. Without them every image is a row, with captions in files beside it: of `cat/1.jpg` these are
`cat/1.txt`, the column `text` without one final line break, and `cat/1.json`, an object with a column for each field,
including nested ones (`meta.author`).

Columns from an image's path: `image`; `file_name`, the path in the folder; `label`, the name of its own folder;
`split`, the name of the first folder. Metadata's own `label` and `split` take precedence. The default key is the path
in Unicode's composed form (NFC). Hidden files and folders are ignored.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa

from recordmill.pipeline.sources import formats, source_reader
from recordmill.pipeline.sources.batches import BLOCK_BYTES, by_key, cut, even_parts, pack
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats import image_fields
from recordmill.pipeline.sources.formats.annotated_rows import ImageList, files_at
from recordmill.pipeline.sources.formats.image_fields import FILE_NAME, IMAGE, LABEL, OF_PATH, SPLIT, Beside
from recordmill.pipeline.sources.formats.text import read_texts
from recordmill.pipeline.sources.globs import escape, without_slash
from recordmill.pipeline.sources.options import Csv, ImageFolder, JsonLines, Parquet, TableOptions, Tsv
from recordmill.pipeline.sources.paths import check_names, image_test, is_image, join, note, path_key, planning
from recordmill.pipeline.sources.source_reader import Chunk, Key, Plan, SourceReader, TableReader, TypedRows, WholeFiles
from recordmill.pipeline.sources.typing.arrays import arrow_type, in_groups, python_field, python_names
from recordmill.pipeline.sources.typing.python_values import json_object, typed_objects
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.columns import Column, Columns, ColumnType, required
from recordmill.transforms.images.image_header import SUFFIXES

TEXT, TEXT_ENDING, OBJECT_ENDING = "text", ".txt", ".json"
CAPTION_ENDINGS = (TEXT_ENDING, OBJECT_ENDING)
PEEKED_FILES, BESIDE = 100, "the {} beside the image"


@dataclass(frozen=True)
class Listing(WholeFiles):
    """A chunk: images' paths, and the used files beside them."""

    captions: Mapping[str, WholeFiles]  # used files beside images by ending; empty names without one
    beside: Mapping[str, WholeFiles]  # the same by column
    parts: Sequence[slice]  # of the images, read at once


def captions_of(images: Sequence[FileInfo], others: Iterable[FileInfo]) -> Beside:
    """Pairs images with possible captions by ending: files with the same name except for the ending."""
    captions = {file.path: file for file in others if file.path.endswith(CAPTION_ENDINGS)}
    stems = [posixpath.splitext(file.path)[0] for file in images] if captions else []
    found = {ending: [captions.get(stem + ending) for stem in stems] for ending in CAPTION_ENDINGS}
    return Beside({ending: paired for ending, paired in found.items() if any(paired)})


def _notes(others: Sequence[FileInfo], captions: Beside, used: Beside) -> list[str]:
    notes, read = list[str](), {file.path for file in used.files()}
    alone = [file.path for file in others if file.path.endswith(tuple(used.columns)) and file.path not in read]
    for ending, files in used.columns.items():
        without = files.count(None)
        notes += [f"images without a {ending} beside them: {without:,}"] if without else []
        notes += note(f"{ending} without an image, left out", [path for path in alone if path.endswith(ending)])
    unread = sorted({file.path for file in captions.files()} - read)
    notes += note("unused files beside images", unread)
    left = read.union(alone, unread)
    return notes + note("other files, left out", [file.path for file in others if file.path not in left])


def _json(files: Files, root: str, paths: Sequence[str | None], faults: Faults) -> list[dict[str, Any] | None]:
    """Parses the objects beside images; None for missing and bad ones."""
    what = BESIDE.format(OBJECT_ENDING)
    found = read_texts(files, root, paths, what=what)
    return _good((json_object(data, what) if isinstance(data, bytes) else data for data in found), faults)


def _good(found: Iterable[Any], faults: Faults, column: str | None = None) -> list[Any]:
    """Returns values, None in place of faults, which it adds."""
    values = list(found)
    for row, fault in [(row, value) for row, value in enumerate(values) if isinstance(value, Fault)]:
        faults.setdefault(row, replace(fault, column=column))
        values[row] = None
    return values


def _typed(name: str, column: Column, values: list[Any], root: str, paths: Sequence[str], faults: Faults) -> pa.Array:
    """Makes a column from JSON values; image paths are relative to the JSON file's folder."""
    if column.type is not ColumnType.IMAGE:
        return typed_objects(name, column, values, (root, ""), faults)
    folders = by_key(range(len(paths)), lambda row: posixpath.dirname(paths[row]))
    groups = [
        (rows, partial(typed_objects, name, column, [values[row] for row in rows], (root, folder)))
        for folder, rows in folders.items()
    ]
    return in_groups(len(values), arrow_type(column), groups, faults)


FORMATS: Mapping[str, type[TableOptions]] = {"csv": Csv, "tsv": Tsv, "jsonl": JsonLines, "parquet": Parquet}
NAMES = tuple(f"metadata.{name}" for name in FORMATS)
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar")


class ImageFolderReader(SourceReader[ImageFolder]):
    """Reads a folder of images."""

    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the images, or reads their paths in metadata. `rows` is exact."""
        with planning(self.source.path):
            root, listed = self.root(files), self._listed(files)
            if metadata := metadata_files(listed, root):
                if self.source.beside or self.source.image_list:
                    raise SourceError(f"{metadata[0].path} names all files: leave `beside` and `image_list` out")
                return self._plan_metadata(listed, metadata, files, columns, chunk_bytes)
            return self._plan_listing(listed, files, columns, chunk_bytes)

    def _plan_listing(self, found: Sequence[FileInfo], files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Plans the images among files. Raises: SourceError: no image, or an asked column is missing."""
        source, root, path = self.source, self.root(files), self.source.path
        listed = ImageList.read(files, source.image_list)
        images, rest, beside = Beside.pair(found, source.beside, lambda image: join(root, image) in listed)
        if not images:
            named = " and ".join(f"`{each}`" for each in (source.beside.get(IMAGE), source.image_list) if each)
            raise SourceError(f"{path} holds no metadata file and no image ({named or ', '.join(sorted(SUFFIXES))})")
        lists = files_at(files, root, source.image_list)
        others = [file for file in rest if file not in lists]
        captions = captions_of(images, others)
        texts = [TEXT] * (TEXT_ENDING in captions.columns)
        paths = dict.fromkeys(file.path for file in captions.columns.get(OBJECT_ENDING, ()) if file)
        first = [*paths][:PEEKED_FILES]
        fields = chain.from_iterable(python_names(row or {}) for row in _json(files, root, first, {}))
        names = list(dict.fromkeys([*OF_PATH, *texts, *fields, *source.beside]))
        lacking = OBJECT_ENDING if captions.columns else f"{TEXT_ENDING} or {OBJECT_ENDING}"
        where = f" and neither a metadata file nor {lacking} beside its images"
        if OBJECT_ENDING in captions.columns:
            where = f" in the first {OBJECT_ENDING} files beside its images"
        check_names(path, required(columns), names, where)
        in_captions = {*columns} - {*OF_PATH, *source.beside}
        endings = [TEXT_ENDING] * (TEXT in in_captions) + [OBJECT_ENDING] * bool(in_captions - {*texts})
        used, asked = captions.asked(endings), beside.asked(columns)
        read = {file.path for file in used.files()}
        is_row = image_test(file.path for file in images)
        inputs = FileList(file for file in found if file.path in read or is_row(file.path)) if read else images
        if source.beside or source.image_list:
            inputs = FileList([*images, *(file for file in others if file.path in read), *asked.files(), *lists])
        chunks, sizes = list[Chunk](), np.full(len(images), source_reader.ROW_BYTES, np.int64)
        for files_beside in used.columns.values():
            sizes += [file.bytes if file else 0 for file in files_beside]
        parts = even_parts(sizes, chunk_bytes)
        for part, some in zip(parts, cut(images, parts), strict=True):
            held, paired = used.part(part), asked.part(part)
            size = sum(file.bytes for file in chain(some, held.files(), paired.files()))
            packed, blocks = pack([file.path for file in some]), even_parts(sizes[part], BLOCK_BYTES)
            chunks.append(Chunk(0, 0, "", size, Listing(packed, held.packed(), paired.packed(), blocks)))
        notes = [*_notes(others, captions, used), *beside.notes, *listed.notes()]
        total = sum(chunk.bytes for chunk in chunks)
        referred = total - sum(file.bytes for file in used.files())
        return Plan(chunks, len(images), total, inputs, notes, True, names, OF_PATH, referred_bytes=referred)

    def _plan_metadata(
        self, found: Sequence[FileInfo], metadata: list[FileInfo], files: Files, columns: Columns, chunk_bytes: int
    ) -> Plan:
        """Plans the metadata files' rows, reading all image paths: `rows` is exact. Raises: SourceError."""
        root = self.root(files)
        names = {file.path: _cut(file, root, files, {}, (), file.bytes).names for file in metadata}
        every = list(dict.fromkeys(chain.from_iterable(names.values())))
        fields = image_fields.ImageFields.of(every)
        for file_path, found_names in names.items():  # each file must name images, by `file_name` if any does
            if fields.of_path or not image_fields.ImageFields.of(found_names).columns:
                check_names(join(root, file_path), [FILE_NAME], found_names)
        there = dict.fromkeys([*every, *fields.columns, *fields.of_path])
        check_names(self.source.path, required(columns), there, " in its metadata")
        chunks = [
            replace(chunk, work=(chunk.work, fields))  # its format's own work, and the fields of all files
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
        where = metadata[0].path if len(metadata) == 1 else "any metadata file"
        notes = [
            *note("images of several rows", sorted(path for path, rows in paths.items() if rows > 1)),
            *note(f"images without a row in {where}, left out", [path for path in left if is_image(path)]),
            *note("other files, left out", [path for path in left if not is_image(path)]),
            *source_reader.unused(every, read),
        ]
        others = [name for name in every if name not in fields.fields]
        found_columns = list(dict.fromkeys([*fields.columns, *others, *fields.of_path]))
        total = sum(file.bytes for file in inputs)
        images = total - sum(file.bytes for file in metadata)
        return Plan(chunks, count, total, inputs, notes, True, found_columns, fields.of_path, referred_bytes=images)

    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        """Lists images and captions; with metadata, which may name any file, all files."""
        listed = self._listed(files)
        if self.source.beside or self.source.image_list or metadata_files(listed, self.root(files)):
            return FileList([*listed, *files_at(files, self.root(files), self.source.image_list)])
        is_row = image_test(file.path for file in listed)
        captions = {*captions_of([file for file in listed if is_row(file.path)], listed).files()}
        return FileList(file for file in listed if is_row(file.path) or file in captions)

    def _listed(self, files: Files) -> FileList:
        path, root = self.source.path, self.root(files)
        if not files.is_folder(path):
            if not files.match(escape(path)):
                raise SourceError(f"{path}: no such folder")
            if path.lower().endswith(ARCHIVES):
                raise SourceError(f"{path} is an archive: unpack it, and give the folder")
            folder = posixpath.dirname(path) or "."
            raise SourceError(f"{path} is a file: give its folder, `path: {folder}`")
        return FileList(FileInfo(file.path[len(root) + 1 :], *file[1:]) for file in files.match(f"{escape(root)}/**"))

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads a chunk's rows, without images; the default key is the path in `file_name`, else all fields' paths."""
        root, work, first = self.root(files), chunk.work, 0
        if isinstance(work, Listing):
            yield from (self._listed_rows(work, part, root, files, columns) for part in work.parts)
            return
        inner, fields = replace(chunk, work=work[0]), work[1]
        asked = fields.asked(columns)
        for block in _table(root, chunk.file).read(inner, files, asked, fields.asked_key(key, asked)):
            yield image_fields.with_paths(block, first, columns, fields, key)
            first += block.positions

    def _listed_rows(self, work: Listing, part: slice, root: str, files: Files, columns: Columns) -> TypedRows:
        paths, faults, is_split = work.names[part], Faults(), SPLIT in columns
        places = [*map(image_fields.image_place(self.source.beside), paths)]
        beside = {name: [path or None for path in each.names[part]] for name, each in work.beside.items()}
        of_path = {**dict.fromkeys(OF_PATH, paths), LABEL: places, SPLIT: places, **beside}
        read = {
            name: image_fields.path_column(name, column, of_path[name], faults, reads_split=is_split)
            for name, column in columns.items()
            if name in of_path
        }
        captions = {ending: [path or None for path in each.names[part]] for ending, each in work.captions.items()}
        if TEXT_ENDING in captions and TEXT in columns and TEXT not in of_path:
            found = read_texts(files, root, captions[TEXT_ENDING], what=BESIDE.format(TEXT_ENDING))
            texts = [text and re.sub(rb"\r?\n\Z", b"", text) for text in _good(found, faults, TEXT)]
            cells = pa.array(texts, pa.binary()).view(pa.string())
            read[TEXT] = typed_values(TEXT, columns[TEXT], cells, (root, ""), faults, as_cells=True)
        others = {name: column for name, column in columns.items() if name not in read}
        if OBJECT_ENDING in captions and others:
            rows = _json(files, root, captions[OBJECT_ENDING], faults)
            for name, column in others.items():
                values = [None if row is None else python_field(row, name) for row in rows]
                read[name] = _typed(name, column, values, root, paths, faults)
        lacking = {name: pa.nulls(len(paths), arrow_type(columns[name])) for name in others.keys() - read.keys()}
        return TypedRows(read | lacking, len(paths), faults, None, map(path_key, paths))

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """Returns a listing's image, or the metadata file and the row in the chunk as its format counts."""
        if isinstance(chunk.work, Listing):
            return super().locate(chunk, position)
        inner = replace(chunk, work=chunk.work[0])
        return _table(without_slash(self.source.path), chunk.file).locate(inner, position)


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
    form = posixpath.splitext(name)[1][1:]
    return cast(TableReader[Any], formats.reader_of(FORMATS[form](format=form, path=f"{escape(root)}/**/{name}")))


def _cut(file: FileInfo, root: str, files: Files, asked: Columns, names: Sequence[str], chunk_bytes: int) -> Plan:
    """Plans a file, which may be empty, or lack another's columns."""
    there = {name: column if name in names else replace(column, optional=True) for name, column in asked.items()}
    return _table(root, file.path).cut(files, root, [file], there, chunk_bytes) if file.bytes else Plan([], 0)


def _count(chunks: list[Chunk], root: str, files: Files, fields: image_fields.ImageFields) -> tuple[int, Counter[str]]:
    """Counts the rows, and the rows identified by each image; 0 for the other images."""
    count, rows = 0, Counter[str]()
    for chunk in chunks:
        inner = replace(chunk, work=chunk.work[0])
        for block in _table(root, chunk.file).read(inner, files, fields.references(), ()):
            count += block.table.num_rows + len(block.rejects)
            for field in fields.fields:
                for path in chain.from_iterable(image_fields.paths_of(block.table[field])):
                    rows[path or ""] += field in fields.mains
    return count, rows
