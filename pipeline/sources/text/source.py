"""Plain text as a source: a row is a line, or a whole file.

    source: {format: text, path: books/, document: line}

The columns are `text`, `file_name` (the path inside the source's folder), `label` (the name of the folder that the file
lies in) and, of lines, `line` (counted from 1 in each file). Lines are found as records of CSV are that have no quotes:
`pipeline.sources.csv.records`.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from recordmill.pipeline.sources.base import Block, Chunk, FileInfo, Files
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.compression import CODECS
from recordmill.pipeline.sources.csv.ranges import RecordRange, cut_file
from recordmill.pipeline.sources.csv.records import Dialect
from recordmill.pipeline.sources.encoded import Encoding
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.paths import check_names, join, listed
from recordmill.pipeline.sources.table import Cut, Table
from recordmill.pipeline.sources.text.rows import (
    FILE_NAME,
    LABEL,
    LINE,
    TEXT,
    Documents,
    rows_of_texts,
    texts_of_files,
    texts_of_lines,
)
from recordmill.pipeline.sources.typing.blocks import make_block

FILE_BYTES = 2 << 10  # 2 KiB: a file counts as so many bytes at least when a list of them is cut
SHOWN_FILES = 3


class TextFiles(Table):
    """Files of text: each line, or each file, is a row."""

    endings: ClassVar[tuple[str, ...]] = (".txt", ".text")
    of_path: ClassVar[tuple[str, ...]] = (FILE_NAME, LABEL)
    format: Literal["text"]
    document: Literal["line", "file"] = "line"
    """The unit that is a row."""
    encoding: Encoding = "utf-8"
    """The files' encoding, by any name that Python knows."""

    def cut(self, files: Files, root: str, inputs: list[FileInfo], columns: Columns, chunk_bytes: int) -> Cut:
        """Cuts files into ranges of lines of about `chunk_bytes`, or the list of files.

        Raises:
            SourceError: a column is asked for that does not exist; a file is not of the encoding at all.
            OSError: a file cannot be read, or its compressed data is damaged.
        """
        names = [TEXT, FILE_NAME, LABEL, *([LINE] if self.document == "line" else [])]
        check_names(self.path, [name for name, column in columns.items() if not column.optional], names)
        if self.document == "line":
            whole = RecordRange(Dialect(quote=None), self.encoding, has_header=False)
            cuts = [cut_file(files, root, file, whole, chunk_bytes) for file in inputs]
            chunks, rows = [chunk for ranges, _ in cuts for chunk in ranges], sum(count for _, count in cuts)
        else:
            chunks, rows = _listing(inputs, chunk_bytes), len(inputs)
        mentioned = [name for name in names if name == TEXT or name in columns]
        return Cut(chunks, rows, mentioned, notes=self._left_out(files, root, inputs))

    def _left_out(self, files: Files, root: str, inputs: list[FileInfo]) -> list[str]:
        """Lists what else lies in a folder."""
        if not files.is_folder(self.path):
            return []
        used = {file.path for file in inputs}
        below = [file.path[len(root) + 1 :] for file in files.match(f"{escape(root)}/**") if file.bytes]
        others = [path for path in below if path not in used]
        return [f"other files, left out: {len(others):,} ({listed(others, SHOWN_FILES)})"] if others else []

    def _patterns(self, files: Files) -> list[str]:
        """The patterns of all files; those of a folder lie in it or in folders below it."""
        if not files.is_folder(self.path):
            return super()._patterns(files)
        folder = escape(self.path.rstrip("/"))
        return [f"{folder}/**/*{ending}{codec}" for ending in self.endings for codec in ("", *CODECS)]

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads a chunk; the default key of a line is the digest of its text, that of a file its path.

        Raises:
            OSError: the file of the lines cannot be read any more.
        """
        root, base = self.root(files), self.image_base(files, chunk)
        if isinstance(chunk.work, Documents):
            batches = texts_of_files(chunk, root, files, self.encoding)
        else:
            batches = texts_of_lines(chunk, join(root, chunk.file), files)
        for texts in batches:
            raw = rows_of_texts(chunk, texts, columns, base, with_key=key is None)
            yield make_block(chunk, raw, columns, key, self.encoding)

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """The file, and of a line its 1-based number inside the chunk."""
        if isinstance(chunk.work, Documents):
            return chunk.work.names[position], None
        return chunk.file, position + 1


def _listing(inputs: list[FileInfo], chunk_bytes: int) -> list[Chunk]:
    """Cuts a list of files into chunks of about `chunk_bytes`, or of one file that is longer."""
    chunks, names, size, counted = list[Chunk](), list[str](), 0, 0
    for file in inputs:
        if names and counted + max(file.bytes, FILE_BYTES) > chunk_bytes:
            chunks.append(Chunk(0, 0, "", size, Documents(tuple(names))))
            names, size, counted = [], 0, 0
        names.append(file.path)
        size += file.bytes
        counted += max(file.bytes, FILE_BYTES)
    return [*chunks, Chunk(0, 0, "", size, Documents(tuple(names)))]
