"""A sample of the rows of some sources: parts of their files, which the sources themselves read.

So a guess is right by construction: what is counted here is what a build reads, and rejects.
"""

import io
import math
import posixpath
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, BinaryIO, cast

import pyarrow as pa

from recordmill.pipeline.init.recognize import CELLS, IMAGES, SHOWN_IMAGES, spread
from recordmill.pipeline.sources.base import Block, FileInfo, Files, Source, SourceError
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.compression import codec, open_plain
from recordmill.pipeline.sources.csv.records import Dialect, read_records
from recordmill.pipeline.sources.globs import glob_pattern
from recordmill.pipeline.sources.image_folder.image_paths import OF_PATH
from recordmill.pipeline.sources.image_folder.metadata import NAMES, metadata_files, metadata_names
from recordmill.pipeline.sources.image_folder.metadata_fields import ImageFields
from recordmill.pipeline.sources.image_folder.source import ImageFolder
from recordmill.pipeline.sources.paths import SUFFIXES, is_image
from recordmill.pipeline.sources.table import Table
from recordmill.pipeline.sources.text.rows import FILE_NAME, LABEL
from recordmill.pipeline.sources.webdataset.sample_columns import KEY

LINES = (*CELLS, "jsonl", "text")
"""The formats whose files are cut where a line ends."""
ROWS, FILES, CHUNKS = 1_000, 16, 32
CHUNK_BYTES = 64 << 10  # 64 KiB
PART_BYTES = 16 << 20  # 16 MiB: rows behind these are not read, unless it is one huge row
HELD_BYTES = 64 << 20  # 64 MiB: of a file that is far away, and of a chunk that is a whole part


class SampledFiles:
    """Some files of a listing, large ones of text cut where a row ends; any other file is opened as it is."""

    def __init__(self, files: Files, sources: Sequence[Source], listed: Sequence[FileInfo]) -> None:
        """Chooses files of each source, and reads the parts that are shown."""
        self._files = files
        self._parts: dict[str, bytes] = {}
        chosen = [(source, *_chosen(source, listed)) for source in sources]
        self._shown = {file.path: file for _, shown, _ in chosen for file in shown}
        self.is_whole: bool = all(is_all for _, _, is_all in chosen)
        """Whether no row is left out."""
        rows = math.ceil(ROWS / max(1, len(self._shown)))
        for source, file in [(source, file) for source, shown, _ in chosen for file in shown]:
            part = _part(files, source, file, rows)
            if part is not None:
                self._parts[file.path], self._shown[file.path] = part, replace(file, bytes=len(part))
                self.is_whole &= len(part) == file.bytes

    def match(self, pattern: str) -> list[FileInfo]:
        """Lists the shown files that a glob matches."""
        matches = glob_pattern(pattern).fullmatch
        return [file for path, file in sorted(self._shown.items()) if path == pattern or matches(path)]

    def is_folder(self, path: str) -> bool:
        """Whether `path` is a folder."""
        return any(file.startswith(f"{path.rstrip('/')}/") for file in self._shown)

    def open(self, path: str) -> BinaryIO:
        """Opens a file, or the part of it that is shown. Raises: OSError when it is missing or unreadable."""
        part = self._parts.get(path)
        return self._files.open(path) if part is None else io.BytesIO(part)


def _chosen(source: Source, listed: Sequence[FileInfo]) -> tuple[list[FileInfo], bool]:
    """The files that a source is shown, and whether these are all of its files."""
    if source.format == IMAGES:
        return list(listed), sum(is_image(file.path) for file in listed) < SHOWN_IMAGES
    matches = glob_pattern(source.path).fullmatch
    rows = [file for file in listed if file.path == source.path or matches(file.path)]
    shown = spread(rows, ROWS if getattr(source, "document", "line") == "file" else FILES)
    return shown, len(shown) == len(rows)


def _part(files: Files, source: Source, file: FileInfo, rows: int) -> bytes | None:
    """About so many rows of a large file of text; None where the file is shown as it is."""
    name, form = posixpath.basename(file.path), source.format
    if form == IMAGES:
        form = posixpath.splitext(name)[1][1:] if name in NAMES else ""
    if not form or getattr(source, "document", "line") == "file":
        return None
    part = _some_rows(files, file, getattr(source, "separator", ","), rows, form) if form in LINES else None
    if part is None and "://" in file.path and file.bytes <= HELD_BYTES:
        with files.open(file.path) as opened:
            return opened.read()  # it is read many times
    return part


def _some_rows(files: Files, file: FileInfo, separator: str, rows: int, form: str) -> bytes | None:
    """Rows of a file of text, evenly spread where they can be, since they are often sorted; None where it has no more.

    Between quotes, and in a compressed file, only the beginning shows where a row starts.
    """
    dialect = Dialect(separator, '"' if form in CELLS else None)
    with open_plain(files, file.path) as opened:
        first, is_all = _first_rows(opened, dialect, rows)
    if is_all:
        return None
    if codec(file.path):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec(file.path)) as compressed:
            compressed.write(first)
        return cast(bytes, sink.getvalue().to_pybytes())
    lines = _spread_lines(files, file, rows)
    return first if dialect.quote and b'"' in lines else lines


def _spread_lines(files: Files, file: FileInfo, rows: int) -> bytes:
    """About so many lines of a file, the first one included, however long one of them is."""
    lines, pieces = list[bytes](), min(FILES, rows)
    with files.open(file.path) as opened:
        for piece in range(pieces):
            start = file.bytes * piece // pieces
            if start > opened.tell():  # behind a huge line the next piece starts at its end
                opened.seek(start - 1)
                opened.readline()
            lines += (opened.readline() for _ in range(rows // pieces))
    return b"".join(lines)


def _first_rows(file: BinaryIO, dialect: Dialect, rows: int) -> tuple[bytes, bool]:
    """The first rows, however large one of them is, and whether there are no others."""
    kept = b""
    for records in read_records(file, dialect, CHUNK_BYTES):
        if not rows or len(kept) > PART_BYTES:
            return kept, False
        ends = [*records.starts[1:].tolist(), records.end][:rows]
        kept += records.data[: ends[-1]]
        if ends[-1] < records.end:
            return kept, False
        rows -= len(ends)
    return kept, True


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
        counts: dict[Any, int] = {}
        for item in chain.from_iterable(value if isinstance(value, list) else [value] for value in self.values):
            counts[item] = counts.get(item, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


class Sample:
    """About 1,000 rows of sources that are alike: of the same format, with the same options."""

    def __init__(self, files: Files, sources: Sequence[Source], listed: Sequence[FileInfo]) -> None:
        """Reads parts of the sources' files, which are among those listed."""
        self.sources = tuple(sources)
        self.files = SampledFiles(files, sources, listed)
        self.always: Columns = {}
        """Columns that are read with any other, because it depends on them."""
        self.headers: dict[tuple[int, bytes], tuple[int, int] | str] = {}
        """By source and reference of an image: its size, or the reason of its reject."""
        self._read: dict[tuple[str, Column, bool], Reading] = {}
        columns = [_columns(source, self.files) for source in self.sources]
        self.names_of = [names for names, _ in columns]
        """The columns of each source."""
        self.names = list(dict.fromkeys(chain.from_iterable(self.names_of)))
        self.of_path = columns[0][1]
        """The columns that come of a row's path."""

    def read(self, name: str, kind: ColumnType, *, many: bool = False) -> Reading:
        """Reads a column as a type, rows that lack it included; nothing where no row can be read so."""
        column = Column(kind, many=many, optional=True)
        asked = name, column, bool(self.always)
        if asked not in self._read:
            self._read[asked] = Reading()
            with suppress(SourceError):
                blocks, is_all = self.take({name: column})
                values = [value for _, block in blocks for value in block.table[name].to_pylist()]
                rejected = sum(reject.column == name for _, block in blocks for reject in block.rejects)
                filled = [value for value in values if value is not None]
                of = in_words(len(values) + rejected, is_all=is_all)
                self._read[asked] = Reading(filled, len(values) - len(filled), rejected, of, is_all)
        return self._read[asked]

    def take(
        self, columns: Columns, key: Sequence[str] | None = (), rows: int = ROWS
    ) -> tuple[list[tuple[int, Block]], bool]:
        """Reads about so many rows, evenly spread over the sources; `key` is as `Source.read` takes it.

        Returns:
            Blocks, each with the number of its source; and whether there are no other rows.

        Raises:
            SourceError: a source cannot be read, or not so.
            OSError: a file cannot be read any more.
        """
        asked = {**self.always, **columns}
        size = HELD_BYTES if self.sources[0].format in LINES else CHUNK_BYTES
        plans = [source.plan(self.files, asked, size) for source in self.sources]
        chunks = [(number, chunk) for number, plan in enumerate(plans) for chunk in plan.chunks]
        chosen = spread(chunks, CHUNKS)
        blocks, is_all = list[tuple[int, Block]](), self.files.is_whole and len(chosen) == len(chunks)
        for done, (number, chunk) in enumerate(chosen):
            limit = math.ceil(rows / (len(chosen) - done))
            for block in self.sources[number].read(chunk, self.files, asked, key):
                kept = _thinned(block, limit)
                blocks.append((number, kept))
                is_all &= count_rows(kept) == count_rows(block)
                rows, limit = rows - count_rows(kept), limit - count_rows(kept)
                if not is_all and not limit:
                    break
        return blocks, is_all


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
    return replace(block, table=block.table.filter(pa.array([row in kept for row in good])), rejects=rejects)


def _columns(source: Source, files: Files) -> tuple[list[str], Sequence[str]]:
    """A source's columns, and those of them that come of a row's path.

    Raises:
        SourceError: it cannot be read.
    """
    inputs, root = source.plan(files, {}, CHUNK_BYTES).inputs, source.root(files)
    if isinstance(source, ImageFolder):
        metadata = metadata_names(metadata_files(inputs, root), root, files)
        if not metadata:
            return source.names(files), OF_PATH
        fields = ImageFields.of(dict.fromkeys(chain.from_iterable(metadata.values())))
        names = [name for name in source.names(files) if name not in fields.fields]
        return sorted(names, key=lambda name: name not in fields.columns), fields.of_path
    table = cast(Table, source)
    names = table.cut(files, root, inputs, {}, CHUNK_BYTES).names
    if source.format != "webdataset":
        return ([*names, LABEL], (FILE_NAME, LABEL)) if source.format == "text" else (names, ())
    objects = {f"{name}.*": Column(ColumnType.TEXT, optional=True) for name in names if name.split(".")[-1] == "json"}
    names = table.cut(files, root, inputs, objects, CHUNK_BYTES).names
    images = [name for name in names if f".{name}" in SUFFIXES]  # of several formats: one column
    held = {KEY, *images, *(name.rpartition(".")[0] for name in names)}  # such as `json`, whose fields are columns
    others = [name for name in names if name not in held and not name.endswith(".*")]
    return [";".join(images), *others] if images else others, ()
