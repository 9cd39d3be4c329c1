"""A sample of the rows of some sources: parts of their files, which the sources themselves read.

So a guess is right by construction: what is counted here is what a build reads, and rejects.
"""

import io
import math
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, BinaryIO, cast

import pyarrow as pa

from recordmill.pipeline.init.recognize import IMAGES, spread
from recordmill.pipeline.sources.base import Block, FileInfo, Files, Source, SourceError
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.compression import codec, open_plain
from recordmill.pipeline.sources.csv.records import Dialect, read_records
from recordmill.pipeline.sources.encoded import can_start_anywhere
from recordmill.pipeline.sources.globs import glob_pattern
from recordmill.pipeline.sources.image_folder.captions import OBJECT_ENDING, TEXT_ENDING, beside
from recordmill.pipeline.sources.image_folder.image_paths import OF_PATH
from recordmill.pipeline.sources.image_folder.metadata import NAMES, metadata_files, metadata_names
from recordmill.pipeline.sources.image_folder.metadata_fields import PictureFields
from recordmill.pipeline.sources.image_folder.source import ImageFolder
from recordmill.pipeline.sources.paths import SUFFIXES, is_image
from recordmill.pipeline.sources.table import Table
from recordmill.pipeline.sources.text.rows import FILE_NAME, LABEL, LINE
from recordmill.pipeline.sources.tfrecord.frames import walk
from recordmill.pipeline.sources.webdataset.sample_columns import KEY
from recordmill.pipeline.sources.webdataset.tar_members import DamagedTarError, Tar
from recordmill.pipeline.sources.webdataset.tar_samples import samples

ROWS = 1_000
FILES = 16
CHUNKS = 32
PIECE_BYTES = 64 << 10  # 64 KiB
RECORD_BYTES = 8 << 20  # 8 MiB: of a file of records that may hold images
PART_BYTES = 16 << 20  # 16 MiB: rows behind these are not read, unless it is one huge row
WHOLE_BYTES = 64 << 20  # 64 MiB: a chunk that is a whole part; what is held of a file that is far away
CELLS = ("csv", "tsv")


class SampledFiles:
    """Some files of a listing, each shown up to a row's end; any other file is opened as it is."""

    def __init__(self, files: Files, sources: Sequence[Source], listed: Sequence[FileInfo]) -> None:
        """Chooses files of each source, and reads the parts that are shown."""
        self._files = files
        self._parts: dict[str, bytes] = {}
        chosen = [(source, *_chosen(source, listed)) for source in sources]
        self.is_whole: bool = all(is_all for _, _, is_all in chosen)
        """Whether no row is left out."""
        self._shown = {file.path: file for _, shown, _ in chosen for file in shown}
        rows = math.ceil(ROWS / max(1, len(self._shown)))
        for source, shown, _ in chosen:
            for file in shown:
                part = _part(files, source, file, rows)
                if part is not None:
                    self._parts[file.path] = part
                    self._shown[file.path] = replace(file, bytes=len(part))
                    self.is_whole &= len(part) == file.bytes

    def match(self, pattern: str) -> list[FileInfo]:
        """Lists the shown files that a glob matches."""
        matches = glob_pattern(pattern).fullmatch
        return [file for path, file in sorted(self._shown.items()) if path == pattern or matches(path)]

    def is_folder(self, path: str) -> bool:
        """Whether `path` is a folder."""
        start = f"{path.rstrip('/')}/"
        return any(file.startswith(start) for file in self._shown)

    def open(self, path: str) -> BinaryIO:
        """Opens a file, or the part of it that is shown. Raises: OSError when it is missing or unreadable."""
        part = self._parts.get(path)
        return self._files.open(path) if part is None else io.BytesIO(part)


def _chosen(source: Source, listed: Sequence[FileInfo]) -> tuple[list[FileInfo], bool]:
    """The files that a source is shown, and whether these are all of its files."""
    if source.format == IMAGES:
        rows = [file for file in listed if posixpath.basename(file.path) in NAMES]
        if not rows:
            images = [file for file in listed if is_image(file.path)]
            shown = spread(images, ROWS)
            near = {beside(file.path, ending) for file in shown for ending in (TEXT_ENDING, OBJECT_ENDING)}
            return shown + [file for file in listed if file.path in near], len(shown) == len(images)
    else:
        matches = glob_pattern(source.path).fullmatch
        rows = [file for file in listed if file.path == source.path or matches(file.path)]
    shown = spread(rows, ROWS if _is_listing(source) else FILES)
    return shown, len(shown) == len(rows)


def _is_listing(source: Source) -> bool:
    """Whether each file is a row."""
    return getattr(source, "document", "line") == "file"


def _part(files: Files, source: Source, file: FileInfo, rows: int) -> bytes | None:
    """About so many rows of a file; None where the file is shown as it is."""
    name, form = posixpath.basename(file.path), source.format
    if form == IMAGES:
        form = posixpath.splitext(name)[1][1:] if name in NAMES else ""
    if not form or _is_listing(source):
        return None
    if form in ("tfrecord", "webdataset"):
        part = _first_records(files, file, form, rows)
    elif form == "parquet" or not can_start_anywhere("", getattr(source, "encoding", "utf-8")):
        part = None
    else:
        separator, quote = getattr(source, "separator", ","), getattr(source, "quote", '"') if form in CELLS else None
        part = _some_rows(files, file, Dialect(separator, quote), rows)
    if part is None and "://" in file.path and file.bytes <= WHOLE_BYTES:
        with files.open(file.path) as opened:
            return opened.read()  # it is read many times
    return part


def _some_rows(files: Files, file: FileInfo, dialect: Dialect, rows: int) -> bytes | None:
    """Rows of a file of text, evenly spread where they can be; None where it has no more.

    Rows are often sorted. Between quotes, and in a compressed file, only the beginning shows where a row starts.
    """
    with open_plain(files, file.path) as opened:
        first, is_all = _first_rows(opened, dialect, rows)
    if is_all:
        return None
    if codec(file.path):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec(file.path)) as compressed:
            compressed.write(first)
        return cast(bytes, sink.getvalue().to_pybytes())
    with files.open(file.path) as opened:
        lines = _spread_lines(opened, file.bytes, rows)
    return first if dialect.quote and dialect.quote.encode() in lines else lines


def _first_rows(file: BinaryIO, dialect: Dialect, rows: int) -> tuple[bytes, bool]:
    """The first rows, however large one of them is, and whether there are no others."""
    kept = b""
    for records in read_records(file, dialect, PIECE_BYTES):
        if not rows or len(kept) > PART_BYTES:
            return kept, False
        ends = [*records.starts[1:].tolist(), records.end][:rows]
        kept += records.data[: ends[-1]]
        if ends[-1] < records.end:
            return kept, False
        rows -= len(ends)
    return kept, True


def _spread_lines(file: BinaryIO, size: int, rows: int) -> bytes:
    """Lines from places that are evenly spread; behind a huge one the next place is its end."""
    pieces = min(FILES, rows)
    lines, end = list[bytes](), 0
    for piece in range(pieces):
        start = max(end, size * piece // pieces)
        if start:
            file.seek(start - 1)
            end = start - 1 + len(file.readline())
        stop = end + PART_BYTES // pieces
        for line in islice(iter(file.readline, b""), rows // pieces):
            lines.append(line)
            end += len(line)
            if end > stop:
                break
    return b"".join(lines)


def _first_records(files: Files, file: FileInfo, form: str, rows: int) -> bytes | None:
    """The first records, or samples, of a file; None where it has no others, or is compressed."""
    with files.open(file.path) as opened:
        data = opened.read(RECORD_BYTES)
    starts = list(islice(_starts(data, form), rows + 1))
    return data[: starts[-1]] or None if starts and (len(data) < file.bytes or len(starts) > rows) else None


def _starts(data: bytes, form: str) -> Iterator[int]:
    """The offsets of records, or samples, in the beginning of a file."""
    if form == "tfrecord":
        yield from walk(io.BytesIO(data), len(data))
        return
    with suppress(DamagedTarError):
        for sample in samples(Tar(io.BytesIO(data), size=len(data)), (), lambda _: None):
            yield sample.start


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


@dataclass(frozen=True)
class Taken:
    """Some rows of sources."""

    blocks: list[tuple[int, Block]]
    """Each with the number of its source."""
    is_all: bool
    """Whether there are no others."""

    @property
    def rows(self) -> int:
        """The number of rows, rejects included."""
        return sum(_rows(block) for _, block in self.blocks)

    def words(self, rows: int) -> str:
        """So many of the rows in words: `the 20 rows`, `1,000 sampled rows`."""
        if rows == 1:
            return "the only row" if self.is_all else "1 sampled row"
        return f"the {rows:,} rows" if self.is_all else f"{rows:,} sampled rows"


class Sample:
    """About 1,000 rows of sources that are alike: of the same format, with the same options."""

    def __init__(self, files: Files, sources: Sequence[Source], listed: Sequence[FileInfo]) -> None:
        """Reads parts of the sources' files, which are among those listed."""
        self.sources = tuple(sources)
        self.files = SampledFiles(files, sources, listed)
        self._always: Columns = {}
        self._read: dict[tuple[str, Column], Reading] = {}
        found = [_columns(source, self.files) for source in self.sources]
        self.names_of = [names for names, _, _ in found]
        """The columns of each source."""
        self.names = list(dict.fromkeys(chain.from_iterable(self.names_of)))
        self.of_path = found[0][1]
        """The columns that come of a row's path."""
        self.differ: bool = any(differ or {*names} != {*self.names} for names, _, differ in found)
        """Whether the files do not all have the same columns."""

    def with_columns(self, columns: Columns) -> "Sample":
        """The same sample, where some columns are read with any other, because it depends on them."""
        other = copy(self)
        other._always, other._read = columns, {}
        return other

    def read(self, name: str, kind: ColumnType, *, many: bool = False, separator: str = ",") -> Reading:
        """Reads a column as a type, rows that lack it included; nothing where no row can be read so."""
        column = Column(kind, many=many, optional=True, separator=separator)
        if (name, column) not in self._read:
            self._read[name, column] = Reading()
            with suppress(SourceError):
                self._read[name, column] = self._reading(name, self.take({name: column}))
        return self._read[name, column]

    def _reading(self, name: str, taken: Taken) -> Reading:
        values = [value for _, block in taken.blocks for value in block.table[name].to_pylist()]
        rejected = sum(reject.column == name for _, block in taken.blocks for reject in block.rejects)
        filled = [value for value in values if value is not None]
        of = taken.words(len(values) + rejected)
        return Reading(filled, len(values) - len(filled), rejected, of, taken.is_all)

    def take(self, columns: Columns, key: Sequence[str] | None = (), rows: int = ROWS) -> Taken:
        """Reads about so many rows, evenly spread over the sources; `key` is as `Source.read` takes it.

        Raises:
            SourceError: a source cannot be read, or not so.
            OSError: a file cannot be read any more.
        """
        asked = {**self._always, **columns}
        cuts = self.sources[0].format in ("parquet", IMAGES)
        plans = [source.plan(self.files, asked, PIECE_BYTES if cuts else WHOLE_BYTES) for source in self.sources]
        chunks = [(number, chunk) for number, plan in enumerate(plans) for chunk in plan.chunks]
        chosen = spread(chunks, CHUNKS)
        blocks, is_all = list[tuple[int, Block]](), self.files.is_whole and len(chosen) == len(chunks)
        for done, (number, chunk) in enumerate(chosen):
            limit = math.ceil(rows / (len(chosen) - done))
            for block in self.sources[number].read(chunk, self.files, asked, key):
                kept = _thinned(block, limit)
                blocks.append((number, kept))
                is_all &= _rows(kept) == _rows(block)
                rows, limit = rows - _rows(kept), limit - _rows(kept)
                if not is_all and not limit:
                    break
        return Taken(blocks, is_all)


def _thinned(block: Block, limit: int) -> Block:
    """At most so many of a block's rows, good and bad, evenly spread."""
    if _rows(block) <= limit:
        return block
    good = block.table["@position"].to_pylist()
    kept = set(spread(sorted([*good, *(reject.position for reject in block.rejects)]), limit))
    rejects = [reject for reject in block.rejects if reject.position in kept]
    return replace(block, table=block.table.filter(pa.array([row in kept for row in good])), rejects=rejects)


def _rows(block: Block) -> int:
    return block.table.num_rows + len(block.rejects)


def _columns(source: Source, files: Files) -> tuple[list[str], Sequence[str], bool]:
    """A source's columns, those of them that come of a row's path, and whether its files differ in their columns.

    Raises:
        SourceError: it cannot be read.
    """
    inputs = source.plan(files, {}, PIECE_BYTES).inputs
    root = source.root(files)
    if isinstance(source, ImageFolder):
        return _image_folder_columns(source, files, root, inputs)
    if not isinstance(source, Table):
        raise TypeError(source.format)
    names = source.cut(files, root, inputs, {}, PIECE_BYTES).names
    if source.format == "webdataset":
        objects = {
            f"{name}.*": Column(ColumnType.TEXT, optional=True) for name in names if name.split(".")[-1] == "json"
        }
        return _members(source.cut(files, root, inputs, objects, PIECE_BYTES).names), (), False
    if source.format == "text":
        return list(dict.fromkeys([*names, LABEL])), (FILE_NAME, LABEL, LINE), False
    if source.format not in (*CELLS, "parquet"):
        return names, (), False
    return names, (), len({frozenset(source.cut(files, root, [file], {}, PIECE_BYTES).names) for file in inputs}) > 1


def _members(names: Sequence[str]) -> list[str]:
    """The columns of a WebDataset; images of several formats are one column."""
    images = [name for name in names if f".{name}" in SUFFIXES]
    held = {name.rpartition(".")[0] for name in names}  # such as `json`, whose fields are columns
    others = [name for name in names if name not in (*images, *held, KEY) and not name.endswith(".*")]
    return [";".join(images), *others] if images else others


def _image_folder_columns(
    source: ImageFolder, files: Files, root: str, inputs: list[FileInfo]
) -> tuple[list[str], Sequence[str], bool]:
    metadata = metadata_files(inputs, root)
    if not metadata:
        return source.names(files), OF_PATH, False
    every = list(dict.fromkeys(chain.from_iterable(metadata_names(metadata, root, files).values())))
    fields = PictureFields.of(every)
    names = [name for name in fields.names(every) if name not in fields.fields]
    return sorted(names, key=lambda name: name not in fields.columns), fields.of_path, False
