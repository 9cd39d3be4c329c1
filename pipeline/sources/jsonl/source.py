"""JSON Lines as a source: a row is a line. What a row is in detail: `pipeline.sources.jsonl.parser`.

    source: {format: jsonl, path: documents.jsonl}

A file is read in byte ranges, a compressed one whole; each line is read once, and what comes of it does not depend on
the ranges.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from recordmill.pipeline.sources.base import Block, Chunk, FileInfo, Files
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.compression import codec
from recordmill.pipeline.sources.jsonl.rows import (
    counted_rows,
    estimated_rows,
    first_shape,
    json_chunks,
    places_of,
    read_json_lines,
)
from recordmill.pipeline.sources.paths import join
from recordmill.pipeline.sources.table import Cut, Table
from recordmill.pipeline.sources.typing.checks import check_columns, make_block


class JsonLines(Table):
    """Files of JSON objects, one a line."""

    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    format: Literal["jsonl"]

    def cut(self, files: Files, root: str, inputs: list[FileInfo], columns: Columns, chunk_bytes: int) -> Cut:
        """Cuts the files into byte ranges of at most `chunk_bytes`; looks at the first file's first lines.

        `rows` is estimated from the bytes of all files and the first lines of the first file of each compression; where
        a column is a picture it is the number of lines.

        Raises:
            SourceError: none of the first lines is a JSON object, or compressed data is damaged.
        """
        shape = first_shape(files, join(root, inputs[0].path))
        places = places_of(columns, shape)
        chunks = [chunk for file in inputs for chunk in json_chunks(file, places, chunk_bytes)]
        return Cut(chunks, self._count(files, columns, root, inputs), shape.names(), " in its first lines")

    def _count(self, files: Files, columns: Columns, root: str, inputs: list[FileInfo]) -> int:
        """The number of rows: exact for rows of pictures.

        Which pictures are measured, and how many shards there are, follows from it, and must not depend on which file
        comes first. Such files are small beside their pictures.
        """
        if any(column.type is ColumnType.IMAGE for column in columns.values()):
            return counted_rows(files, [join(root, file.path) for file in inputs])
        alike: dict[str | None, list[FileInfo]] = {}
        for file in inputs:
            alike.setdefault(codec(file.path), []).append(file)
        return sum(
            estimated_rows(files, join(root, some[0].path), sum(file.bytes for file in some)) for some in alike.values()
        )

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads the lines that start in the chunk's bytes; a row's default key is the digest of its line.

        Raises:
            SourceError: the compressed data is damaged.
            OSError: the file cannot be read any more.
        """
        pictures = (self.image_root(files), self.image_folder(chunk))
        path = join(self.root(files), chunk.file)
        for raw in read_json_lines(chunk, path, files, columns, pictures, with_key=key is None):
            yield make_block(chunk, raw, check_columns(raw, columns), raw.keys, key)

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """The file and the 1-based line inside the chunk."""
        return chunk.file, position + 1
