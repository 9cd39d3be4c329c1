"""The metadata files of a folder of pictures: their rows are the rows.

Each is read by the source of its format, whose root is the folder of pictures. `file_name` is a picture's path, and so
is `depth_file_name`, which is the column `depth`; `file_names` (the column `images`) and `frames_file_names` are lists
of paths. These are the names of Hugging Face's ImageFolder.
"""

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from recordmill.pipeline.sources.base import Block, Chunk, FileInfo, Files, Plan, SourceError
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.csv.source import Csv, Tsv
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.image_folder.image_paths import FILE_NAME
from recordmill.pipeline.sources.image_folder.listing import told
from recordmill.pipeline.sources.image_folder.metadata_fields import PictureFields
from recordmill.pipeline.sources.image_folder.metadata_fields import picture_fields as picture_fields
from recordmill.pipeline.sources.image_folder.metadata_rows import NamedRows, with_paths
from recordmill.pipeline.sources.jsonl.source import JsonLines
from recordmill.pipeline.sources.parquet.source import Parquet
from recordmill.pipeline.sources.paths import check_names, is_image, join
from recordmill.pipeline.sources.table import Table, unused

FORMATS: Mapping[str, type[Table]] = {"csv": Csv, "tsv": Tsv, "jsonl": JsonLines, "parquet": Parquet}
NAMES = tuple(f"metadata.{name}" for name in FORMATS)


@dataclass(frozen=True)
class MetadataRows:
    """What a chunk of a metadata file is."""

    work: Any
    """What the source of its format needs to read it."""
    fields: PictureFields


def metadata_files(found: list[FileInfo], root: str) -> list[FileInfo]:
    """The metadata files among all files, which are relative to the root.

    Raises:
        SourceError: a folder has two of them.
    """
    metadata = [file for file in found if file.path.endswith(NAMES) and posixpath.basename(file.path) in NAMES]
    by_folder = dict[str, str]()
    for file in metadata:
        folder, name = posixpath.split(file.path)
        if folder in by_folder:
            raise SourceError(f"{posixpath.join(root, folder)} holds both {by_folder[folder]} and {name}; keep one")
        by_folder[folder] = name
    return metadata


def plan_metadata(
    path: str,
    root: str,
    found: list[FileInfo],
    metadata: list[FileInfo],
    files: Files,
    columns: Columns,
    chunk_bytes: int,
) -> Plan:
    """Plans the rows of the metadata files; reads the pictures' paths, so that `rows` is exact.

    Raises:
        SourceError: a file cannot be read, names no picture or holds no row, or an asked column is nowhere.
        OSError: a file cannot be read.
    """
    names = metadata_names(metadata, root, files)
    every = list(dict.fromkeys(chain.from_iterable(names.values())))
    fields = PictureFields.of(every)
    _check_fields(root, names, fields)
    needed = [name for name in columns if not columns[name].optional]
    check_names(path, needed, fields.names(every), " in its metadata")
    chunks = [
        replace(chunk, work=MetadataRows(chunk.work, fields))
        for file in metadata
        for chunk in _cut(file, root, files, fields.asked(columns), names[file.path], chunk_bytes)
    ]
    count, paths = _count(chunks, root, files, fields)
    if not count:
        raise SourceError(f"{join(root, metadata[0].path)} holds no row")
    used = {file.path for file in metadata} | paths.keys()
    inputs = [file for file in found if file.path in used]
    left = [file.path for file in found if file.path not in used]
    notes = _used(paths) + _left_out(left, metadata) + unused(every, _read(fields, columns))
    return Plan(chunks, count, sum(file.bytes for file in inputs), inputs, notes, is_exact=True)


def read_metadata(
    chunk: Chunk, root: str, files: Files, columns: Columns, key: Sequence[str] | None
) -> Iterator[Block]:
    """Reads a chunk's rows; the pictures themselves are not looked at.

    A row's default key is its picture's path; of several, where there is no `file_name`, all of them, by the fields'
    names.

    Raises:
        SourceError: the file is damaged.
        OSError: it cannot be read any more.
    """
    rows: MetadataRows = chunk.work
    asked = rows.fields.asked(columns)
    inner = replace(chunk, work=rows.work)
    for block in _table(root, chunk.file).read(inner, files, asked, rows.fields.asked_key(key, asked)):
        yield with_paths(chunk, block, columns, rows.fields, key)


def locate_row(chunk: Chunk, root: str, position: int) -> tuple[str, int | None]:
    """The metadata file, and the row inside the chunk as its format counts it."""
    return _table(root, chunk.file).locate(replace(chunk, work=chunk.work.work), position)


def _table(root: str, path: str) -> Table:
    """The source of a metadata file's format; the root of its glob is the folder of pictures."""
    name = posixpath.basename(path)
    form = posixpath.splitext(name)[1][1:]
    return FORMATS[form].model_validate({"format": form, "path": f"{escape(root)}/**/{name}"})


def metadata_names(metadata: list[FileInfo], root: str, files: Files) -> dict[str, list[str]]:
    """The columns of each metadata file, by its path.

    Raises:
        SourceError: one cannot be read.
        OSError: the same.
    """
    cuts = {
        file.path: _table(root, file.path).cut(files, root, [file], {}, file.bytes) if file.bytes else None
        for file in metadata
    }
    return {path: cut.names if cut else [] for path, cut in cuts.items()}


def _check_fields(root: str, names: Mapping[str, list[str]], fields: PictureFields) -> None:
    """Checks that every file names pictures, by `file_name` if any does."""
    for path, columns in names.items():
        if fields.of_path or not picture_fields(columns):
            check_names(join(root, path), [FILE_NAME], columns)


def _cut(
    file: FileInfo, root: str, files: Files, asked: Columns, names: Sequence[str], chunk_bytes: int
) -> list[Chunk]:
    """Cuts a file, which may lack columns that another has."""
    there = {name: column if name in names else replace(column, optional=True) for name, column in asked.items()}
    return _table(root, file.path).cut(files, root, [file], there, chunk_bytes).chunks if file.bytes else []


def _count(chunks: list[Chunk], root: str, files: Files, fields: PictureFields) -> tuple[int, Counter[str]]:
    """Counts the rows of metadata, and how many of them are known by a picture; of the other pictures 0."""
    count, found = 0, Counter[str]()
    for chunk in chunks:
        inner = replace(chunk, work=chunk.work.work)
        for block in _table(root, chunk.file).read(inner, files, fields.references(), ()):
            count += block.table.num_rows + len(block.rejects)
            for field, paths in NamedRows(block.table.combine_chunks(), fields).paths.items():
                for path in chain.from_iterable(paths):
                    found[path or ""] += field in fields.mains
    return count, found


def _read(fields: PictureFields, columns: Columns) -> Columns:
    """The columns and fields that are read."""
    mains = {name: column for name, column in fields.references().items() if name in fields.mains}
    return mains | {fields.field(name): column for name, column in columns.items()}


def _used(paths: Counter[str]) -> list[str]:
    return told("pictures that several rows name", sorted(path for path, count in paths.items() if count > 1))


def _left_out(left: list[str], metadata: list[FileInfo]) -> list[str]:
    where = metadata[0].path if len(metadata) == 1 else "any metadata file"
    pictures = told(f"pictures without a row in {where}, left out", [path for path in left if is_image(path)])
    return pictures + told("other files, left out", [path for path in left if not is_image(path)])
