"""Blocks of remote shards on a disk of this machine: fetched once for all processes, epochs and trainings.

A block is a file, `DIR/<sha256 of its shard>/<first byte>-<end>`. The process that fetches it holds the lock of
`….part`, which it renames when it is whole; the others wait, or take another block. The kernel releases the lock of a
process that dies. The blocks that were used longest ago are removed when the room is used up. Any file may be removed
at any time: it is fetched again.

>>> cache = BlockCache("/data/cache", most=100 << 30)                                    # doctest: +SKIP
>>> cache.read(Block("s3://data/a.tfrecord", 0, 1 << 20, "9f86…"), [(0, 120)], fetch)    # doctest: +SKIP
[b"…"]
"""

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from recordmill.pipeline.errors import DatasetError

LOG = logging.getLogger("recordmill")
PART, LOCK = ".part", ".lock"
SHARE = 64  # of the room, which a process fetches between two looks at what all processes have fetched
LESS = 0.9  # of the room: what stays when blocks are removed
STALE_SECONDS = 3600.0  # of an unfinished block that nobody renamed
USED_SECONDS = 60.0  # between two marks of a block's use
TRIES = 3  # to read a block that others remove meanwhile


class Block(NamedTuple):
    """The bytes of a shard from `start` to `end`."""

    path: str
    start: int
    end: int
    digest: str
    """The shard's SHA-256, in hex."""


Fetch = Callable[[Block], bytes]
Spans = Sequence[tuple[int, int]]
"""The first byte and the end of pieces of a shard."""


class BlockCache:
    """The blocks in a folder. Pickles; threads and processes may share it."""

    def __init__(self, folder: str | Path | None = None, most: int | None = None) -> None:
        """Takes a folder and the most bytes in it; by default the user's, and half of what the disk has room for."""
        self._given, self._most = folder, most
        self._until_look = 0  # bytes to fetch

    @cached_property
    def folder(self) -> str:
        """The folder's absolute path; by default in the user's folder for caches (XDG Base Directory)."""
        if self._given:
            return os.path.abspath(os.path.expanduser(self._given))
        return os.path.abspath(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "recordmill/blocks"))

    def room(self, used: int = 0) -> int:
        """Returns the bytes that a cache of so many may hold. Raises: DatasetError: the folder cannot be made."""
        if self._most is not None:
            return self._most
        with self._writing():
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            return (shutil.disk_usage(self.folder).free + used) // 2

    def has(self, block: Block) -> bool:
        """Whether the block is here."""
        return os.path.exists(self._path(block))

    def read(self, block: Block, spans: Spans, fetch: Fetch) -> list[bytes]:
        """Reads spans of a block, and fetches it where it is missing.

        Raises:
            DatasetError: the folder cannot be written.
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
            descriptor = os.open(self._path(block), os.O_RDONLY | os.O_CLOEXEC)
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
        with suppress(OSError):
            os.unlink(self._path(block))

    def fetch(self, block: Block, fetch: Fetch, *, wait: bool = True) -> bytes | None:
        """Fetches a block and keeps it; None where another process fetched it, or is about to and `wait` is False.

        Raises:
            DatasetError, Exception: as `read`.
        """
        path = self._path(block)
        with self._writing(), _locked(path + PART, wait) as descriptor:
            if descriptor is None:
                return None
            try:
                if os.path.exists(path):
                    return None
                data = fetch(block)
                self._keep(descriptor, data, path)
            finally:
                with suppress(OSError):  # renamed, or removed with the folder
                    os.unlink(path + PART)
        self._until_look -= len(data)
        if self._until_look < 0:
            self._shrink()
        return data

    def _keep(self, descriptor: int, data: bytes, path: str) -> None:
        try:
            _write(descriptor, data)
            os.rename(path + PART, path)
        except FileNotFoundError:  # the cache was removed meanwhile
            pass
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            LOG.warning("the disk of %s is full: half of the cache is removed", self.folder)
            self._shrink(share=0.5)

    def _path(self, block: Block) -> str:
        return f"{self.folder}/{block.digest}/{block.start}-{block.end}"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DatasetError(
                f"the cache {self.folder} cannot be written ({error.strerror or error}): name another folder by cache="
            ) from None

    def _shrink(self, share: float = 1.0) -> None:
        """Removes the blocks that were used longest ago, where there are more than the room, or a share of them."""
        with _locked(f"{self.folder}/{LOCK}", wait=False) as descriptor:
            files = sorted(self._files()) if descriptor is not None else []
            total = sum(size for _, size, _ in files)
            room = min(self.room(total), int(total * share))
            self._until_look = room // SHARE
            for used, size, path in files if total > room else []:
                if total <= room * LESS:
                    return
                if not path.endswith(PART) or time.time() - used > STALE_SECONDS:
                    with suppress(OSError):
                        os.unlink(path)
                    total -= size

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """Yields when each file was used, its bytes and its path."""
        for folder in _entries(self.folder):
            for file in _entries(folder.path):
                with suppress(OSError):
                    yield file.stat().st_mtime, file.stat().st_size, file.path


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # removed meanwhile, or a file
        return []


def _write(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, 0)
    view, written = memoryview(data), 0
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], written)


@contextmanager
def _locked(path: str, wait: bool) -> Iterator[int | None]:
    """Opens a file and holds its lock; None where another holds it, and `wait` is False. Who renames it, keeps it."""
    import fcntl  # not on Windows, where datasets are read from disks

    while True:
        descriptor = _created(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_at(descriptor, path):
                yield descriptor
                return
            if not wait:
                yield None
                return
        except BlockingIOError:
            yield None
            return
        finally:
            os.close(descriptor)


def _created(path: str, tries: int = 100) -> int:
    """Opens a file, made if need be, in a folder that others may remove meanwhile."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        if not tries:
            raise
        return _created(path, tries - 1)


def _is_at(descriptor: int, path: str) -> bool:
    """Whether a path still names an open file: its last holder may have renamed or removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
