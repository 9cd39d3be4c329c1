"""Files of rows as a source: what all formats but a folder of images have in common.

A format gives `cut` and `read_chunk`; here files are found and noted, and the folder of the images that rows name.
"""

import posixpath
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from heapq import merge
from itertools import chain, groupby
from operator import attrgetter
from typing import ClassVar, Generic, TypeVar

from recordmill.pipeline.sources.columns import Columns, ColumnType, required
from recordmill.pipeline.sources.encoded import CODECS
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.globs import escape, folder_prefix, is_glob, without_slash
from recordmill.pipeline.sources.images import ImageBase
from recordmill.pipeline.sources.options import TableOptions
from recordmill.pipeline.sources.paths import check_names, is_image, join, listed, note, planning
from recordmill.pipeline.sources.source_reader import Chunk, Plan, SourceError, SourceReader

SHOWN_COLUMNS = 10
UNREAD = "columns that nothing reads"
FILES_AT_ONCE = 8
IMAGES_CHUNK_BYTES = 64 << 20  # 64 MiB: of records that hold images, 8 MiB would be a handful
TableOf = TypeVar("TableOf", bound=TableOptions)
Item = TypeVar("Item")
Result = TypeVar("Result")


class TableReader(SourceReader[TableOf], Generic[TableOf]):
    """Reads files of rows."""

    compressed: ClassVar[bool] = True
    """True where the endings may be followed by that of a compression."""
    of_path: ClassVar[tuple[str, ...]] = ()
    """The columns that come from a file's path."""
    looks_at: ClassVar[str] = ""
    """The end of a message about a missing column: ` in its first lines`."""

    @property
    @abstractmethod
    def endings(self) -> tuple[str, ...]:
        """The endings of the names that are read of a folder, with any ending of a compression behind."""

    def root(self, files: Files) -> str:
        """Returns the folder itself, the file's folder, or the folder where the glob's wildcards begin."""
        return folder_prefix(self._patterns(files)[0])[:-1]

    def image_root(self, files: Files) -> str:
        """Returns the folder of the images."""
        if self.source.images is None:
            return self.root(files)
        return folder_prefix(self.source.images)[:-1] if self._ending() else without_slash(self.source.images)

    def image_base(self, files: Files, chunk: Chunk) -> ImageBase:
        """The folder that a chunk's images are relative to: `image_root`, and a path below it; and an ending."""
        folder = posixpath.dirname(chunk.file) if self.source.images is None else ""
        return self.image_root(files), folder, self._ending()

    def _ending(self) -> str:
        """Returns the ending that paths of images lack: that of `images: train/*.jpg`."""
        folder, _, ending = (self.source.images or "").rpartition("/*")
        return ending if folder and "/" not in ending else ""

    @abstractmethod
    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Looks at the inputs, none of them empty, with paths relative to the root, and cuts them into chunks.

        Returns a plan without `bytes` and `inputs`; its `names` are also those inside others (`objects.bbox`). Raises:
        SourceError: they are not of this format; OSError.
        """

    def input_path(self, files: Files) -> Callable[[str], str]:
        """Returns the function that makes a full path: images have a root of their own."""
        root, images = self.root(files), self.image_root(files)
        return lambda path: join(images if is_image(path) else root, path)

    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists and cuts the files. Raises: SourceError: no file, or no column that is asked for."""
        with planning(self.source.path):
            root = self.root(files)
            listed = self._listed(files, root)
            inputs = self._used(listed)
            if not inputs:
                endings = " or ".join(f"*{ending}" for ending in self.endings)
                nothing = f"no such file, or no {endings} in it"
                raise SourceError(f"{self.source.path}: {'every file is empty' if listed else nothing}")
            cut = self.cut(files, root, inputs, columns, chunk_bytes)
            check_names(join(root, inputs[0].path), required(columns), cut.names, self.looks_at)
            empty = [] if len(inputs) == len(listed) else [file.path for file in listed if not file.bytes]
            for path in empty:
                files.open(join(root, path)).close()  # a broken link is an error, not an empty file
            notes = cut.notes + note("left out, because empty", empty) + unused(cut.names, columns)
            total, used = sum(file.bytes for file in inputs), FileList(chain(inputs, self._images(files, columns)))
            names = list(dict.fromkeys([*cut.names, *self.of_path]))
            return replace(cut, bytes=total, inputs=used, notes=notes, names=names, of_path=self.of_path)

    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        """Lists the files that are not empty, and the images that rows may refer to."""
        listed = self._listed(files, self.root(files))
        return FileList(chain(self._used(listed), self._images(files, columns)))

    def _listed(self, files: Files, root: str) -> FileList:
        return FileList(_below(root, _union(files.match(pattern) for pattern in self._patterns(files))))

    def _used(self, listed: Sequence[FileInfo]) -> Sequence[FileInfo]:
        """Returns the files that may hold rows: those that are not empty."""
        return FileList(file for file in listed if file.bytes)

    def _patterns(self, files: Files) -> list[str]:
        """Returns the patterns of all files; a local path that holds wildcards and is there is meant as it is."""
        path = self.source.path if "/" in self.source.path else f"./{self.source.path}"
        if files.is_folder(path):
            codecs = ["", *CODECS] if self.compressed else [""]
            return [f"{escape(without_slash(path))}/*{end}{codec}" for end in self.endings for codec in codecs]
        literal = is_glob(path) and "://" not in path and files.match(escape(path))
        return [escape(path) if literal else path]

    def _images(self, files: Files, columns: Columns) -> Iterable[FileInfo]:
        """Lists the images that rows may refer to: all of their folder, so that a changed one is a changed input."""
        if not has_images(columns):
            return ()
        return images_below(files, self.image_root(files))


@dataclass(frozen=True)
class FileRange:
    """A piece of an archive: the records, or samples, that start in the bytes `[start, end)`."""

    start: int = 0
    end: int | None = None
    """None: to the end of the file."""
    size: int | None = None
    """The file's bytes; None where it is compressed."""


class ArchiveReader(TableReader[TableOf], Generic[TableOf]):
    """Reads files of records that hold the images' bytes themselves, such as TFRecord and tar files."""

    compressed: ClassVar[bool] = False  # their own names say how they are compressed

    def chunk_bytes(self, columns: Columns, wanted: int) -> int:
        """Returns the bytes of a chunk: those wanted, or more where it has images."""
        return max(wanted, IMAGES_CHUNK_BYTES) if has_images(columns) else wanted

    def chunks_of(self, file: FileInfo, starts: Sequence[int], size: int | None) -> list[Chunk]:
        """Cuts a file at bytes where records start, from 0 on; `size` is its bytes, None where it is compressed."""
        bounds = zip(starts, [*starts[1:], size], strict=True)
        return [
            Chunk(0, 0, file.path, (file.bytes if end is None else end) - start, FileRange(start, end, size))
            for start, end in bounds
        ]

    def referred_bytes(self, columns: Columns, chunks: Iterable[Chunk]) -> int:
        """Returns the bytes of images that rows only refer to: those in files that are not compressed."""
        return sum(chunk.bytes for chunk in chunks if chunk.work.size is not None) if has_images(columns) else 0

    def _images(self, files: Files, columns: Columns) -> Iterable[FileInfo]:
        return ()


def images_below(files: Files, root: str) -> Iterator[FileInfo]:
    """Lists the images in a folder and below it, with paths relative to it."""
    return _below(root, (file for file in files.match(f"{escape(root)}/**") if is_image(file.path)))


def has_images(columns: Columns) -> bool:
    """Whether one of the columns is an image."""
    return any(column.type is ColumnType.IMAGE for column in columns.values())


def _union(listings: Iterable[Iterable[FileInfo]]) -> Iterator[FileInfo]:
    """Merges listings that are sorted by path; each file comes once."""
    merged = merge(*listings, key=attrgetter("path"))
    return (next(equal) for _, equal in groupby(merged, key=attrgetter("path")))


def _below(root: str, files: Iterable[FileInfo]) -> Iterator[FileInfo]:
    """Makes files' paths relative to a folder; '' is the working folder."""
    start = len(root) + 1 if root else 0
    return (FileInfo(file.path[start:], *file[1:]) for file in files)


def at_once(look: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Looks at several files at once: of files far away it is the waiting that takes time."""
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return list(pool.map(look, items))


def unused(names: Sequence[str], read: Iterable[str]) -> list[str]:
    """Makes a note of the columns that nothing reads; the parts of such a column are left out."""
    unread = {name for name in names if not any(_overlap(name, other) for other in read)}
    whole = [name for name in names if name in unread and name.rpartition(".")[0] not in unread]
    return [f"{UNREAD}: {listed(whole, SHOWN_COLUMNS)}"] if whole else []


def _overlap(name: str, other: str) -> bool:
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")
