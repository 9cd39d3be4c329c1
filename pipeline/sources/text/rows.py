"""The rows of text: lines of a file, or whole files, with the columns that come of their paths."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.key_hash import content_digest
from recordmill.pipeline.sources.base import Chunk, Files
from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.csv.ranges import read_range
from recordmill.pipeline.sources.csv.records import Records, Rows
from recordmill.pipeline.sources.paths import join, path_key
from recordmill.pipeline.sources.text.whole_files import read_texts
from recordmill.pipeline.sources.typing.arrays import strings
from recordmill.pipeline.sources.typing.blocks import RawRows, as_reject
from recordmill.pipeline.sources.typing.faults import Fault, Faults
from recordmill.pipeline.sources.typing.image_cells import ImageBase
from recordmill.pipeline.sources.typing.values import typed_values

TEXT, FILE_NAME, LABEL, LINE = "text", "file_name", "label", "line"
BATCH_LINES = 16_384


@dataclass(frozen=True)
class Documents:
    """A chunk of whole files."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """Some texts of a chunk; lists have one value a text."""

    texts: list[bytes]
    """UTF-8, or not, as they were read."""
    names: list[str]
    """The paths of the files that they lie in."""
    lines: list[int] | None
    """The lines that they are in their file, counted from 1; None of whole files."""
    positions: Rows
    covered: int
    faults: Faults = field(default_factory=dict)
    """Files and lines that could not be read, by position."""


def texts_of_lines(chunk: Chunk, path: str, files: Files) -> Iterator[Texts]:
    """Reads the lines of a chunk that are not blank; `path` is the file's full path.

    Raises:
        OSError: the file cannot be read.
    """
    for records, filled, first in read_range(files, path, chunk.work):
        if records.is_too_large:
            fault = Fault("too_large", "the line is longer than 64 MiB")
            yield Texts([], [], [], np.empty(0, np.int64), records.line_count, {first: fault})
        else:
            yield from _of_records(records, filled, first, chunk.file, chunk.work.first_line)


def _of_records(records: Records, filled: Rows, first: int, name: str, first_line: int) -> Iterator[Texts]:
    chosen = np.array([record for record in filled.tolist() if not records.text(record).isspace()], np.int64)
    for batch, covered in records.batches(chosen, BATCH_LINES):
        positions = records.lines[batch] + first
        lines = (positions + first_line + 1).tolist()
        yield Texts(list(map(records.text, batch.tolist())), [name] * len(batch), lines, positions, covered)


def texts_of_files(chunk: Chunk, root: str, files: Files, encoding: str) -> Iterator[Texts]:
    """Reads the files of a chunk, about 8 MiB at a time; a file that cannot be read is a reject.

    Raises:
        OSError: the machine or the network fails.
    """
    names: tuple[str, ...] = chunk.work.names
    contents = enumerate(read_texts(files, [join(root, name) for name in names], encoding))
    for batch in batches(contents, _bytes, len(names)):
        texts = {position: text for position, text in batch if isinstance(text, bytes)}
        faults = {position: fault for position, fault in batch if isinstance(fault, Fault)}
        positions = np.array(list(texts), np.int64)
        yield Texts(list(texts.values()), [names[file] for file in texts], None, positions, len(batch), faults)


def _bytes(content: tuple[int, object]) -> int:
    return len(content[1]) if isinstance(content[1], bytes) else 0


def rows_of_texts(chunk: Chunk, texts: Texts, columns: Columns, base: ImageBase, with_key: bool) -> RawRows:
    """Makes rows: the columns that are asked for, and the default keys."""
    faults: Faults = {}
    typed = {
        name: typed_values(name, column, _column(name, texts), base, faults, as_cells=True)
        for name, column in columns.items()
    }
    keys = pa.array(_keys(texts), pa.binary()) if with_key else None
    unparsed = [as_reject(chunk, position, fault) for position, fault in texts.faults.items()]
    return RawRows(typed, texts.positions, keys, texts.covered, faults, unparsed)


def _column(name: str, texts: Texts) -> pa.Array:
    """A column as Arrow `string`: nulls where there is no such column."""
    if name == TEXT:
        return pa.array(texts.texts, pa.binary()).view(pa.string())
    if name == LINE and texts.lines is not None:
        return pa.array(texts.lines, pa.int64()).cast(pa.string())
    if name == FILE_NAME:
        return strings(texts.names)
    if name == LABEL:
        return strings(posixpath.basename(posixpath.dirname(path)) or None for path in texts.names)
    return pa.nulls(len(texts.texts), pa.string())


def _keys(texts: Texts) -> list[bytes]:
    """The digests of lines (BLAKE2b, 16 bytes in hexadecimal), and the paths of files."""
    if texts.lines is None:
        return [path_key(name) for name in texts.names]
    return [content_digest(text) for text in texts.texts]
