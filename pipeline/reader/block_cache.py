"""Blocks of remote shards on a disk of this machine: fetched once for all processes, epochs and trainings.

The blocks are files of one folder, `recordmill-blocks`, below the folder that the user gives. The cache makes it with
mode 0700, and marks it with `CACHEDIR.TAG` (https://bford.info/cachedir). It refuses a folder without the mark, of
another user, or behind a link. A file's name is a digest of its block: the URL and tag of the object, the digest in the
manifest, and the range of bytes. The cache touches no other file, and no link, pipe, or file with a second name.

The process that fetches a block holds the lock of `….part`, which it renames when it is whole; the others wait, or take
another block. The kernel releases the lock of a process that dies. The blocks that were used longest ago are removed
when the room is used up. Any file may be removed at any time: it is fetched again.

>>> cache = BlockCache("/data/cache", most=100 << 30)                                          # doctest: +SKIP
>>> cache.read(Block("s3://data/a.tfrecord", 0, 1 << 20, '"4f1c"', "9f86…"), [(0, 120)], fetch)  # doctest: +SKIP
[b"…"]
"""

import errno
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from recordmill.pipeline.dataset.paths import has_one_name, user_cache
from recordmill.pipeline.errors import DatasetError

LOG = logging.getLogger("recordmill")
FOLDER, MARK = "recordmill-blocks", "CACHEDIR.TAG"
MARK_TEXT = b"Signature: 8a477f597d28d172789f06886806bc55\n# Blocks of remote shards: recordmill fetches them again.\n"
PART = ".part"
NAME = re.compile(rf"[0-9a-f]{{64}}({re.escape(PART)})?")
# Neither links are followed nor pipes waited for. Windows has none of these flags, and no cache.
SAFE = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
SHARE = 64  # of the room, which a process fetches between two looks at what all processes have fetched
LESS = 0.9  # of the room: what stays when blocks are removed
STALE_SECONDS = 3600.0  # of an unfinished block that nobody renamed
USED_SECONDS = 60.0  # between two marks of a block's use
PATIENCE_SECONDS, POLL_SECONDS = 30.0, 0.01  # for another process that fetches the same block
TRIES = 3  # to read a block that others remove meanwhile


class Block(NamedTuple):
    """The bytes of a shard, or of its index, from `start` to `end`."""

    path: str
    start: int
    end: int
    tag: str
    """The store's tag of the object, which changes with its content; empty where it is not known."""
    sha256: str
    """The digest of the shard that its manifest states."""

    @property
    def name(self) -> str:
        """The name of the block's file."""
        return _digest(self)


@lru_cache(1 << 12)  # a megabyte; neighbouring records are of the same blocks
def _digest(block: Block) -> str:
    return hashlib.sha256(repr(tuple(block)).encode()).hexdigest()


Fetch = Callable[[Block], bytes]
Spans = Sequence[tuple[int, int]]
"""The first byte and the end of pieces of a shard."""


class _NotOursError(OSError):
    """A file that this cache did not make stands in the place of one."""


class BlockCache:
    """The blocks in a folder. Pickles; threads and processes may share it."""

    def __init__(self, folder: str | Path | None = None, most: int | None = None) -> None:
        """Takes the folder around, by default the user's, and the most bytes, by default half of the disk's room."""
        self._given, self._most = folder, most
        self._until_look = 0  # bytes to fetch

    @cached_property
    def folder(self) -> str:
        """The absolute path of the blocks' folder."""
        return os.path.join(os.path.abspath(os.path.expanduser(self._given or user_cache())), FOLDER)

    def room(self) -> int:
        """Returns the bytes that the cache may hold beside what it holds. Raises: DatasetError, as `read`."""
        if self._most is not None:
            return self._most
        with self._opened() as folder:
            return _half(folder)

    def has(self, block: Block) -> bool:
        """Whether the block seems to be here."""
        return os.path.exists(f"{self.folder}/{block.name}")

    def read(self, block: Block, spans: Spans, fetch: Fetch) -> list[bytes]:
        """Reads spans of a block, and fetches it where it is missing.

        Raises:
            DatasetError: the folder is not this cache's, or cannot be written.
            Exception: whatever `fetch` raises.
        """
        for _ in range(TRIES):
            found = self.cached(block, spans)
            if found is not None:
                return found
            data = self.fetch(block, fetch)
            if data is not None:
                break
        else:
            data = fetch(block)
        return [data[start - block.start : end - block.start] for start, end in spans]

    def cached(self, block: Block, spans: Spans) -> list[bytes] | None:
        """Reads spans of a block; None where it is not here."""
        try:
            descriptor = _open(None, f"{self.folder}/{block.name}", os.O_RDONLY)
        except _NotOursError as error:
            self._warn(block.name, error)
            return None
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if status.st_size != block.end - block.start:
                self.drop(block)
                return None
            if time.time() - status.st_mtime > USED_SECONDS:
                with suppress(OSError):
                    os.utime(descriptor)
            return [os.pread(descriptor, end - start, start - block.start) for start, end in spans]
        except OSError:  # the disk
            self.drop(block)
            return None
        finally:
            os.close(descriptor)

    def drop(self, block: Block) -> None:
        """Removes a block."""
        with suppress(DatasetError), self._opened() as folder:
            os.unlink(block.name, dir_fd=folder)

    def fetch(self, block: Block, fetch: Fetch, *, wait: bool = True) -> bytes | None:
        """Fetches a block and keeps it; None where another process fetched it, or is about to and `wait` is False.

        Raises:
            DatasetError, Exception: as `read`.
        """
        part = f"{block.name}{PART}"
        with self._opened() as folder:
            descriptor = self._locked(folder, part, PATIENCE_SECONDS if wait else 0)
            if descriptor is None:
                return fetch(block) if wait else None
            try:
                if _has(folder, block.name):
                    return None
                data = fetch(block)
                self._keep(folder, descriptor, data, block.name)
            finally:
                with suppress(OSError):  # renamed, or removed with the folder
                    os.unlink(part, dir_fd=folder)
                os.close(descriptor)
            self._until_look -= len(data)
            if self._until_look < 0:
                self._shrink(folder)
            return data

    def _keep(self, folder: int, descriptor: int, data: bytes, name: str) -> None:
        try:
            _write(descriptor, data)
            os.rename(f"{name}{PART}", name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileNotFoundError:  # the cache was removed meanwhile
            pass
        except IsADirectoryError as error:
            self._warn(name, error)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            LOG.warning("the disk of %s is full: half of the cache is removed", self.folder)
            self._shrink(folder, share=0.5)

    def _locked(self, folder: int, name: str, seconds: float) -> int | None:
        """Opens an unfinished block with its lock; None, with a warning if it waited, where the cache cannot have it.

        Who renames the file, keeps it.
        """
        until = time.monotonic() + seconds
        try:
            while (descriptor := _lock(folder, name)) is None:
                if time.monotonic() >= until:
                    if seconds:
                        LOG.warning(f"{self.folder}/{name} has been locked for {seconds:.0f} s: its block is not kept")
                    return None
                time.sleep(POLL_SECONDS)
            return descriptor
        except FileNotFoundError:  # the cache was removed meanwhile
            return None
        except _NotOursError as error:
            self._warn(name, error)
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            return None

    def _warn(self, name: str, error: OSError) -> None:
        """Says that something else stands in the place of a block."""
        LOG.warning(f"{self.folder}/{name} is no block of this cache ({error.strerror}): it is fetched anew")

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Opens the folder, made and marked if need be.

        Raises:
            DatasetError: it is not this cache's, or cannot be made; or a file in it cannot be written.
        """
        with ExitStack() as opened:
            try:
                os.makedirs(os.path.dirname(self.folder), exist_ok=True)
                with suppress(FileExistsError):
                    os.mkdir(self.folder, 0o700)
                folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | SAFE)
                opened.callback(os.close, folder)
                _check_own(folder)
                yield folder
            except OSError as error:
                raise DatasetError(
                    f"the cache {self.folder} cannot be used ({error.strerror or error}): name another folder by cache="
                ) from None

    def _shrink(self, folder: int, share: float = 1.0) -> None:
        """Removes the blocks that were used longest ago, where there are more than the room, or a share of them."""
        files = sorted(_files(folder))
        total = sum(size for _, size, _ in files)
        room = min(_half(folder, total) if self._most is None else self._most, int(total * share))
        self._until_look = room // SHARE
        for used, size, name in files if total > room else []:
            if total <= room * LESS:
                return
            if not name.endswith(PART) or time.time() - used > STALE_SECONDS:
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                total -= size


def _check_own(folder: int) -> None:
    """Checks that a folder is this cache's, and marks a new one. Raises: OSError: it is somebody else's."""
    status = os.fstat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "it is another user's, or its mode is not 0700")
    if _has(folder, MARK):
        return
    if any(name != MARK and not NAME.fullmatch(name) for name in os.listdir(folder)):
        raise FileExistsError(errno.EEXIST, f"it holds other files, and no {MARK}")
    with suppress(FileExistsError):  # another process's, or none
        _mark(folder)
    if not _has(folder, MARK):  # a link, or it has a second name
        with suppress(FileNotFoundError, FileExistsError):
            os.unlink(MARK, dir_fd=folder)
            _mark(folder)


def _mark(folder: int) -> None:
    mark = os.open(MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o600, dir_fd=folder)
    with open(mark, "wb") as file:
        file.write(MARK_TEXT)


def _half(folder: int, used: int = 0) -> int:
    """Returns half of the bytes that the disk has room for, with those that the cache uses."""
    disk = os.fstatvfs(folder)
    return (disk.f_bavail * disk.f_frsize + used) // 2


def _open(folder: int | None, name: str, flags: int) -> int:
    """Opens a file of the cache. Raises: OSError; _NotOursError: it is a link or a pipe, or has another name."""
    try:
        descriptor = os.open(name, flags | SAFE, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _NotOursError(*error.args) from None
        raise
    status = os.fstat(descriptor)
    if not has_one_name(status) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise _NotOursError(errno.EPERM, "it is no file, another user's, or has a second name")
    return descriptor


def _has(folder: int, name: str) -> bool:
    with suppress(OSError):
        os.close(_open(folder, name, os.O_RDONLY))
        return True
    return False


def _lock(folder: int, name: str) -> int | None:
    """Opens a file and takes its lock; None where another holds it, or has renamed it meanwhile."""
    import fcntl  # not on Windows, where datasets are read from disks

    descriptor = _open(folder, name, os.O_RDWR | os.O_CREAT)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False)):
            return descriptor
    os.close(descriptor)
    return None


def _files(folder: int) -> Iterator[tuple[float, int, str]]:
    """Yields when each block was used, its bytes and its name."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if NAME.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime, status.st_size, entry.name


def _write(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, 0)
    view, written = memoryview(data), 0
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], written)
