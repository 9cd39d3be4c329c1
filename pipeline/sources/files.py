"""Files as sources list and open them, on this machine and in stores; and failures of the machine, not of the data.

Lack of memory, a missing library, a full disk or a lost connection ends a build, which can resume later; it rejects no
row. A missing or forbidden file is a reject.

>>> is_machine_fault(MemoryError()), is_machine_fault(ValueError("damaged"))
(True, False)
"""

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import BinaryIO, NamedTuple, Protocol, overload

from recordmill.pipeline.dataset.paths import NO_PARTS, open_file
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources import globs
from recordmill.pipeline.sources.batches import pack, unpack
from recordmill.pipeline.versions.stores.base import TooLargeError
from recordmill.pipeline.versions.stores.open_store import open_object, open_stream

MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO,
    errno.ESTALE,
}  # fmt: skip
"""A full or failing disk, too many open files, no memory."""
ABSENT = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG
}  # fmt: skip
"""Errors of a single file."""


class FileInfo(NamedTuple):
    """A matched file: its full path, size in bytes and modification time (Unix seconds)."""

    path: str
    bytes: int
    modified: float
    tag: str = ""  # an object's ETag or generation, which changes with its content; `modified` is then 0
    changed: float = 0.0  # the ctime (Unix seconds), which no program can set; `modified` for a file at a URL
    inode: int = 0

    @property
    def keyed(self) -> str:
        """The text that stands for the content in keys."""
        return self.tag or repr(self.modified)

    @property
    def seen(self) -> str:
        """The text that proves to this machine, with the size, that the content is unchanged."""
        return self.tag or repr((self.changed, self.inode))  # as `paths.seen_as`


class Files(Protocol):
    """Files on any filesystem; paths are local or URLs such as `gs://bucket/name`."""

    def match(self, pattern: str) -> Sequence[FileInfo]:
        """Lists the files that a glob matches (`**` crosses folders), sorted by path."""

    def is_folder(self, path: str) -> bool:
        """Whether `path` is a folder (in an object store: a prefix of any object)."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading. Raises: OSError: missing or unreadable."""

    def read(self, path: str, start: int = 0, length: int | None = None, most: int | None = None) -> bytes:
        """Reads a file or a part of it. Raises: TooLargeError: over `most` bytes, before reading; OSError."""
        with self.open(path) as file:
            size = -1
            if most is not None and (size := file.seek(0, os.SEEK_END)) > most:
                raise TooLargeError(size)
            file.seek(start)
            return file.read(size if length is None else length)  # to ask for more takes fresh pages each time

    def left_out(self) -> Collection[str]:
        """Lists the files skipped by patterns so far, because their names have empty or dotted parts."""
        return ()


class FileList(Sequence[FileInfo]):
    """A packed list of files for iteration: about 30 bytes each, where a `FileInfo` takes 300.

    >>> [file.path for file in FileList([FileInfo("a.txt", 3, 0.0), FileInfo("b.txt", 5, 0.0)])]
    ['a.txt', 'b.txt']
    """

    BLOCK = 4096  # files packed together

    def __init__(self, files: Iterable[FileInfo] = ()) -> None:
        self._blocks, self._rest = list[bytes](), list[FileInfo]()
        for file in files:
            self.append(file)

    def append(self, file: FileInfo) -> None:
        """Appends a file."""
        self._rest.append(file)
        if len(self._rest) == self.BLOCK:
            self._blocks.append(pack(list(zip(*self._rest, strict=True))))  # by columns, which compress better
            self._rest = []

    def __len__(self) -> int:
        return self.BLOCK * len(self._blocks) + len(self._rest)

    def __iter__(self) -> Iterator[FileInfo]:
        return chain(chain.from_iterable(map(_files, self._blocks)), self._rest)

    @overload
    def __getitem__(self, index: int) -> FileInfo: ...
    @overload
    def __getitem__(self, index: slice) -> list[FileInfo]: ...
    def __getitem__(self, index: int | slice) -> FileInfo | list[FileInfo]:
        if isinstance(index, slice):
            return list(self)[index]
        block, row = divmod(range(len(self))[index], self.BLOCK)
        return _files(self._blocks[block])[row] if block < len(self._blocks) else self._rest[row]


def _files(block: bytes) -> list[FileInfo]:
    return list(map(FileInfo, *unpack(block)))


class LocalFiles(Files):
    """Files of this machine; stateless, so it can be sent to workers. Raises: OSError: a folder cannot be listed.

    Follows symbolic links, once in a chain of folders; lists a broken link with 0 bytes: reading finds it missing.
    """

    def match(self, pattern: str) -> FileList:
        for path in (pattern, globs.literal_prefix(pattern)) if globs.is_literal(pattern) else (pattern,):
            if os.path.isfile(path):
                return FileList(_regular(path))
        folder = globs.folder_prefix(pattern)
        if globs.is_literal(pattern) or not os.path.isdir(folder or "."):
            return FileList()
        matches = globs.glob_pattern(pattern).fullmatch
        hidden = "/." in pattern[len(folder) :] or pattern[len(folder) :].startswith(".")
        paths = _walk(folder, globs.depth(pattern), hidden, frozenset())
        matched = filter(matches, paths)  # first: a stat is slow
        return FileList(file for path in matched for file in _regular(path))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def open(self, path: str) -> BinaryIO:
        if "\0" in path:
            raise OSError(f"cannot open {path!r}: a path must not contain NUL")
        return open_file(path)


def _walk(folder: str, levels: int | None, hidden: bool, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Lists the files of a folder and up to `levels` folders below, by path; `above` are its ancestors."""
    state = os.stat(folder or ".")
    identity = state.st_dev, state.st_ino
    if identity in above:
        return
    with os.scandir(folder or ".") as entries:
        shown = (entry for entry in entries if hidden or not entry.name.startswith("."))
        names = sorted(f"{entry.name}/" if _is_folder(entry) else entry.name for entry in shown)
    for name in names:  # folders end with a slash, so that they sort as the paths below them
        if not name.endswith("/"):
            yield folder + name
        elif levels != 0:
            yield from _walk(folder + name, levels and levels - 1, hidden, above | {identity})


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):  # a link to itself
        return entry.is_dir()
    return False


def _regular(path: str) -> Iterator[FileInfo]:
    """Yields a regular file or a broken link; no socket, pipe or device."""
    try:
        state = os.stat(path)
    except OSError:
        yield FileInfo(path, 0, 0.0)
        return
    if stat.S_ISREG(state.st_mode):
        yield FileInfo(path, state.st_size, state.st_mtime, "", state.st_ctime, state.st_ino & 2**63 - 1)  # an int64


class StoreFiles:
    """Reads s3:// and gs:// through the stores' own clients, one a process, and other files through `others`.

    Lists a prefix once for all patterns below it. The environment gives credentials and endpoints. Keys are literal:
    `a//b` differs from `a/b`. Below a folder, keys with empty or dotted parts are skipped and `left_out`.
    """

    def __init__(self, others: Files) -> None:
        self._others = others
        self._objects = dict[str, tuple[list[FileInfo], dict[str, str]]]()
        self._odd = set[str]()

    def __reduce__(self) -> tuple[type["StoreFiles"], tuple[Files]]:
        return StoreFiles, (self._others,)

    def again(self) -> "StoreFiles":
        """Returns a copy that lists again."""
        return StoreFiles(self._others)

    def match(self, pattern: str) -> Sequence[FileInfo]:
        if not pattern.startswith(globs.STORES):
            return self._others.match(pattern)
        matches = globs.glob_pattern(pattern).fullmatch
        files, odd = self._below(globs.WILDCARD.split(globs.literal_prefix(pattern))[0])
        self._odd |= {path for path, plain in odd.items() if matches(plain)}
        return FileList(file for file in files if matches(file.path))

    def is_folder(self, path: str) -> bool:
        if not path.startswith(globs.STORES):
            return self._others.is_folder(path)
        return not globs.is_glob(path) and any(self._below(globs.without_slash(path) + "/"))

    def open(self, path: str) -> BinaryIO:
        if not path.startswith(globs.STORES):
            return self._others.open(path)
        return open_stream(path)

    def read(self, path: str, start: int = 0, length: int | None = None, most: int | None = None) -> bytes:
        if not path.startswith(globs.STORES):
            return self._others.read(path, start, length, most)
        store, name = open_object(path)
        return store.range(name, start, None if length is None else start + length, most).data

    def left_out(self) -> Collection[str]:
        return self._odd

    def _below(self, prefix: str) -> tuple[list[FileInfo], dict[str, str]]:
        """Lists objects by URL prefix, sorted, without folder markers; maps skipped URLs to plain ones."""
        if prefix not in self._objects:
            store, key = open_object(prefix)
            start, files, odd = prefix.rfind("/") + 1, list[FileInfo](), dict[str, str]()
            for name, found in sorted(store.listed(key).items()):
                path = f"{store.url}/{name}"
                parts = path[start:].split("/")
                if NO_PARTS.isdisjoint(parts):
                    files.append(FileInfo(path, found.bytes, 0.0, found.tag))
                elif found.bytes or not name.endswith("/"):
                    odd[path] = path[:start] + "/".join(part for part in parts if part not in NO_PARTS)
            self._objects[prefix] = files, odd
        return self._objects[prefix]


class OutOfMemoryError(UserError):
    """Raised if memory runs out although nothing else is running; the message says for what."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"not enough memory to {what}, even with nothing else running in the process; this rejects no row: "
            "use a machine with more memory, fewer --processes, or a smaller `max_pixels` for the images"
        )


def is_machine_fault(error: BaseException) -> bool:
    """Whether an error is the machine's, not the data's."""
    return error.errno in MACHINE if isinstance(error, OSError) else isinstance(error, MemoryError | ImportError)


def why_absent(error: OSError, full: str, files: Files) -> str | None:
    """Returns why a file could not be read; None if the machine is at fault. `full` is its path."""
    if error.errno in ABSENT:
        return os.strerror(error.errno or 0)
    if error.errno is None and not files.match(globs.escape(full)):  # at a URL
        return os.strerror(errno.ENOENT)
    return None
