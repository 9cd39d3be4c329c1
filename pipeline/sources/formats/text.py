"""Plain text as a source: a row is a line, a line of each of several files, or a whole file.

    source: {format: text, path: books/, document: line}

Columns are `text`, `file_name` (the path in the source's folder), `label` (the name of the file's folder) and, for
lines, `line` (from 1 in each file). Joined files are a column each, and `file_name` and `label` those of the first.
Lines are found as CSV records without quotes: `pipeline.sources.formats.csv_records`.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.sources import encoded
from recordmill.pipeline.sources.batches import batches, cut, even_parts, pack
from recordmill.pipeline.sources.encoded import MAX_LINE_BYTES, PIECE_BYTES, Rows, can_start_anywhere, open_utf8
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files, is_machine_fault, why_absent
from recordmill.pipeline.sources.formats.csv_records import Dialect, RecordRange, all_records, read_records
from recordmill.pipeline.sources.globs import escape, without_slash
from recordmill.pipeline.sources.options import OF_TEXT, TextFiles
from recordmill.pipeline.sources.paths import check_names, is_utf8, join, note, path_key
from recordmill.pipeline.sources.source_reader import Chunk, Key, Plan, TableReader, TypedRows, WholeFiles, at_once
from recordmill.pipeline.sources.typing.arrays import strings
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.columns import Columns, required

LINES = Dialect(separator="\n", quote=None)
STRIDE = 1_024  # lines: a billion take 8 MB a file
Cells = tuple[bytes | None, ...]  # a row's line of each file, without line breaks; None for one over 64 MiB
READERS = 16  # files read at once: a remote filesystem mostly waits
READ_FILES = 128  # read files that may wait in memory
READ_BYTES = 64 << 10  # 64 KiB, read first
TEXT, FILE_NAME, LABEL, LINE = OF_TEXT
TOO_LARGE = Fault("too_large", "the line is longer than 64 MiB")
BATCH_LINES = 16_384
FILE_BYTES = 2 << 10  # 2 KiB, the least cost of a file when a list of files is cut


@dataclass(frozen=True)
class JoinedLines:
    """The work of a chunk: the lines between two places of each file."""

    paths: Sequence[str]  # the files, relative to the source's root
    encoding: str
    starts: Sequence[int]
    ends: Sequence[int | None]  # None: the file's end
    first_line: int  # the number of the first line in the files, from 0

    def read(self, files: Files, root: str) -> Iterator[Cells]:
        """Yields the rows, blank ones too. Raises: ValueError: the files changed since the plan; OSError."""
        with ExitStack() as stack:
            places = zip(self.paths, self.starts, self.ends, strict=True)
            ranges = ((join(root, path), self.encoding, start, end) for path, start, end in places)
            opened = [stack.enter_context(open_utf8(files, *each)) for each in ranges]
            yield from zip(*map(_lines, opened), strict=True)


def _lines(file: encoded.EncodedFile) -> Iterator[bytes | None]:
    for records in read_records(file, LINES):
        yield from [None] if records.is_too_large else map(records.text, range(len(records.starts)))


def cut_joined(
    files: Files, root: str, inputs: Sequence[FileInfo], encoding: str, chunk_bytes: int
) -> tuple[list[Chunk], int]:
    """Cuts joined files in step into chunks, and counts rows and blank ones. Raises: SourceError: unequal lines."""
    looked = at_once(lambda file: places_of_lines(files, join(root, file.path), encoding), inputs)
    counts = [lines for _, lines in looked]
    if len(set(counts)) > 1:
        listed = ", ".join(f"{file.path} has {lines:,}" for file, lines in zip(inputs, counts, strict=True))
        remedy = "line n of one belongs to line n of the others: add or remove lines, or read them as separate sources"
        raise SourceError(f"{root}: the files in `columns` have unequal numbers of lines: {listed}; {remedy}")
    total, bounds = np.sum([places for places, _ in looked], axis=0), [0]
    can_cut = all(can_start_anywhere(file.path, encoding) for file in inputs)
    while can_cut and (at := int(np.searchsorted(total, total[bounds[-1]] + chunk_bytes))) < len(total):
        bounds.append(max(at, bounds[-1] + 1))
    starts = [[int(places[at]) if at else 0 for places, _ in looked] for at in bounds]
    paths, sizes = [file.path for file in inputs], [file.bytes for file in inputs]
    chunks = []
    for at, first, last in zip(bounds, starts, [*starts[1:], None], strict=True):
        work = JoinedLines(paths, encoding, first, last or [None] * len(paths), at * STRIDE)
        chunks.append(Chunk(0, 0, paths[0], sum(last or sizes) - sum(first), work))
    return chunks, counts[0]


def places_of_lines(files: Files, path: str, encoding: str) -> tuple[Rows, int]:
    """Returns the byte of every `STRIDE`-th line of a file, and the number of its lines."""
    places, lines = [np.empty(0, np.int64)], 0
    for records, first, _ in all_records(files, path, encoding, LINES):
        places.append(records.starts[-lines % STRIDE :: STRIDE] + first)
        lines += len(records.starts)
    return np.concatenate(places), lines


@dataclass(frozen=True)
class RawTexts:
    """Consecutive texts of a chunk; each list has one value a text."""

    texts: Mapping[str, list[bytes]]  # bytes, perhaps invalid UTF-8, by column
    names: list[str]
    lines: list[int] | None  # their lines in the file, from 1; None for whole files
    positions: Rows  # from the first covered one, as in `TypedRows`
    covered: int
    broken: Faults = field(default_factory=dict)  # unreadable files and lines, by position

    def column(self, name: str) -> pa.Array:
        """Makes a column, Arrow `string`, of nulls if unknown."""
        if name in self.texts:
            return pa.array(self.texts[name], pa.binary()).view(pa.string())
        if name == LINE and self.lines is not None:
            return pa.array(self.lines, pa.int64()).cast(pa.string())
        if name == FILE_NAME:
            return strings(self.names)
        if name == LABEL:
            return strings(posixpath.basename(posixpath.dirname(path)) or None for path in self.names)
        return pa.nulls(len(self.names), pa.string())

    def keys(self) -> Iterator[bytes]:
        """Makes the default keys: the digest of a line's text, or of several with their lengths, or a file's path."""
        if self.lines is None:
            return map(path_key, self.names)
        if len(self.texts) == 1:
            return map(content_digest, *self.texts.values())
        rows = zip(*(self.texts[name] for name in sorted(self.texts)), strict=True)
        return (content_digest(b"".join(b"%d:%b" % (len(text), text) for text in row)) for row in rows)


class TextReader(TableReader[TextFiles]):
    """Reads files of text: each line, or each file, is a row."""

    endings: ClassVar[tuple[str, ...]] = (".txt", ".text")
    of_path: ClassVar[tuple[str, ...]] = (FILE_NAME, LABEL)

    def root(self, files: Files) -> str:
        return (without_slash(self.source.path) or "/") if self.source.joined else super().root(files)

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts files into ranges of lines of about `chunk_bytes`, or the list of files."""
        own = [*self.source.joined] or [TEXT]
        names = [*own, FILE_NAME, LABEL, *([LINE] if self.source.document == "line" else [])]
        check_names(self.source.path, required(columns), names)
        if self.source.joined:
            by_path = {file.path: file for file in inputs}
            some = [by_path[posixpath.normpath(path)] for path in own]
            chunks, rows = cut_joined(files, root, some, self.source.encoding, chunk_bytes)
        elif self.source.document == "line":
            whole = RecordRange(dialect=LINES, encoding=self.source.encoding, head=0)
            cuts = [whole.cut(files, root, file, chunk_bytes) for file in inputs]
            chunks = [chunk for ranges, _ in cuts for chunk in ranges]
            rows = sum(count for _, count in cuts)
        else:
            sizes = np.fromiter((file.bytes for file in inputs), np.int64, len(inputs))
            parts = even_parts(np.maximum(sizes, FILE_BYTES), chunk_bytes)
            chunks = [
                Chunk(0, 0, "", int(sizes[part].sum()), WholeFiles(pack([file.path for file in some])))
                for part, some in zip(parts, cut(inputs, parts), strict=True)
            ]
            rows = len(inputs)
        mentioned, notes = [name for name in names if name in own or name in columns], list[str]()
        if not self.source.joined and files.is_folder(self.source.path):
            read = tuple(pattern.rpartition("*")[2] for pattern in self._patterns(files))
            below = (file.path for file in files.match(f"{escape(root)}/**") if file.bytes)
            notes = note("other files, left out", [path[len(root) + 1 :] for path in below if not path.endswith(read)])
        return Plan(chunks, rows, names=mentioned, notes=notes)

    def _listed(self, files: Files, root: str) -> FileList:
        """Lists the files. Raises: SourceError: a joined one is missing."""
        listed = super()._listed(files, root)
        wanted = {*map(posixpath.normpath, self.source.joined)}
        for path in sorted(wanted - {file.path for file in listed}):
            beside = {posixpath.basename(file.path) for file in files.match(f"{escape(root)}/*")} - wanted
            near = did_you_mean(path, (*OF_TEXT, *sorted(beside)))
            raise SourceError(f"the folder {root} has no file {path!r}, named in `columns`{near}")
        return listed

    def _used(self, listed: Sequence[FileInfo]) -> Sequence[FileInfo]:
        """Keeps an empty file beside others to join, since it lacks their lines."""
        used = super()._used(listed)
        return listed if used and self.source.joined else used

    def _patterns(self, files: Files) -> list[str]:
        """Returns the patterns of all files; a folder is searched recursively."""
        if self.source.joined:
            return [escape(join(self.root(files), posixpath.normpath(path))) for path in self.source.joined]
        if not files.is_folder(self.source.path):
            return super()._patterns(files)
        folder = escape(without_slash(self.source.path))
        return [f"{folder}/**/*{ending}{codec}" for ending in self.endings for codec in ("", *encoded.CODECS)]

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads a chunk; the default key is the digest of a line's text, or a file's path."""
        root, base = self.root(files), self.image_base(files, chunk)
        if isinstance(chunk.work, WholeFiles):
            batches = texts_of_files(chunk, root, files, self.source.encoding)
        elif isinstance(chunk.work, JoinedLines):
            batches = joined_texts(chunk, root, files, self.source.joined)
        else:
            batches = texts_of_lines(chunk, join(root, chunk.file), files)
        for texts in batches:
            faults, typed = Faults(), dict[str, pa.Array]()
            for name, column in columns.items():
                typed[name] = typed_values(name, column, texts.column(name), base, faults, as_cells=True)
            yield TypedRows(typed, texts.covered, faults, texts.positions, texts.keys(), texts.broken)


def texts_of_lines(chunk: Chunk, path: str, files: Files) -> Iterator[RawTexts]:
    """Reads a chunk's non-blank lines; `path` is the file's full path."""
    for records, filled, first in chunk.work.read(files, path):
        if records.is_too_large:
            yield RawTexts({TEXT: []}, [], [], np.empty(0, np.int64), records.line_count, {0: TOO_LARGE})
            continue
        chosen = np.array([record for record in filled.tolist() if not records.text(record).isspace()], np.int64)
        for batch, line, covered in records.batches(chosen, BATCH_LINES):
            numbers = (records.lines[batch] + first + chunk.work.first_line + 1).tolist()
            texts = {TEXT: list(map(records.text, batch.tolist()))}
            yield RawTexts(texts, [chunk.file] * len(batch), numbers, records.lines[batch] - line, covered)


def joined_texts(chunk: Chunk, root: str, files: Files, names: Sequence[str]) -> Iterator[RawTexts]:
    """Reads a chunk's rows of joined lines, about 8 MiB at a time, without those blank in every file."""
    first = chunk.work.first_line + 1
    for batch in batches(chunk.work.read(files, root), lambda row: sum(len(cell or b"") for cell in row), BATCH_LINES):
        broken = {position: TOO_LARGE for position, cells in enumerate(batch) if None in cells}
        good = {
            position: cells
            for position, cells in enumerate(batch)
            if position not in broken and any(cell and not cell.isspace() for cell in cells)
        }
        columns = zip(*good.values(), strict=True) if good else [()] * len(names)
        texts = {name: list(column) for name, column in zip(names, columns, strict=True)}
        lines = [first + position for position in good]
        yield RawTexts(texts, [chunk.file] * len(good), lines, np.array(list(good), np.int64), len(batch), broken)
        first += len(batch)


def texts_of_files(chunk: Chunk, root: str, files: Files, encoding: str) -> Iterator[RawTexts]:
    """Reads a chunk's files, about 8 MiB at a time; an unreadable file is a reject."""
    names: list[str] = chunk.work.names
    contents, first = read_texts(files, root, names, encoding), 0
    for batch in batches(contents, lambda text: len(text) if isinstance(text, bytes) else 0, len(names)):
        texts = {position: text for position, text in enumerate(batch) if isinstance(text, bytes)}
        broken = {position: fault for position, fault in enumerate(batch) if isinstance(fault, Fault)}
        read, positions = [names[first + position] for position in texts], np.array(list(texts), np.int64)
        yield RawTexts({TEXT: list(texts.values())}, read, None, positions, len(batch), broken)
        first += len(batch)


def read_texts(
    files: Files, root: str, paths: Sequence[str | None], encoding: str = "utf-8", what: str = "the file"
) -> Iterator[bytes | Fault | None]:
    """Reads files, decompressed, as UTF-8, by their paths in a folder; messages call a file `what`.

    Yields in order: bytes, perhaps invalid UTF-8, without a byte order mark; a fault `unreadable`, `too_large` (over 64
    MiB) or `invalid_utf8` (not the encoding at all); or None for None. Raises: OSError: the machine or network fails.
    """
    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, len(paths), READ_FILES):
            part = paths[start : start + READ_FILES]
            yield from pool.map(lambda path: path and _text_or_fault(files, root, path, encoding, what), part)


def _text_or_fault(files: Files, root: str, path: str, encoding: str, what: str) -> bytes | Fault:
    if not is_utf8(path):
        return Fault("invalid_utf8", f"{what}'s name is not UTF-8")
    try:
        text = _text(files, join(root, path), encoding)
    except SourceError:
        return Fault("invalid_utf8", f"{what} is not {encoding}")
    except OSError as error:
        fault = _unreadable(error, files, root, path, what)
        try:
            text = _text(files, join(root, path), encoding)  # retries once
        except OSError as again:
            if is_machine_fault(again):
                raise
            return fault
    return text if len(text) <= MAX_LINE_BYTES else Fault("too_large", f"{what} is longer than 64 MiB")


def _text(files: Files, path: str, encoding: str) -> bytes:
    """Reads a file's text, at most little more than 64 MiB."""
    with open_utf8(files, path, encoding) as file:
        text = b""
        while len(text) <= MAX_LINE_BYTES and (more := file.read(max(READ_BYTES, len(text)))):
            text += more
    return text


def _unreadable(error: OSError, files: Files, root: str, path: str, what: str) -> Fault:
    """Returns a file's fault. Raises: OSError: the machine or the network is at fault."""
    if is_machine_fault(error):
        raise error
    try:
        with files.open(join(root, path)) as file:
            while file.read(PIECE_BYTES):
                pass
    except OSError as again:
        why = why_absent(again, join(root, path), files)
        if why is None:
            raise
        return Fault("unreadable", f"{what} cannot be read: {why}", path=path)
    if encoded.codec(path) is None:
        raise error
    return Fault("unreadable", f"{what} cannot be read: its compressed data is damaged: {error.strerror}")
