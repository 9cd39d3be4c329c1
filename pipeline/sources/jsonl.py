"""JSON Lines as a source: a row is a line. What a row is in detail: `pipeline.sources.json_lines`.

    source: {format: jsonl, path: documents.jsonl}

A file is read in byte ranges; each line is read once, and what comes of it does not depend on the ranges.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from pipeline.columns import Columns, ColumnType
from pipeline.globs import escape, folder_prefix, is_glob
from pipeline.sources.base import Block, Chunk, FileInfo, Files, Plan, Source, SourceError
from pipeline.sources.checks import check_columns, make_block
from pipeline.sources.json_lines import counted_rows, estimated_rows, first_fields, json_ranges, read_json_lines
from pipeline.sources.paths import check_names, is_image, join, planning


class JsonLines(Source):
    """Files of JSON objects, one a line."""

    format: Literal["jsonl"]
    path: str = Field(min_length=1)
    """A file, a folder (all `*.jsonl` in it) or a glob, where `**` is any number of folders."""

    def root(self, files: Files) -> str:
        """The folder itself, the file's folder, or the folder where the glob's wildcards begin."""
        return folder_prefix(self._pattern(files))[:-1]

    def plan(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the files and cuts them into byte ranges of at most `chunk_bytes`; reads the first file's first lines.

        `rows` is estimated from the bytes of all files and the first file's first lines; where a column is a path it is
        the number of lines.

        Raises:
            SourceError: there is no file, all are empty, or none of the first lines has an asked column.
        """
        with planning(self.path):
            return self._plan(files, columns, chunk_bytes)

    def _plan(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        root = self.root(files)
        found = files.match(self._pattern(files))
        inputs = [FileInfo(file.path[len(root) + 1 :], file.bytes, file.modified) for file in found if file.bytes]
        if not inputs:
            raise SourceError(f"{self.path}: {'every file is empty' if found else 'no such file, or no *.jsonl in it'}")
        first = join(root, inputs[0].path)
        fields, types = first_fields(files, first)
        check_names(first, columns, fields, " in its first lines")
        types = {name: types[name] for name in columns if name in types}
        total = sum(file.bytes for file in inputs)
        chunks = [
            Chunk(0, 0, file.path, part.end - part.start, part)
            for file in inputs
            for part in json_ranges(file, types, chunk_bytes)
        ]
        empty = [file.path[len(root) + 1 :] for file in found if not file.bytes]
        for path in empty:
            files.open(join(root, path)).close()  # a broken link is an error, not an empty file
        notes = [f"left out, because empty: {len(empty)} ({', '.join(empty[:3])})"] if empty else []
        rows = self._count(files, columns, root, inputs, total)
        return Plan(chunks, rows, total, inputs + _pictures(files, root, columns), notes)

    def _count(self, files: Files, columns: Columns, root: str, inputs: list[FileInfo], total: int) -> int:
        """The number of rows: exact for rows of pictures.

        Which pictures are measured, and how many shards there are, follows from it, and must not depend on which file
        comes first. Such files are small beside their pictures.
        """
        paths = [join(root, file.path) for file in inputs]
        if ColumnType.PATH in columns.values():
            return counted_rows(files, paths)
        return estimated_rows(files, paths[0], total)

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads the lines that start in the chunk's bytes; a row's default key is the digest of its line.

        Raises:
            OSError: the file cannot be read any more.
        """
        folder = chunk.file.rpartition("/")[0]
        path = join(self.root(files), chunk.file)
        for raw in read_json_lines(chunk, chunk.work, path, files, columns, {}, key is None):
            yield make_block(chunk, raw, check_columns(raw, columns, folder), raw.keys, key)

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """The file and the 1-based line inside the chunk."""
        return chunk.file, position + 1

    def _pattern(self, files: Files) -> str:
        """The pattern of all files; a local path that holds wildcards and is there is meant as it stands."""
        path = self.path if "/" in self.path else f"./{self.path}"
        if files.is_folder(path):
            return f"{escape(path.rstrip('/'))}/*.jsonl"
        literal = is_glob(path) and "://" not in path and files.match(escape(path))
        return escape(path) if literal else path


def _pictures(files: Files, root: str, columns: Columns) -> list[FileInfo]:
    """The pictures that rows may refer to: all below the root, so that a changed one is a changed input."""
    if ColumnType.PATH not in columns.values():
        return []
    found = (file for file in files.match(f"{escape(root)}/**") if is_image(file.path))
    return [FileInfo(file.path[len(root) + 1 :], file.bytes, file.modified) for file in found]
