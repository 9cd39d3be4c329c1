"""A sample of rows: parts of files, read by the sources themselves, to count rows and rejects as a build does."""

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

from recordmill.pipeline.init.belonging import HEAD_BYTES, SENTENCES
from recordmill.pipeline.init.dialect import numbered_pixels
from recordmill.pipeline.init.recognize import CELLS, IMAGES, Recognized
from recordmill.pipeline.sources.batches import spread
from recordmill.pipeline.sources.encoded import EncodedFile, codec, is_plain, open_utf8
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.csv_records import Dialect, read_records
from recordmill.pipeline.sources.formats.image_folder import NAMES
from recordmill.pipeline.sources.formats.json_document import closed
from recordmill.pipeline.sources.formats.webdataset import KEY
from recordmill.pipeline.sources.globs import glob_pattern
from recordmill.pipeline.sources.options import AnnotatedImages, AnySource, DelimitedOptions, SourceOptions
from recordmill.pipeline.sources.paths import SUFFIXES
from recordmill.pipeline.sources.source_reader import UNREAD, Block, Plan
from recordmill.transforms.base.columns import Column, Columns, ColumnType

LINES = (*CELLS, *SENTENCES, "json", "jsonl", "text")  # formats with first rows that are cut off large files
SOURCE: TypeAdapter[SourceOptions] = TypeAdapter(AnySource)
PARTS: Columns = {  # the columns of annotated objects that a plan holds only if they are asked
    "shapes": Column(ColumnType.OBJECTS, optional=True),
    "keypoints": Column(ColumnType.NUMBER, many=True, optional=True),
}
ROWS, CHUNKS = 1_000, 32
TOKENS = 16  # lines of a sentence
ALL_ROWS = 1 << 40
FEW_COLUMNS, MOST_PARSED = 500, 250_000  # columns; and all, times those looked at: each is read by parsing all

WHOLE_BYTES = 32 << 20  # 32 MiB: one column of it is read in about a second
PIECE_BYTES = 64 << 10  # 64 KiB, read at once for the first rows
PART_BYTES = 16 << 20  # 16 MiB: later rows are not read, unless one row is larger
CHUNK_BYTES = 64 << 20  # 64 MiB, to make a part one chunk; remote files up to this size are held in memory


class SampledFiles(Files):
    """Files for sampling: the first rows of a large text file; other files unchanged."""

    def __init__(self, files: Files, source: SourceOptions, listed: Sequence[FileInfo], rows: int = ROWS) -> None:
        """Reads the first rows, about `rows` in all files, with the options of `source`."""
        self._files = files
        self._shown = {file.path: file for file in listed}
        self._held: dict[str, bytes] = {}
        limit = math.ceil(rows / max(1, len(listed)))
        for file in listed:
            name, form = posixpath.basename(file.path), source.format  # '' for a file that is a row, or a part of one
            if form == IMAGES:
                form = posixpath.splitext(name)[1][1:] if name in NAMES else ""
            form = "" if getattr(source, "document", "line") == "file" else form
            part = _first_rows(files, source, file.path, form, limit) if form in LINES and rows < ALL_ROWS else None
            if part is not None:
                self._held[file.path], self._shown[file.path] = part, file._replace(bytes=len(part))
            elif form and "://" in file.path and file.bytes <= CHUNK_BYTES:
                with files.open(file.path) as opened:
                    self._held[file.path] = opened.read()  # read many times later
        self.is_whole: bool = list(self._shown.values()) == list(listed)  # whether these files keep all their rows

    def match(self, pattern: str) -> list[FileInfo]:
        matches = glob_pattern(pattern).fullmatch
        return [file for path, file in sorted(self._shown.items()) if path == pattern or matches(path)]

    def is_folder(self, path: str) -> bool:
        return any(file.startswith(f"{path.rstrip('/')}/") for file in self._shown) or self._files.is_folder(path)

    def open(self, path: str) -> BinaryIO:
        held = self._held.get(path)
        return self._files.open(path) if held is None else io.BytesIO(held)


def _first_rows(files: Files, source: SourceOptions, path: str, form: str, rows: int) -> bytes | None:
    """Returns a text file's first rows, still compressed and encoded; None if these are all."""
    plain = Dialect("\t" if form == "tsv" else ",", '"' if form in CELLS else None)
    dialect = Dialect.of(source) if isinstance(source, DelimitedOptions) else plain
    rows *= TOKENS if form in SENTENCES else 1
    most = math.inf if source.joined else PART_BYTES  # joined files keep equally many lines
    encoding = getattr(source, "encoding", "utf-8")
    with open_utf8(files, path, "utf-8" if is_plain(encoding) else encoding) as opened:
        if form == "json":  # closed behind a row or a part of one
            head = opened.read(HEAD_BYTES).decode("latin-1")
            part = closed(head)[0].encode("latin-1") if opened.read(1) else None
        else:
            part = _cut(opened, dialect, rows, most)
    if part and not is_plain(encoding):
        errors = "surrogatepass" if encoding.lower().startswith("utf") else "surrogateescape"  # keeps invalid bytes
        part = part.decode("utf-8", "surrogateescape").encode(encoding, errors)
    if part is None or not codec(path):
        return part
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec(path)) as compressed:
        compressed.write(part)
    return cast(bytes, sink.getvalue().to_pybytes())


def _cut(file: EncodedFile, dialect: Dialect, rows: int, most: float) -> bytes | None:
    """Returns the first rows, even if one is huge; None if these are all."""
    kept = b""
    for records in read_records(file, dialect, PIECE_BYTES):
        if not rows or len(kept) > most:
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

    values: list[Any] = field(default_factory=list)  # the rows' values, in order, without missing ones
    missing: int = 0  # the number of rows without a value
    rejected: int = 0  # the number of rows with another type
    of: str = "0 rows"  # the rows in words: `1,000 sampled rows`
    is_all: bool = True  # whether the sample has all rows
    why: str = ""  # the reason why no row could be read, if any

    @property
    def rows(self) -> int:
        return len(self.values) + self.missing + self.rejected

    @property
    def fit(self) -> float:
        """The share of rows with a value that fit, 0..1; 0 if all lack one."""
        return len(self.values) / max(1, len(self.values) + self.rejected)

    @cached_property
    def distinct(self) -> dict[Any, int]:
        """The count of each value, most frequent first, then in order; lists count by value."""
        each = ([value] if not isinstance(value, list) else value for value in self.values)
        return dict(Counter(chain.from_iterable(each)).most_common())


class SourceSample:
    """About 1,000 rows, or as many as asked, of sources of one format with the same options."""

    def __init__(self, files: Files, data: Recognized, rows: int = ROWS) -> None:
        """Reads parts of the sources' files, and plans each to learn its columns. Raises: SourceError, OSError."""
        self.sources: list[SourceOptions] = [SOURCE.validate_python(dict(options)) for options in data.sources]
        self.readers = list(map(reader_of, self.sources))
        self.files = SampledFiles(files, self.sources[0], data.files, rows)
        self.data, self.origin, self._rows = data, files, rows
        self.is_whole = data.is_whole and self.files.is_whole
        self.always: Columns = {}  # columns to read with any other, because it depends on them
        self._read: dict[tuple[str, Column, bool], Reading] = {}
        plans = [reader.plan(self.files, {}, CHUNK_BYTES) for reader in self.readers]
        # A large table of annotations is planned only once, and again when parts of objects are asked.
        self._plans = plans if isinstance(self.sources[0], AnnotatedImages) else None
        self._has_parts = False
        forms = ("coco", "labelme", "via", "json", *SENTENCES)
        noted = plans if self.is_whole and self.sources[0].format in forms else []
        self.notes = [each for plan in noted for each in plan.notes if not each.startswith(UNREAD)]
        """Notes of plans that read all rows."""
        self.names_of = [_columns(source, plan) for source, plan in zip(self.sources, plans, strict=True)]
        names = list(dict.fromkeys(chain.from_iterable(self.names_of)))
        self.names = names[: MOST_PARSED // max(len(names), FEW_COLUMNS)]
        if more := len(names) - len(self.names):
            self.notes.append(f"columns behind the first {len(self.names)}, which alone were looked at: {more:,}")
        self.of_path = plans[0].of_path
        classes = chain.from_iterable(plan.stated.get("classes", ()) for plan in plans)
        first = {name: [*each] for plan in reversed(plans) for name, each in plan.stated.items() if each}
        self.stated: dict[str, list[Any]] = {**first, "classes": [*dict.fromkeys(classes)]}
        """Classes of all files, and key points of the first: names, pairs and skeleton, as files state them."""
        if self.sources[0].format in CELLS:
            texts = dict.fromkeys(self.names, Column(ColumnType.TEXT, optional=True))
            with suppress(SourceError):  # all at once; each is a text unless its encoding is wrong
                blocks, is_all = self.take(texts)
                if not any(reject.column for _, block in blocks for reject in block.rejects):
                    self._read = {(name, texts[name], False): _reading(name, blocks, is_all) for name in texts}

    def read(self, name: str, kind: ColumnType, **more: Any) -> Reading:
        """Reads a column as a type, with more options of it, counting rows without it; empty if none can be read."""
        column = Column(kind, optional=True, **more)
        asked = name, column, bool(self.always)
        if asked not in self._read:
            try:
                self._read[asked] = _reading(name, *self.take({name: column}))
            except SourceError as error:
                self._read[asked] = Reading(why=str(error))
        return self._read[asked]

    @property
    def is_grouped(self) -> bool:
        """Whether rows of the tables are joined."""
        return bool(getattr(self.sources[0], "group", ()))

    def whole(self) -> "SourceSample":
        """Returns a sample of all rows if the sources are small, else this one."""
        if not self.data.is_whole or sum(file.bytes for file in self.data.files) > WHOLE_BYTES:
            return self
        whole = SourceSample(self.origin, self.data, ALL_ROWS)
        whole.always = self.always
        return whole

    def first_reject(self) -> str:
        """Returns the place and message of the first row that is always a reject; '' without one."""
        for reader in self.readers:
            for chunk in reader.plan(self.files, {}, CHUNK_BYTES).chunks:
                for reject in chain.from_iterable(block.rejects for block in reader.read(chunk, self.files, {}, ())):
                    file, line = reader.locate(chunk, reject.position)
                    return f"; {file}{f', line {line}' if line else ''}: {reject.message}"
        return ""

    def take(
        self, columns: Columns, key: Sequence[str] | None = (), rows: int | None = None
    ) -> tuple[list[tuple[int, Block]], bool]:
        """Reads about `rows` rows, evenly spread over the sources; `key` is as in `SourceReader.read`.

        Returns blocks with their source's number, and whether these are all rows. Raises: SourceError, OSError.
        """
        asked = {**self.always, **columns}
        plans = self._plans
        if plans is None:
            plans = [reader.plan(self.files, asked, CHUNK_BYTES) for reader in self.readers]
        elif PARTS.keys() & asked.keys() and not self._has_parts:
            plans = self._plans = [reader.plan(self.files, PARTS, CHUNK_BYTES) for reader in self.readers]
            self._has_parts = True
        chunks = [(number, chunk) for number, plan in enumerate(plans) for chunk in plan.chunks]
        rows = rows or self._rows
        chosen = spread(chunks, max(CHUNKS, rows // ROWS))
        blocks, is_all = list[tuple[int, Block]](), self.is_whole and len(chosen) == len(chunks)
        for number, chunk in chosen:
            limit = -(-rows // len(chosen))
            for block in self.readers[number].read(chunk, self.files, asked, key):
                kept = block
                if count_rows(block) > limit:  # good and bad rows, evenly spread
                    good = block.table["@position"].to_pylist()
                    positions = {*spread(sorted([*good, *(reject.position for reject in block.rejects)]), limit)}
                    some = pa.array([row in positions for row in good], pa.bool_())  # an empty array needs the type
                    rejects = [reject for reject in block.rejects if reject.position in positions]
                    kept = replace(block, table=block.table.filter(some), rejects=rejects)
                blocks.append((number, kept))
                is_all &= count_rows(kept) == count_rows(block)
                limit -= count_rows(kept)
                if not is_all and not limit:
                    break
        return blocks, is_all


def _reading(name: str, blocks: Sequence[tuple[int, Block]], is_all: bool) -> Reading:
    values = [value for _, block in blocks for value in block.table[name].to_pylist()]
    rejected = sum(reject.column == name for _, block in blocks for reject in block.rejects)
    filled = [value for value in values if value is not None]
    of = in_words(len(values) + rejected, is_all=is_all)
    return Reading(filled, len(values) - len(filled), rejected, of, is_all)


def in_words(rows: int, *, is_all: bool) -> str:
    """Describes a number of rows: `the 20 rows`, `1,000 sampled rows`."""
    if rows == 1:
        return "the only row" if is_all else "1 sampled row"
    return f"the {rows:,} rows" if is_all else f"{rows:,} sampled rows"


def count_rows(block: Block) -> int:
    """Counts a block's rows, including rejects."""
    return block.table.num_rows + len(block.rejects)


def _columns(source: SourceOptions, plan: Plan) -> list[str]:
    """Lists a source's columns; the images of a tar file's samples, of any format, are one, as are numbered pixels."""
    if source.format != "webdataset":
        names = list(source.by_asked_names(dict.fromkeys(plan.names)))
        return numbered_pixels(names) if source.format in CELLS else names
    images = [name for name in plan.names if f".{name}" in SUFFIXES]
    held = {KEY, *images, *(name.rpartition(".")[0] for name in plan.names)}  # `json`, with its fields as columns
    others = [name for name in plan.names if name not in held]
    return [";".join(images), *others] if images else others
