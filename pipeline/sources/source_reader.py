"""The base of a source's reader, which plans chunks and reads each as Arrow rows.

A format plans chunks and parses them to `TypedRows`. The base names columns as the spec does, counts positions, checks
values, and makes the blocks: good rows and rejects. A row gets one fault: the first of the first bad asked column, the
same however rows are read together. Sources never import Beam: the job passes `Files`, which open all that Beam's
filesystems open.
"""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import merge
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.batches import unpack
from recordmill.pipeline.sources.encoded import CODECS, is_utf8
from recordmill.pipeline.sources.faults import Fault, Faults, Ints, NoRowError, Reject, SourceError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.globs import escape, folder_prefix, is_glob, without_slash
from recordmill.pipeline.sources.options import SourceOptions, TableOptions
from recordmill.pipeline.sources.paths import check_names, is_image, join, listed, may_be_image, note, planning
from recordmill.pipeline.sources.typing.arrays import without
from recordmill.pipeline.sources.typing.checks import UTF8, check_column, row_digests, row_key
from recordmill.transforms.base.columns import Column, Columns, ColumnType, ImageBase, required

UNREAD = "unused columns"
EMPTY = "empty files, left out"
FILES_AT_ONCE = 8
ROW_BYTES = 2 << 10  # 2 KiB: the cost of an image's row; 8 MiB are 4,096 images
IMAGES_CHUNK_BYTES = 64 << 20  # 64 MiB: 8 MiB would hold only a handful of images
SourceOf = TypeVar("SourceOf", bound=SourceOptions)
TableOf = TypeVar("TableOf", bound=TableOptions)
Item = TypeVar("Item")
Result = TypeVar("Result")
Key = Sequence[str] | None  # the columns of a row's key; None: the default key


@dataclass(frozen=True)
class Chunk:
    """A piece of a source, read by one worker."""

    index: int  # the chunk's number in the whole build, in order of (source, path, position)
    source: int  # the source's number in the spec, from 0
    file: str
    """The file, relative to the source's root (POSIX); '' for rows of several files, which `locate` finds by itself."""
    bytes: int
    work: Any = None  # the format's own description, such as a byte range or a list of names


@dataclass(frozen=True)
class WholeFiles:
    """The work of a chunk of whole files, one a row."""

    packed: bytes  # their names: a packed list

    @property
    def names(self) -> list[str]:
        """The files' names, relative to the source's root."""
        return unpacked(self.packed)


@lru_cache(maxsize=8)
def unpacked(packed: bytes) -> list[Any]:
    """Unpacks the rows of a chunk; caches the last few, since one chunk may have many rejects."""
    return list(unpack(packed))


@dataclass(frozen=True)
class Plan:
    """The result of planning a source, before its rows are read."""

    chunks: list[Chunk]
    rows: int  # the number of rows: exact for images, otherwise possibly estimated from the inputs' bytes
    bytes: int = 0  # the bytes to read, including images
    inputs: Sequence[FileInfo] = ()  # every used file, with paths relative to the root; part of the build key
    notes: list[str] = field(default_factory=list)  # notes for the user: ignored files, and why
    is_exact: bool = False
    names: Sequence[str] = ()  # the columns found, including nested ones; those from files' names and folders come last
    of_path: Sequence[str] = ()  # the columns that come from the path of a row's file
    stated: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The files' own `classes`; `points`; `flip_pairs` and `skeleton` as pairs of points' numbers from 0."""
    referred_bytes: int = 0
    """The part of `bytes` that rows only refer to: images in separate files or in uncompressed archives."""


@dataclass(frozen=True)
class Block:
    """Some rows of a chunk: `rows_read = table.num_rows + len(rejects)`."""

    table: pa.Table
    """The asked columns by name (types of `sources.columns`; null where optional), `@position` (int64: 0-based in the
    chunk, strictly rising) and, if asked for, `@key` (binary), the default key. No asked column begins with `@`."""
    rejects: list[Reject]
    positions: int  # the number of positions (lines, records, files) covered, including blank lines


@dataclass(frozen=True)
class TypedRows:
    """Consecutive positions of a chunk, typed but unchecked; rows and faults count from the first of them."""

    columns: Mapping[str, pa.Array]  # the asked columns, each of shape [rows], of its Arrow type, with nulls
    covered: int  # the number of positions, including blank lines
    faults: Faults  # of rows
    positions: Ints | None = None  # of rows, rising; None: all positions are rows
    keys: Iterable[bytes | str | None] | None = None
    """Default keys, iterated if asked for, None if unknown; None: the digests of the asked columns (`row_digests`)."""
    broken: Mapping[int, Fault] = field(default_factory=dict)  # of positions without a row
    broken_keys: Mapping[int, str | None] = field(default_factory=dict)  # their keys, where known


@dataclass(frozen=True)
class SourceReader(ABC, Generic[SourceOf]):
    """Plans and reads one source: `plan` and `read` take the spec's column names, a format the source's own."""

    source: SourceOf

    def root(self, files: Files) -> str:
        """Returns the folder of relative paths, without a trailing slash."""
        return without_slash(self.source.path)

    def image_root(self, files: Files) -> str:
        """Returns the folder of image references."""
        return self.root(files)

    @abstractmethod
    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        """Lists files that affect a row, relative to the root; opens none. Raises: SourceError: no folder; OSError."""

    def plan(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the inputs, and cuts them into chunks of about `chunk_bytes` without images. Raises: SourceError."""
        with self._naming_parser():
            return self.plan_chunks(files, self._own(columns), chunk_bytes)

    @contextmanager
    def _naming_parser(self, file: str = "") -> Iterator[None]:
        """Turns an exception of a parser, a library's or ours, into one line that names the file or the source."""
        try:
            yield
        except (UserError, OSError, MemoryError, ImportError):
            raise
        except Exception as error:
            what = f"{file and f'{file} of '}{self.source.path} cannot be read as {self.source.format}"
            raise SourceError(f"{what}: {type(error).__name__}; is it damaged? If not, report it") from None

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[Block]:
        """Reads a chunk as blocks of at most about 8 MiB of rows. A bad row is a `Reject`, never an exception.

        `key` names the key's columns; None asks for the default key, `@key`. Rejects name the source's own columns.
        """
        own_key = [self.source.columns.get(name, name) for name in key] if key and self.source.columns else key
        with self._naming_parser(chunk.file):
            for block in self.read_chunk(chunk, files, self._own(columns), own_key):
                if self.source.columns:
                    named = {name: block.table[self.source.columns.get(name, name)] for name in columns}
                    added = {name: block.table[name] for name in block.table.column_names if name.startswith("@")}
                    block = replace(block, table=pa.table(named | added))
                yield block

    def input_path(self, files: Files) -> Callable[[str], str]:
        """Returns a function that maps a path of `Plan.inputs` to its full path: images have their own root."""
        root, images = self.root(files), self.image_root(files)

        def full(path: str) -> str:
            is_whole = path.startswith("/") or "://" in path  # lists of images, and a user's files, may lie anywhere
            return path if is_whole else join(images if may_be_image(path) else root, path)

        return full

    @abstractmethod
    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Plans as `plan`, by the source's column names."""

    @abstractmethod
    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Yields all positions of a chunk, by the source's column names; asks for default keys if `key` is None."""

    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[Block]:
        """Reads as `read`, by the source's column names."""
        first, encoding = 0, getattr(self.source, "encoding", "utf-8")
        for rows in self.parse(chunk, files, columns, key):
            faults, keys = rows.faults, None
            if key is None:
                named = self.source.by_asked_names(rows.columns)
                keys = row_digests(named, faults) if rows.keys is None else pa.array(rows.keys, pa.binary())
            checked = {name: check_column(name, column, rows.columns[name], faults) for name, column in columns.items()}
            positions = first + (np.arange(rows.covered) if rows.positions is None else rows.positions)
            broken, known = rows.broken.items(), rows.broken_keys
            rejects = [fault.reject(chunk.index, first + at, known.get(at)) for at, fault in broken]
            for row, fault in faults.items():
                if fault.reason == UTF8.reason and not is_utf8(encoding):
                    fault = replace(fault, message=fault.message.replace("not UTF-8", f"not {encoding}"))
                rejects.append(fault.reject(chunk.index, int(positions[row]), row_key(keys, row, checked, key or ())))
            table = pa.table({**checked, "@position": positions} | ({} if keys is None else {"@key": keys}))
            rejects.sort(key=lambda reject: reject.position)
            yield Block(without(table, faults), rejects, rows.covered)
            first += rows.covered

    def _own(self, columns: Columns) -> Columns:
        """Maps columns to the source's names, optional if all uses are. Raises: SourceError: wanted as two types."""
        own: dict[str, Column] = {}
        for asked, column in columns.items():
            name = self.source.columns.get(asked, asked)
            known = own.setdefault(name, column)
            if replace(known, optional=column.optional, presence=column.presence) != column:
                message = f"is wanted as {known} and, for {asked!r}, as {column}: a column is read as one type"
                raise SourceError(f"{self.source.path}: `columns`: column {name!r} {message}")
            may_lack, presence = known.optional and column.optional, known.presence and column.presence
            own[name] = replace(known, optional=may_lack, presence=presence)
        return own

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """Returns a position's file, relative to the root, and its 1-based line or row; None if the file is the row."""
        if isinstance(chunk.work, WholeFiles):
            return chunk.work.names[position], None
        return chunk.file, position + 1


class TableReader(SourceReader[TableOf], Generic[TableOf]):
    """Reads files of rows: finds the files and the folder of their images; a format adds `cut` and `parse`."""

    compressed: ClassVar[bool] = True  # true if an ending may be followed by a compression's
    of_path: ClassVar[tuple[str, ...]] = ()  # the columns from a file's path
    looks_at: ClassVar[str] = ""  # the end of a message about a missing column, such as ` in its first lines`

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the files that are read in a folder, before a compression's ending."""
        return (f".{self.source.format}",)

    def root(self, files: Files) -> str:
        """Returns the folder itself, the file's folder, or the glob's folder above its first wildcard."""
        return folder_prefix(self._patterns(files)[0])[:-1]

    def image_root(self, files: Files) -> str:
        """Returns the folder of the images."""
        if self.source.images is None:
            return self.root(files)
        return folder_prefix(self.source.images)[:-1] if self._ending() else without_slash(self.source.images)

    def image_base(self, files: Files, chunk: Chunk) -> ImageBase:
        """Returns the base of a chunk's image paths: `image_root`, a folder below it, and an ending."""
        folder = posixpath.dirname(chunk.file) if self.source.images is None else ""
        return self.image_root(files), folder, self._ending()

    def _ending(self) -> str:
        """Returns the ending that image paths lack: `.jpg` of `images: train/*.jpg`."""
        folder, _, ending = (self.source.images or "").rpartition("/*")
        return ending if folder and "/" not in ending else ""

    @abstractmethod
    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Opens the inputs, none empty, with paths relative to the root, and cuts them into chunks.

        Returns a plan without `bytes` and `inputs`; `names` include nested ones (`objects.bbox`). Raises SourceError.
        """

    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists and cuts the files. Raises: SourceError: no file, or an asked column is missing."""
        with planning(self.source.path):
            root = self.root(files)
            listed = self._listed(files, root)
            inputs = self._used(listed)
            if not inputs:
                endings = " or ".join(f"*{ending}" for ending in self.endings)
                if listed:
                    raise NoRowError(f"{self.source.path}: every file is empty")
                raise SourceError(f"{self.source.path}: no such file, or no {endings} in it")
            cut = self.cut(files, root, inputs, columns, chunk_bytes)
            check_names(join(root, inputs[0].path), required(columns), cut.names, self.looks_at)
            empty = self.empty(files)
            for path in empty:
                files.open(path).close()  # raises for a broken link, listed with 0 bytes
            notes = cut.notes + note(EMPTY, empty) + unused(cut.names, columns)
            if self.source.images and has_images(columns) and not files.is_folder(self.image_root(files)):
                raise SourceError(f"images: {self.source.images}: no such folder, in which the rows' paths start")
            total, used = sum(file.bytes for file in inputs), FileList(chain(inputs, self._images(files, columns)))
            names = list(dict.fromkeys([*cut.names, *self.of_path]))
            return replace(cut, bytes=total, inputs=used, notes=notes, names=names, of_path=self.of_path)

    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        """Lists the files with content, or the empty ones if all are, and the images that rows may refer to."""
        listed = self._listed(files, self.root(files))
        return FileList(chain(self._used(listed) or listed, self._images(files, columns)))

    def empty(self, files: Files) -> list[str]:
        """Lists the files of 0 bytes beside others, with full paths."""
        listed = self._listed(files, root := self.root(files))
        used = self._used(listed)
        return [] if len(used) == len(listed) else [join(root, file.path) for file in listed if not file.bytes]

    def _listed(self, files: Files, root: str) -> FileList:
        merged = merge(*(files.match(pattern) for pattern in self._patterns(files)), key=attrgetter("path"))
        return FileList(_below(root, (next(equal) for _, equal in groupby(merged, key=attrgetter("path")))))

    def _used(self, listed: Sequence[FileInfo]) -> Sequence[FileInfo]:
        """Returns the files that may hold rows: the non-empty ones."""
        return FileList(file for file in listed if file.bytes)

    def _patterns(self, files: Files) -> list[str]:
        """Returns the patterns of all files; a local path with wildcards that exists literally is not a glob."""
        path = self.source.path if "/" in self.source.path else f"./{self.source.path}"
        if files.is_folder(path):
            codecs = ["", *CODECS] if self.compressed else [""]
            return [f"{escape(without_slash(path))}/*{end}{codec}" for end in self.endings for codec in codecs]
        return [escape(path) if is_glob(path) and "://" not in path and files.match(escape(path)) else path]

    def _images(self, files: Files, columns: Columns) -> Iterable[FileInfo]:
        """Lists all images in the folder of images, so that a changed image is a changed input."""
        if not has_images(columns):
            return ()
        return images_below(files, self.image_root(files), may_be_image)


@dataclass(frozen=True)
class FileRange:
    """A piece of a file: the records or samples that start in the bytes `[start, end)`."""

    start: int = 0
    end: int | None = None  # None: the file's end
    size: int | None = None  # the file's bytes; None if compressed

    @staticmethod
    def chunks_of(file: FileInfo, parts: Sequence["FileRange"]) -> list[Chunk]:
        """Makes chunks of a file's consecutive pieces, by their starts; the last one keeps its end."""
        ends = [*(part.start for part in parts[1:]), parts[-1].end]
        ranges = [replace(part, end=end) for part, end in zip(parts, ends, strict=True)]
        return [Chunk(0, 0, file.path, (part.end or file.bytes) - part.start, part) for part in ranges]


class ArchiveReader(TableReader[TableOf], Generic[TableOf]):
    """Reads files of records that contain the images' bytes, such as TFRecord and tar files."""

    compressed: ClassVar[bool] = False  # their own endings name the compression

    def chunk_bytes(self, columns: Columns, wanted: int) -> int:
        """Returns the size of a chunk: as wanted, or more with images."""
        return max(wanted, IMAGES_CHUNK_BYTES) if has_images(columns) else wanted

    def referred_bytes(self, columns: Columns, chunks: Iterable[Chunk]) -> int:
        """Returns the bytes of images that rows only refer to: those in uncompressed files."""
        return sum(chunk.bytes for chunk in chunks if chunk.work.size is not None) if has_images(columns) else 0

    def _images(self, files: Files, columns: Columns) -> Iterable[FileInfo]:
        return ()


def images_below(files: Files, root: str, is_one: Callable[[str], bool] = is_image) -> Iterator[FileInfo]:
    """Lists the images in a folder, recursively, with paths relative to it."""
    return _below(root, (file for file in files.match(f"{escape(root)}/**") if is_one(file.path)))


def has_images(columns: Columns) -> bool:
    """Whether any column is an image."""
    return any(column.type is ColumnType.IMAGE for column in columns.values())


def _below(root: str, files: Iterable[FileInfo]) -> Iterator[FileInfo]:
    """Makes paths relative to a folder; '' is the working folder."""
    start = len(root) + 1 if root else 0
    return (FileInfo(file.path[start:], *file[1:]) for file in files)


def at_once(look: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Looks at several files in parallel, since remote files mostly wait."""
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return list(pool.map(look, items))


def unused(names: Sequence[str], read: Mapping[str, Column | None]) -> list[str]:
    """Makes a note of unused columns and keys of objects, without the parts of an unused column."""
    unread = {name for name in names if not any(_is_read(name, *each) for each in read.items())}
    whole = [name for name in names if name in unread and name.rpartition(".")[0] not in unread]
    return [f"{UNREAD}: {listed(whole, 10)}"] if whole else []


def _is_read(name: str, other: str, column: Column | None) -> bool:
    key = name.removeprefix(f"{other}.").partition(".")[0]
    keys = column.keys if column and name != other else ()
    return f"{name}.".startswith(f"{other}.") and (not keys or key in keys) or f"{other}.".startswith(f"{name}.")
