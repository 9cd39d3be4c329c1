"""A sample of the rows of some sources: parts of their files, which the sources themselves read.

So a guess is right by construction: a count is of what a build reads, and rejects.
"""

import io
import math
import posixpath
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pydantic import TypeAdapter

from recordmill.pipeline.init.recognize import CELLS, IMAGES, Recognized
from recordmill.pipeline.sources.batches import spread
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.encoded import EncodedFile, codec, is_plain, open_plain, open_utf8
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.csv_records import Dialect, read_records
from recordmill.pipeline.sources.formats.image_folder import NAMES
from recordmill.pipeline.sources.formats.webdataset import KEY
from recordmill.pipeline.sources.globs import glob_pattern
from recordmill.pipeline.sources.options import AnnotatedImages, AnySource, DelimitedOptions, SourceOptions
from recordmill.pipeline.sources.paths import SUFFIXES
from recordmill.pipeline.sources.source_reader import Block, Plan, SourceError
from recordmill.pipeline.sources.table import UNREAD

LINES = (*CELLS, "jsonl", "text")  # the formats of which the first rows are cut off a large file
SOURCE: TypeAdapter[SourceOptions] = TypeAdapter(AnySource)
ROWS, CHUNKS = 1_000, 32
ALL_ROWS = 1 << 40
WHOLE_BYTES = 32 << 20  # 32 MiB: of which one column is read whole in about a second
PIECE_BYTES = 64 << 10  # 64 KiB: read at a time for the first rows
PART_BYTES = 16 << 20  # 16 MiB: rows behind these are not read, unless it is one huge row
CHUNK_BYTES = 64 << 20  # 64 MiB: so that a part is one chunk; a file that is far away is held in memory up to as much


class SampledFiles(Files):
    """Files to take a sample from: the first rows of a large file of text, any other file as it is."""

    def __init__(self, files: Files, source: SourceOptions, listed: Sequence[FileInfo], rows: int = ROWS) -> None:
        """Reads the first rows, about `rows` of all files; `source` says how they are written."""
        self._files = files
        self._shown = {file.path: file for file in listed}
        self._held: dict[str, bytes] = {}
        limit = math.ceil(rows / max(1, len(listed)))
        for file in listed:
            form = _format_of_rows(source, file.path)
            is_cut = form in LINES and rows < ALL_ROWS
            part = _first_rows(files, source, file.path, form, limit) if is_cut else None
            if part is not None:
                self._held[file.path], self._shown[file.path] = part, file._replace(bytes=len(part))
            elif form and "://" in file.path and file.bytes <= CHUNK_BYTES:
                with files.open(file.path) as opened:
                    self._held[file.path] = opened.read()  # it is read many times
        self.is_whole: bool = list(self._shown.values()) == list(listed)
        """Whether no row is left out of these files."""

    def match(self, pattern: str) -> list[FileInfo]:
        matches = glob_pattern(pattern).fullmatch
        return [file for path, file in sorted(self._shown.items()) if path == pattern or matches(path)]

    def is_folder(self, path: str) -> bool:
        return any(file.startswith(f"{path.rstrip('/')}/") for file in self._shown)

    def open(self, path: str) -> BinaryIO:
        held = self._held.get(path)
        return self._files.open(path) if held is None else io.BytesIO(held)


def _format_of_rows(source: SourceOptions, path: str) -> str:
    """The format of a file that holds rows; empty for one that is a row, or a part of one."""
    name = posixpath.basename(path)
    if source.format == IMAGES:
        return posixpath.splitext(name)[1][1:] if name in NAMES else ""
    return "" if getattr(source, "document", "line") == "file" else source.format


def _first_rows(files: Files, source: SourceOptions, path: str, form: str, rows: int) -> bytes | None:
    """The first rows of a file of text, compressed and encoded as it is; None where it has no more."""
    plain = Dialect("\t" if form == "tsv" else ",", '"' if form in CELLS else None)
    dialect = Dialect.of(source) if isinstance(source, DelimitedOptions) else plain
    encoding = getattr(source, "encoding", "utf-8")
    if is_plain(encoding):
        with open_plain(files, path) as opened:
            part = _cut(opened, dialect, rows)
    else:
        with open_utf8(files, path, encoding) as decoded:
            part = _cut(decoded, dialect, rows)
        errors = "surrogatepass" if encoding.lower().startswith("utf") else "surrogateescape"  # keeps invalid bytes
        part = part and part.decode("utf-8", "surrogateescape").encode(encoding, errors)
    if part is None or not codec(path):
        return part
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec(path)) as compressed:
        compressed.write(part)
    return cast(bytes, sink.getvalue().to_pybytes())


def _cut(file: BinaryIO | EncodedFile, dialect: Dialect, rows: int) -> bytes | None:
    """The first rows, however large one of them is; None where there are no others."""
    kept = b""
    for records in read_records(file, dialect, PIECE_BYTES):
        if not rows or len(kept) > PART_BYTES:
            return kept
        ends = [*records.starts[1:].tolist(), records.end][:rows]
        kept += records.data[: ends[-1]]
        if ends[-1] < records.end:
            return kept
        rows -= len(ends)
    return None


@dataclass(frozen=True)
class Reading:
    """A column read as one type."""

    values: list[Any] = field(default_factory=list)
    """The values of the rows that have one, in their order."""
    missing: int = 0
    """The number of rows that lack it."""
    rejected: int = 0
    """The number of rows that hold something else."""
    of: str = "0 rows"
    """The rows in words: `1,000 sampled rows`."""
    is_all: bool = True
    """Whether there are no other rows."""
    why: str = ""
    """The reason why no row could be read so, if any."""

    @property
    def rows(self) -> int:
        """The number of rows that were read."""
        return len(self.values) + self.missing + self.rejected

    @property
    def fit(self) -> float:
        """The share of the rows that could be read among those that do not lack it, 0..1; 0 where all lack it."""
        return len(self.values) / max(1, len(self.values) + self.rejected)

    @cached_property
    def distinct(self) -> dict[Any, int]:
        """The count of each value, the most frequent first, then in their order; lists by their values."""
        each = ([value] if not isinstance(value, list) else value for value in self.values)
        return dict(Counter(chain.from_iterable(each)).most_common())


class SourceSample:
    """About 1,000 rows, or as many as asked for, of sources that are alike: of one format, with the same options."""

    def __init__(self, files: Files, data: Recognized, rows: int = ROWS) -> None:
        """Reads parts of the sources' files, and plans each to know its columns. Raises: SourceError, OSError."""
        self.sources: list[SourceOptions] = [SOURCE.validate_python(dict(options)) for options in data.sources]
        self.readers = list(map(reader_of, self.sources))
        self.files = SampledFiles(files, self.sources[0], data.files, rows)
        self.data, self.origin, self._rows = data, files, rows
        self.is_whole = data.is_whole and self.files.is_whole
        self.always: Columns = {}
        """Columns that are read with any other, because it depends on them."""
        self._read: dict[tuple[str, Column, bool], Reading] = {}
        plans = [reader.plan(self.files, {}, CHUNK_BYTES) for reader in self.readers]
        self._plans = plans if isinstance(self.sources[0], AnnotatedImages) else None  # a large table is read once
        noted = plans if self.sources[0].format == "coco" else []
        self.notes = [each for plan in noted for each in plan.notes if not each.startswith(UNREAD)]
        """Notes of COCO's plans, which read all annotations."""
        self.names_of = [_columns(source, plan) for source, plan in zip(self.sources, plans, strict=True)]
        """The columns of each source."""
        self.names = list(dict.fromkeys(chain.from_iterable(self.names_of)))
        self.of_path = plans[0].of_path
        """The columns that come from a row's path."""
        if self.sources[0].format in CELLS:
            self._read_texts()

    def read(self, name: str, kind: ColumnType, *, many: bool = False, separator: str = ",") -> Reading:
        """Reads a column as a type, rows that lack it included; nothing where no row can be read so."""
        column = Column(kind, many=many, optional=True, separator=separator)
        asked = name, column, bool(self.always)
        if asked not in self._read:
            try:
                self._read[asked] = _reading(name, *self.take({name: column}))
            except SourceError as error:
                self._read[asked] = Reading(why=str(error))
        return self._read[asked]

    def _read_texts(self) -> None:
        """Reads all columns at once: for files of cells, where each is a text unless it is not of the encoding."""
        texts = dict.fromkeys(self.names, Column(ColumnType.TEXT, optional=True))
        with suppress(SourceError):
            blocks, is_all = self.take(texts)
            if not any(reject.column for _, block in blocks for reject in block.rejects):
                self._read = {(name, texts[name], False): _reading(name, blocks, is_all) for name in texts}

    def whole(self) -> "SourceSample":
        """Returns a sample that is all rows, where the sources are small; else this one."""
        if not self.data.is_whole or sum(file.bytes for file in self.data.files) > WHOLE_BYTES:
            return self
        whole = SourceSample(self.origin, self.data, ALL_ROWS)
        whole.always = self.always
        return whole

    def first_reject(self) -> str:
        """Says where the first row lies that is a reject whatever is read of it, and why; nothing where none is."""
        for reader in self.readers:
            for chunk in reader.plan(self.files, {}, CHUNK_BYTES).chunks:
                for reject in chain.from_iterable(block.rejects for block in reader.read(chunk, self.files, {}, ())):
                    file, line = reader.locate(chunk, reject.position)
                    return f"; {file}{f', line {line}' if line else ''}: {reject.message}"
        return ""

    def take(
        self, columns: Columns, key: Sequence[str] | None = (), rows: int | None = None
    ) -> tuple[list[tuple[int, Block]], bool]:
        """Reads about so many rows, evenly spread over the sources; `key` is as `SourceReader.read` takes it.

        Returns blocks, each with the number of its source; and whether there are no other rows. Raises: SourceError: a
        source cannot be read so; OSError.
        """
        asked = {**self.always, **columns}
        plans = self._plans or [reader.plan(self.files, asked, CHUNK_BYTES) for reader in self.readers]
        chunks = [(number, chunk) for number, plan in enumerate(plans) for chunk in plan.chunks]
        rows = rows or self._rows
        chosen = spread(chunks, max(CHUNKS, rows // ROWS))
        blocks, is_all = list[tuple[int, Block]](), self.is_whole and len(chosen) == len(chunks)
        for number, chunk in chosen:
            limit = -(-rows // len(chosen))
            for block in self.readers[number].read(chunk, self.files, asked, key):
                kept = _thinned(block, limit)
                blocks.append((number, kept))
                is_all &= count_rows(kept) == count_rows(block)
                limit -= count_rows(kept)
                if not is_all and not limit:
                    break
        return blocks, is_all


def _reading(name: str, blocks: Sequence[tuple[int, Block]], is_all: bool) -> Reading:
    """A column of some blocks."""
    values = [value for _, block in blocks for value in block.table[name].to_pylist()]
    rejected = sum(reject.column == name for _, block in blocks for reject in block.rejects)
    filled = [value for value in values if value is not None]
    of = in_words(len(values) + rejected, is_all=is_all)
    return Reading(filled, len(values) - len(filled), rejected, of, is_all)


def in_words(rows: int, *, is_all: bool) -> str:
    """A number of rows in words: `the 20 rows`, `1,000 sampled rows`."""
    if rows == 1:
        return "the only row" if is_all else "1 sampled row"
    return f"the {rows:,} rows" if is_all else f"{rows:,} sampled rows"


def count_rows(block: Block) -> int:
    """The number of rows of a block, rejects included."""
    return block.table.num_rows + len(block.rejects)


def _thinned(block: Block, limit: int) -> Block:
    """At most so many of a block's rows, good and bad, evenly spread."""
    if count_rows(block) <= limit:
        return block
    good = block.table["@position"].to_pylist()
    kept = set(spread(sorted([*good, *(reject.position for reject in block.rejects)]), limit))
    rejects = [reject for reject in block.rejects if reject.position in kept]
    chosen = pa.array([row in kept for row in good], pa.bool_())  # without its type, an empty one is of nulls
    return replace(block, table=block.table.filter(chosen), rejects=rejects)


def _columns(source: SourceOptions, plan: Plan) -> list[str]:
    """A source's columns; the images of a tar file's samples, of whatever format, are one of them."""
    if source.format != "webdataset":
        return list(plan.names)
    images = [name for name in plan.names if f".{name}" in SUFFIXES]
    held = {KEY, *images, *(name.rpartition(".")[0] for name in plan.names)}  # `json`, whose fields are columns
    others = [name for name in plan.names if name not in held]
    return [";".join(images), *others] if images else others
