"""Blocks of remote shards on a local disk: fetched once for all processes, epochs and trainings.

Blocks are files in one folder, `recordmill-blocks`, below the folder that the user gives. The cache makes it with mode
0700, and marks it with `CACHEDIR.TAG` (https://bford.info/cachedir). It refuses a folder without the mark, another
user's, or behind a link. A file is named by the digest of its block: the object's URL and tag, the manifest's digest,
and the byte range. The cache touches no other file, and no link, pipe, or file with a second name.

A process fetching a block holds the lock of `….part`, and renames it when complete; others wait, or take another block.
The kernel releases a dead process' lock. A full cache evicts the least recently used blocks. Any file may be removed at
any time: it is fetched again.
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
from recordmill.pipeline.parallel import take_lock

LOG = logging.getLogger("recordmill")
FOLDER, MARK = "recordmill-blocks", "CACHEDIR.TAG"
MARK_TEXT = b"Signature: 8a477f597d28d172789f06886806bc55\n# Blocks of remote shards: recordmill fetches them again.\n"
PART = ".part"
NAME = re.compile(rf"[0-9a-f]{{64}}({re.escape(PART)})?")
# Refuses links, and does not block on pipes. Windows lacks these flags, and has no cache.
SAFE = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
SHARE = 64  # of the limit: fetched by a process between two checks of the cache's size
LESS = 0.9  # of the limit: kept by an eviction
STALE_SECONDS = 3600.0  # before an abandoned `….part` is removed
USED_SECONDS = 60.0  # between two updates of a block's time of use
PATIENCE_SECONDS, POLL_SECONDS = 30.0, 0.01  # waiting for another process to fetch the same block
TRIES = 3  # to read a block, as others may remove it


class Block(NamedTuple):
    """The bytes `start` to `end` of a shard or an index."""

    path: str
    start: int
    end: int
    tag: str  # the store's tag of the object, which changes with its content; empty if unknown
    sha256: str  # the shard's digest, from the manifest

    @property
    def name(self) -> str:
        """The name of the block's file."""
        return _digest(self)


@lru_cache(1 << 12)  # a megabyte; neighbouring records share blocks
def _digest(block: Block) -> str:
    return hashlib.sha256(repr(tuple(block)).encode()).hexdigest()


Fetch = Callable[[Block], bytes]
Spans = Sequence[tuple[int, int]]  # (first byte, end) in a shard


class _NotOursError(OSError):
    """A block's path holds something else than a file of this cache."""


class BlockCache:
    """The blocks in a folder. Pickles; shared by threads and processes."""

    def __init__(self, folder: str | Path | None = None, most: int | None = None) -> None:
        """Takes the parent folder (default: the user's) and the limit in bytes (default: half of the free disk)."""
        self._given, self._most = folder, most
        self._until_look = 0  # bytes to fetch

    @cached_property
    def folder(self) -> str:
        """The absolute path of the blocks' folder."""
        return os.path.join(os.path.abspath(os.path.expanduser(self._given or user_cache())), FOLDER)

    def room(self) -> int:
        """Returns the limit in bytes, by default half of the free disk. Raises: DatasetError, as `read`."""
        if self._most is not None:
            return self._most
        with self._opened() as folder:
            return _half(folder)

    def has(self, block: Block) -> bool:
        """Whether the block seems to be cached."""
        return os.path.exists(f"{self.folder}/{block.name}")

    def read(self, block: Block, spans: Spans, fetch: Fetch) -> list[bytes]:
        """Reads spans of a block; fetches a missing block. Raises: DatasetError: the cache is unusable; as `fetch`."""
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
        """Reads spans of a cached block; None if missing."""
        try:
            descriptor = _open(None, f"{self.folder}/{block.name}", os.O_RDONLY)
        except OSError as error:
            if isinstance(error, _NotOursError):
                self._warn(block.name, error)
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
        """Fetches and keeps a block; None if another process has, or is doing so without `wait`. Raises: as `read`."""
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
            os.ftruncate(descriptor, 0)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
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
        """Opens and locks an unfinished block; None if the lock is not available, with a warning after a wait."""
        until = time.monotonic() + seconds
        try:
            # Another process may hold the lock, or rename the file meanwhile.
            while (descriptor := take_lock(_open(folder, name, os.O_RDWR | os.O_CREAT), name, folder)) is None:
                if time.monotonic() >= until:
                    if seconds:
                        LOG.warning(f"{self.folder}/{name} has been locked for {seconds:.0f} s: the block is not kept")
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
        LOG.warning(f"{self.folder}/{name} is not this cache's ({error.strerror}): its block is fetched again")

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Opens the folder; makes and marks a missing one. Raises: DatasetError: it is another's, or not writable."""
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
                reason = f"the cache {self.folder} cannot be used ({error.strerror or error})"
                raise DatasetError(f"{reason}: name another folder by cache=") from None

    def _shrink(self, folder: int, share: float = 1.0) -> None:
        """Evicts the least recently used blocks beyond the limit, or beyond a share of the present size."""
        files = list[tuple[float, int, str]]()  # each file's time of use, size and name
        with os.scandir(folder) as entries:
            for entry in (each for each in entries if NAME.fullmatch(each.name)):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, status.st_size, entry.name))
        total = sum(size for _, size, _ in files)
        room = min(_half(folder, total) if self._most is None else self._most, int(total * share))
        self._until_look = room // SHARE
        for used, size, name in sorted(files) if total > room else []:
            if total <= room * LESS:
                return
            if not name.endswith(PART) or time.time() - used > STALE_SECONDS:
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                total -= size


def _check_own(folder: int) -> None:
    """Checks that a folder is this cache's, and marks a new one. Raises: OSError."""
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
    """Returns half of the disk's free bytes and `used` together."""
    disk = os.fstatvfs(folder)
    return (disk.f_bavail * disk.f_frsize + used) // 2


def _open(folder: int | None, name: str, flags: int) -> int:
    """Opens a file of the cache. Raises: OSError; _NotOursError: it is a link, a pipe, or has a second name."""
    try:
        descriptor = os.open(name, flags | SAFE, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _NotOursError(*error.args) from None
        raise
    status = os.fstat(descriptor)
    if not has_one_name(status) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise _NotOursError(errno.EPERM, "it is another user's, has a second name, or is not a plain file")
    return descriptor


def _has(folder: int, name: str) -> bool:
    with suppress(OSError):
        os.close(_open(folder, name, os.O_RDONLY))
        return True
    return False
