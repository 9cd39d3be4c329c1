"""JSON Lines as a source: a row is a line. What a row is in detail: `pipeline.sources.json_lines`.

    source: {format: jsonl, path: documents.jsonl}

A file is read in byte ranges; each line is read once, and what comes of it does not depend on the ranges.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Literal

import numpy as np
import pyarrow as pa

from pipeline.columns import ARROW_TYPES, Columns, ColumnType
from pipeline.globs import escape, folder_prefix, is_glob
from pipeline.rejects import Reject
from pipeline.sources.base import Block, Chunk, FileInfo, Files, Plan, Source, SourceError
from pipeline.sources.checks import Faults, check_column, make_block
from pipeline.sources.json_lines import JsonRange, Peek, arrow_schema, line_key, parse_lines, peek
from pipeline.sources.lines import Lines, pieces
from pipeline.sources.paths import check_names, join, planning

PEEKED_LINES = 1_000
PEEKED_BYTES = 1 << 20  # 1 MiB
SAMPLE_BYTES = 64 << 10  # 64 KiB: what the number of rows is estimated from

NO_FIELDS: Mapping[str, str] = {}


class JsonLines(Source):
    """Files of JSON objects, one a line."""

    format: Literal["jsonl"]
    path: str
    """A file, a folder (all `*.jsonl` in it) or a glob, where `**` is any number of folders."""

    def root(self, files: Files) -> str:
        """The folder itself, the file's folder, or the folder where the glob's wildcards begin."""
        if files.is_folder(self.path):
            return self.path.rstrip("/")
        pattern = self._pattern(files)
        return folder_prefix(pattern)[:-1]

    def plan(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the files and cuts them into byte ranges of at most `chunk_bytes`; reads the first file's first lines.

        `rows` is estimated from the bytes of all files and the first file's first lines.

        Raises:
            SourceError: there is no file, all are empty, or none of the first lines has an asked column.
        """
        with planning(self.path):
            root = self.root(files)
            found = files.match(self._pattern(files))
            inputs = [FileInfo(file.path[len(root) + 1 :], file.bytes, file.modified) for file in found if file.bytes]
            if not inputs:
                raise SourceError(self._nothing(found))
            types = category_types(files, join(root, inputs[0].path), columns, NO_FIELDS)
            rows = estimated_rows(files, join(root, inputs[0].path), sum(file.bytes for file in inputs))
        chunks = [chunk for file in inputs for chunk in ranges(file, types, chunk_bytes)]
        empty = [file.path for file in found if not file.bytes]
        notes = [f"{len(empty)} of {len(found)} files are empty: {', '.join(empty[:3])}"] if empty else []
        return Plan(chunks, rows, sum(file.bytes for file in inputs), inputs, notes)

    def read(self, chunk: Chunk, files: Files, columns: Columns, with_key: bool) -> Iterator[Block]:
        """Reads the lines that start in the chunk's bytes; a row's default key is the digest of its line.

        Raises:
            OSError: the file cannot be read any more.
        """
        folder = chunk.file.rpartition("/")[0]
        for rows in read_json_lines(chunk, join(self.root(files), chunk.file), chunk.work, files, columns, NO_FIELDS):
            faults: Faults = {}
            checked = {
                name: check_column(name, kind, rows.columns[name], folder, faults) for name, kind in columns.items()
            }
"""
