"""Files of rows: finds the files and the folder of their images; a format adds `cut` and `read_chunk`."""

import posixpath
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from heapq import merge
from itertools import chain, groupby
from operator import attrgetter
from typing import ClassVar, Generic, TypeVar

from recordmill.pipeline.sources.columns import Column, Columns, ColumnType, ImageBase, required
from recordmill.pipeline.sources.encoded import CODECS
from recordmill.pipeline.sources.faults import NoRowError, SourceError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.globs import escape, folder_prefix, is_glob, without_slash
from recordmill.pipeline.sources.options import TableOptions
from recordmill.pipeline.sources.paths import check_names, is_image, join, listed, may_be_image, note, planning
from recordmill.pipeline.sources.source_reader import Chunk, Plan, SourceReader

SHOWN_COLUMNS = 10
UNREAD = "unused columns"
EMPTY = "empty files, left out"
FILES_AT_ONCE = 8
IMAGES_CHUNK_BYTES = 64 << 20  # 64 MiB: 8 MiB would hold only a handful of images
TableOf = TypeVar("TableOf", bound=TableOptions)
Item = TypeVar("Item")
Result = TypeVar("Result")


class TableReader(SourceReader[TableOf], Generic[TableOf]):
    """Reads files of rows."""

    compressed: ClassVar[bool] = True  # true if an ending may be followed by a compression's
    of_path: ClassVar[tuple[str, ...]] = ()  # the columns from a file's path
    looks_at: ClassVar[str] = ""  # the end of a message about a missing column, such as ` in its first lines`

    @property
    @abstractmethod
    def endings(self) -> tuple[str, ...]:
        """The endings of the files that are read in a folder, before a compression's ending."""

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

    def input_path(self, files: Files) -> Callable[[str], str]:
        """Returns a function that makes full paths: images have their own root."""
        root, images = self.root(files), self.image_root(files)
        return lambda path: join(images if may_be_image(path) else root, path)

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
        literal = is_glob(path) and "://" not in path and files.match(escape(path))
        return [escape(path) if literal else path]

    def _images(self, files: Files, columns: Columns) -> Iterable[FileInfo]:
        """Lists all images in the folder of images, so that a changed image is a changed input."""
        if not has_images(columns):
            return ()
        return images_below(files, self.image_root(files), may_be_image)


@dataclass(frozen=True)
class FileRange:
    """A piece of an archive: the records or samples that start in the bytes `[start, end)`."""

    start: int = 0
    end: int | None = None  # None: the file's end
    size: int | None = None  # the file's bytes; None if compressed


class ArchiveReader(TableReader[TableOf], Generic[TableOf]):
    """Reads files of records that contain the images' bytes, such as TFRecord and tar files."""

    compressed: ClassVar[bool] = False  # their own endings name the compression

    def chunk_bytes(self, columns: Columns, wanted: int) -> int:
        """Returns the size of a chunk: as wanted, or more with images."""
        return max(wanted, IMAGES_CHUNK_BYTES) if has_images(columns) else wanted

    def chunks_of(self, file: FileInfo, starts: Sequence[int], size: int | None) -> list[Chunk]:
        """Cuts a file at record starts, from 0; `size` is its bytes, None if compressed."""
        bounds = zip(starts, [*starts[1:], size], strict=True)
        return [
            Chunk(0, 0, file.path, (file.bytes if end is None else end) - start, FileRange(start, end, size))
            for start, end in bounds
        ]

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
    return [f"{UNREAD}: {listed(whole, SHOWN_COLUMNS)}"] if whole else []


def _is_read(name: str, other: str, column: Column | None) -> bool:
    key = name.removeprefix(f"{other}.").partition(".")[0]
    keys = column.keys if column and name != other else ()
    return f"{name}.".startswith(f"{other}.") and (not keys or key in keys) or f"{other}.".startswith(f"{name}.")
