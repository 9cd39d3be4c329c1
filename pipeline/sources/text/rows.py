"""The rows of text: lines of a file, or whole files, with the columns that come of where they lie."""

import posixpath
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.key_hash import content_digest
from recordmill.pipeline.sources.absent_files import why_absent
from recordmill.pipeline.sources.base import Chunk, Files, SourceError
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.compression import codec
from recordmill.pipeline.sources.csv.records import Places, Records, read_records
from recordmill.pipeline.sources.csv.rows import BATCH_RECORDS, CsvFile
from recordmill.pipeline.sources.encoded import open_utf8
from recordmill.pipeline.sources.lines import MAX_LINE_BYTES, PIECE_BYTES
from recordmill.pipeline.sources.machine_faults import is_machine_fault
from recordmill.pipeline.sources.paths import is_utf8, join, path_key
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.typing.checks import Fault, Faults, RawRows
from recordmill.pipeline.sources.typing.image_cells import references
from recordmill.pipeline.sources.typing.string_cells import strings, typed_cells

TEXT, FILE_NAME, LABEL, LINE = "text", "file_name", "label", "line"
READERS = 16  # files that are read at once: on a filesystem far away it is the waiting that takes time
READ_FILES = 128  # that may wait, read, in memory
READ_BYTES = 64 << 10  # 64 KiB: what is read at first


@dataclass(frozen=True)
class Documents:
    """What a chunk of whole files is: their paths."""

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
    positions: Places
    covered: int
    faults: Faults
    """What could not be read, by position."""


def texts_of_lines(chunk: Chunk, path: str, files: Files) -> Iterator[Texts]:
    """Reads the lines of a chunk that are not blank; `path` is the file's full path.

    Raises:
        OSError: the file cannot be read.
    """
    form: CsvFile = chunk.work
    first = 0
    with open_utf8(files, path, form.encoding, form.start, form.end) as file:
        for records in read_records(file, form.dialect):
            if records.is_too_large:
                fault = Fault("too_large", "the line is longer than 64 MiB")
                yield Texts([], [], [], np.empty(0, np.int64), records.line_count, {first: fault})
            else:
                yield from _of_records(records, first, chunk.file, form.first_line)
            first += records.line_count


def _of_records(records: Records, first: int, name: str, first_line: int) -> Iterator[Texts]:
    chosen = np.array([r for r in records.filled.tolist() if not records.text(r).isspace()], np.int64)
    for batch, covered in records.batches(chosen, BATCH_RECORDS):
        positions = records.lines[batch] + first
        lines = (positions + first_line + 1).tolist()
        yield Texts([records.text(r) for r in batch.tolist()], [name] * len(batch), lines, positions, covered, {})


def texts_of_files(chunk: Chunk, root: str, files: Files, encoding: str) -> Iterator[Texts]:
    """Reads the files of a chunk, about 8 MiB at a time; a file that cannot be read is a reject.

    Raises:
        OSError: the machine or the network fails.
    """
    names: tuple[str, ...] = chunk.work.names
    read, bad, start, size = dict[int, bytes](), Faults(), 0, 0
    for position, text in enumerate(_contents(files, [join(root, name) for name in names], encoding)):
        if isinstance(text, bytes):
            read[position] = text
            size += len(text)
        else:
            bad[position] = text
        if position == len(names) - 1 or size >= PIECE_BYTES:
            positions = np.array(list(read), np.int64)
            yield Texts(list(read.values()), [names[at] for at in read], None, positions, position + 1 - start, bad)
            read, bad, start, size = {}, {}, position + 1, 0


def _contents(files: Files, paths: list[str], encoding: str) -> Iterator[bytes | Fault]:
    """The files' texts in their order, or what is wrong with them."""
    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, len(paths), READ_FILES):
            yield from pool.map(lambda path: _content(files, path, encoding), paths[start : start + READ_FILES])


def _content(files: Files, path: str, encoding: str) -> bytes | Fault:
    if not is_utf8(path):
        return Fault("invalid_utf8", "the file's name is not UTF-8")
    try:
        text = _text(files, path, encoding)
    except SourceError:
        return Fault("invalid_utf8", f"the file is not {encoding}")
    except OSError as error:
        fault = _unreadable(error, files, path)
        try:
            text = _text(files, path, encoding)  # once more, before it is believed
        except OSError as again:
            if is_machine_fault(again):
                raise
            return fault
    return text if len(text) <= MAX_LINE_BYTES else Fault("too_large", "the file is longer than 64 MiB")


def _text(files: Files, path: str, encoding: str) -> bytes:
    """The text of a file, of which it reads little more than 64 MiB."""
    with open_utf8(files, path, encoding) as file:
        text = b""
        while len(text) <= MAX_LINE_BYTES and (more := file.read(max(READ_BYTES, len(text)))):
            text += more
    return text


def _unreadable(error: OSError, files: Files, path: str) -> Fault:
    """Says what is wrong with a file.

    Raises:
        OSError: nothing is, but with the machine or the network.
    """
    if is_machine_fault(error):
        raise error
    try:
        with files.open(path) as file:
            while file.read(PIECE_BYTES):
                pass
    except OSError as again:
        why = why_absent(again, path, files)
        if why is None:
            raise
        return Fault("unreadable", f"the file cannot be read: {why}", path=path)
    if codec(path) is None:
        raise error
    return Fault("unreadable", f"the file cannot be read: its compressed data is damaged: {error.strerror}")


def rows_of_texts(chunk: Chunk, texts: Texts, columns: Columns, pictures: tuple[str, str], with_key: bool) -> RawRows:
    """Makes rows: the columns that are asked for, and the default keys.

    `pictures` are the root and the folder that paths of pictures are relative to (`typing.image_cells`).
    """
    faults: Faults = {}
    arrays = {}
    for name, column in columns.items():
        values = typed_cells(name, column, _column(name, texts), faults)
        arrays[name] = references(name, values, *pictures, faults) if column.type is ColumnType.IMAGE else values
    return RawRows(
        columns=arrays,
        positions=texts.positions,
        keys=pa.array(_keys(texts), pa.binary()) if with_key else None,
        faults=faults,
        unparsed=[
            Reject(chunk.index, position, fault.reason, fault.message, path=fault.path)
            for position, fault in texts.faults.items()
        ],
        covered=texts.covered,
    )


def _column(name: str, texts: Texts) -> pa.Array:
    """A column as Arrow `string`: null where there is none."""
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
    """Of lines the digests of their texts (BLAKE2b, 16 bytes in hexadecimal), of files their paths."""
    if texts.lines is None:
        return [path_key(name) for name in texts.names]
    return [content_digest(text) for text in texts.texts]
