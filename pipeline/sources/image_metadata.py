"""The metadata files of a folder of images: `metadata.csv` or `metadata.jsonl`, planned and read alike."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline.columns import Columns
from pipeline.sources.base import Chunk, FileInfo, Files, SourceError
from pipeline.sources.checks import RawRows
from pipeline.sources.csv_rows import csv_header, read_csv
from pipeline.sources.json_lines import JsonRange, first_fields, json_ranges, read_json_lines
from pipeline.sources.paths import check_names, join

CSV, JSONL = "metadata.csv", "metadata.jsonl"
IMAGE, FILE_NAME, LABEL = "image", "file_name", "label"
FIELDS = {IMAGE: FILE_NAME}  # the image's path is the metadata's file_name


@dataclass(frozen=True)
class MetadataRows:
    """What a chunk of a metadata file is: a range of JSON lines, or a whole CSV file."""

    lines: JsonRange | None
    has_label: bool
    """Whether `label` is a column of the metadata, and not the folder's name."""


def metadata_files(found: list[FileInfo], root: str) -> list[FileInfo]:
    """The metadata files among all files, which are relative to the root.

    Raises:
        SourceError: a folder has two of them.
    """
    metadata = [file for file in found if posixpath.basename(file.path) in (CSV, JSONL)]
    folders = [posixpath.dirname(file.path) for file in metadata]
    for folder in folders:
        if folders.count(folder) > 1:
            raise SourceError(f"{posixpath.join(root, folder)} holds both {CSV} and {JSONL}; keep one")
    return metadata


def metadata_columns(metadata: list[FileInfo], root: str, files: Files) -> tuple[list[str], dict[str, str]]:
    """The columns of all metadata files together, and the JSON types of those that may be categories.

    Raises:
        SourceError: a file has no column `file_name`.
        OSError: a file cannot be read.
    """
    names, types = dict[str, None](), dict[str, str]()
    for file in metadata:
        path = join(root, file.path)
        if file.path.endswith(CSV):
            columns, found = csv_header(files, path), dict[str, str]()
        else:
            columns, found = first_fields(files, path)
        check_names(path, [FILE_NAME], columns)
        names |= dict.fromkeys(columns)
        types = found | types
    return list(names), types


def metadata_chunks(file: FileInfo, types: Mapping[str, str], has_label: bool, chunk_bytes: int) -> list[Chunk]:
    """Cuts a file: JSON lines into ranges, CSV not at all, as quoted cells may hold newlines."""
    if file.path.endswith(CSV):
        return [Chunk(0, 0, file.path, file.bytes, MetadataRows(None, has_label))]
    return [
        Chunk(0, 0, file.path, lines.end - lines.start, MetadataRows(lines, has_label))
        for lines in json_ranges(file, types, chunk_bytes)
    ]


def read_metadata(chunk: Chunk, root: str, files: Files, columns: Columns) -> Iterator[RawRows]:
    """Reads a chunk's rows; the column `image` is the field `file_name`.

    Raises:
        OSError: the file cannot be read.
    """
    path = join(root, chunk.file)
    if chunk.work.lines is None:
        return read_csv(chunk, path, files, columns, FIELDS)
    return read_json_lines(chunk, chunk.work.lines, path, files, columns, FIELDS, with_key=False)
