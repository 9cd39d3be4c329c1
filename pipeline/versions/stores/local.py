"""An output in a local or network folder: `os.replace` and fsync under a lock, a file `.lock` taken with flock.

The lock's holder removes the file at the end; a waiting process then locks a removed file, notices it and retries. The
kernel releases a killed process's lock. Anybody able to open a file, even only for reading, can lock it: so only users
with write access to the folder may open this one.
"""

import errno
import filecmp
import hashlib
import itertools
import logging
import os
import pwd
import shutil
import stat
import threading
import time
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self, cast

from recordmill.pipeline import parallel
from recordmill.pipeline.dataset import paths
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.versions.stores import base

LOCK_FILE = ".lock"
PATIENCE_SECONDS = 300.0  # until the wait is an error: a lock is held only for a few writes
NOTE_SECONDS = 5.0  # until the wait is reported
OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH  # other users' access to a file
LOCKS = Path("/proc/locks")  # Linux
REMOVING_FOLDER = ".removing"  # a folder moves here by one rename before its deletion
NO_LINKS = {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}
"""Errors of disks without links, across two disks, and of a system that forbids links to other users' files."""
_REPLACED = ("LATEST", base.HISTORY_FILE, "forgotten.json", ".leases/*.json", "versions/*/dataset.json")
"""Files written only under the lock, whose holder may remove their temporary files."""
_STRAYS = (f"{REMOVING_FOLDER}/*", *(f"{name}.{'[0-9a-f]' * 32}" for name in _REPLACED))


def take_lock(folder: Path) -> int:
    """Waits for the lock of a folder; returns its descriptor.

    Raises: UnsettledOutputError: another process does not release it. OutputError: the file is another user's and too
    widely accessible, or a pipe, or has a second name. OSError: the folder cannot be written.
    """
    path, began, is_noted = folder / LOCK_FILE, time.monotonic(), False
    while (descriptor := _try(path)) is None:
        waited = time.monotonic() - began
        if waited >= PATIENCE_SECONDS:
            held = f"{_holder(path)} has held {path} for {waited:,.0f} seconds: end it if it hangs or is not a build"
            raise base.UnsettledOutputError(f"{held}, and run the same command again")
        if waited >= NOTE_SECONDS and not is_noted:
            logging.getLogger("recordmill").warning(printable(f"waiting for {path}, held by {_holder(path)}"))
            is_noted = True
        time.sleep(min(0.5, max(0.01, waited / 4)))
    return descriptor


def _try(path: Path) -> int | None:
    """Takes the lock; returns None if another process holds it."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR)
    except PermissionError:
        if not os.access(path.parent, os.W_OK):
            raise
        return None  # held by a user without a shared group, such as root
    try:
        _restrict(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return parallel.take_lock(descriptor, path)


def _restrict(descriptor: int, path: Path) -> None:
    """Restricts the lock file to users with write access to the folder; an earlier release let all readers open it."""
    file, folder = os.fstat(descriptor), os.stat(path.parent)
    if not paths.has_one_name(file):
        raise base.OutputError(f"{path} is a pipe, a device, or has a second name elsewhere: remove it")
    writers = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    mode = stat.S_IRUSR | stat.S_IWUSR | writers | writers << 1  # to read as well
    try:
        if writers and file.st_gid != folder.st_gid:
            os.fchown(descriptor, -1, folder.st_gid)
        if stat.S_IMODE(file.st_mode) != mode:
            os.fchmod(descriptor, mode)
    except OSError:  # another user's file, or a file system with fixed modes
        if file.st_uid != os.geteuid() and file.st_mode & OTHERS & ~mode:
            raise base.OutputError(f"{path} is {_user(file.st_uid)}'s, and readers could lock it: remove it") from None


def _holder(path: Path) -> str:
    """Names the lock's holder if it is a process on this host."""
    with suppress(OSError, ValueError):
        status = os.stat(path)
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for _, kind, *fields in map(str.split, LOCKS.read_text("ascii").splitlines()):
            if kind == "FLOCK" and fields[3] == place and int(fields[2]) > 0:
                process = int(fields[2])
                return f"process {process} of {_user(os.stat(f'/proc/{process}').st_uid)}"
    return "an unknown process"


def _user(number: int) -> str:
    with suppress(KeyError):
        return f"user {pwd.getpwuid(number).pw_name}"
    return f"user {number}"


@dataclass
class _Lock:
    mutex: threading.RLock = field(default_factory=threading.RLock)
    depth: int = 0
    file: int = -1


_locks: dict[str, _Lock] = {}  # by folder


class LocalStore(base.Store):
    """A local folder, or a network folder with the same path on all workers; the first `write_if` makes it."""

    pause = 0.0
    links = True

    def __init__(self, folder: str) -> None:
        self.url = os.path.abspath(folder)
        self._root = Path(self.url)

    @property
    def location(self) -> Path:
        return self._root

    def at(self, prefix: str) -> Self:
        return type(self)(os.path.join(self.url, prefix))

    def read(self, name: str) -> bytes | None:
        with self._refusals("read"), suppress(FileNotFoundError, NotADirectoryError), self.open(name) as file:
            return file.read()
        return None

    def read_tagged(self, name: str, most: int = base.MOST_SHARED) -> base.Content | None:
        """Reads an object; its tag is the content's digest."""
        with self._refusals("read"), suppress(FileNotFoundError, NotADirectoryError), self.open(name) as file:
            base.check_shared(os.fstat(file.fileno()).st_size, most, self._root / name)
            data = file.read()
            return base.Content(data, hashlib.sha256(data).hexdigest())
        return None

    def open(self, name: str) -> BinaryIO:
        return paths.open_file(paths.locate(self.url, name))

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Links a temporary file to the name: a late writer cannot replace it. Without links, renames it."""
        path = self._within(name)
        temporary = paths.attempt_name(path)
        with paths.replacing(temporary) as file:  # the writer's own errors are none of a link
            yield file
        try:
            os.link(temporary, path)
        except FileExistsError:
            if not filecmp.cmp(temporary, path, shallow=False):
                raise base.UnsettledOutputError(base.OTHER_CONTENT.format(path)) from None
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        with paths.replacing(self._within(name), durable=durable) as file:
            file.write(data)

    def copy(self, name: str, into: base.Store, target: str, size: int | None = None) -> base.Copied:
        source, path = paths.locate(self.url, name), cast(LocalStore, into)._within(target)
        temporary = paths.attempt_name(path)
        try:
            bytes_ = paths.file_bytes(source)
            if size not in (None, bytes_):
                raise DatasetError(f"{source} holds {bytes_:,} bytes, expected {size:,}: run `recordmill verify`")
            os.link(source, temporary)
        except FileNotFoundError:
            raise DatasetError(f"{source} is missing: run `recordmill verify`") from None
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            with paths.replacing(path) as copy, paths.open_file(source) as file:
                shutil.copyfileobj(file, copy, 4 << 20)
            return base.Copied(bytes_, error.strerror or "unknown reason")
        os.replace(temporary, path)
        Path(temporary).unlink(missing_ok=True)  # a rename onto another name of the same file keeps both
        return base.Copied(0)

    def _within(self, name: str) -> str:
        """Returns the path of a file to write, and makes its folders inside the store."""
        full, path = paths.locate(self.url, name), self.url
        for folder in name.split("/")[:-1]:
            path = os.path.join(path, folder)
            with suppress(FileExistsError):
                os.mkdir(path)
        return full

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Compares and replaces under the lock."""
        with self._refusals("written"):
            if tag is None:
                os.makedirs(self._root, exist_ok=True)
            elif not self._root.is_dir():  # moved away: do not recreate it
                raise base.Conflict(name)
            with self.locked():
                content = self.read_tagged(name)
                if (content and content.tag) != tag:
                    raise base.Conflict(name)
                path = self._entry(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                _replace(path, data)
        return hashlib.sha256(data).hexdigest()

    def exists(self, name: str) -> bool:
        return (self._root / name).is_file()

    def children(self, folder: str) -> list[str]:
        with self._refusals("read"), suppress(FileNotFoundError, NotADirectoryError):
            return sorted(os.listdir(self._root / folder))
        return []

    def names(self, folder: str = "") -> list[str]:
        return list(itertools.filterfalse(paths.is_unfinished, self._files(folder)))

    def sizes(self, folder: str = "") -> dict[str, int]:
        return {name: status.st_size for name, status in self._statuses(folder)}

    def stamps(self, folder: str) -> Mapping[str, Hashable]:
        return {name: (status.st_mtime_ns, status.st_ino) for name, status in self._statuses(folder)}

    def _statuses(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        for name in self.names(folder):
            with suppress(FileNotFoundError):
                yield name, os.lstat(os.path.join(self.url, name))

    def _files(self, folder: str) -> Iterator[str]:
        start = len(os.path.join(self.url, ""))
        walk = os.walk(os.path.join(self.url, folder))
        return (os.path.join(parent, name)[start:] for parent, _, names in walk for name in names)

    def identity(self, name: str) -> tuple[Hashable, int]:
        with suppress(OSError, DatasetError):  # damaged: not shared
            state = os.stat(paths.locate(self.url, name))
            return (state.st_dev, state.st_ino), state.st_nlink
        return name, 1

    def delete(self, name: str, tag: str | None = None) -> None:
        """Also deletes a hidden folder left empty."""
        path = self._entry(name)
        if not path.exists():
            return
        with self._refusals("written"), self.locked():
            content = None if tag is None else self.read_tagged(name)
            if tag is not None and (content is None or tag != content.tag):
                return
            path.unlink(missing_ok=True)
            _remove_empty(path.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks between processes and threads; reentrant."""
        lock = _locks.setdefault(self.url, _Lock())
        with lock.mutex:
            if not lock.depth:
                with self._refusals("written"):
                    lock.file = take_lock(self._root)
            lock.depth += 1
            try:
                yield
            finally:
                lock.depth -= 1
                if not lock.depth:
                    with suppress(OSError):
                        os.unlink(self._root / LOCK_FILE)
                    os.close(lock.file)

    def stage(self, assembled: str, folder: str, claim: bytes) -> None:
        """Fsyncs the files in place."""
        with self._refusals("written"):
            if self._entry(folder).exists():
                raise base.Conflict(folder)
            os.makedirs(self._root, exist_ok=True)
            for parent, _, names in os.walk(assembled):
                for name in names:
                    paths.sync(os.path.join(parent, name))
                paths.sync(parent)

    def reveal(self, assembled: str, folder: str, name: str, data: bytes, tag: str | None = None) -> str:
        """Shows the folder by one rename."""
        with self._refusals("written"), self.locked():
            target = self._entry(folder)
            if tag is not None:
                _replace(target / name, data)
                return tag
            target.parent.mkdir(exist_ok=True)
            _replace(Path(assembled, name), data)
            try:
                os.rename(assembled, target)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise base.Conflict(folder) from None
                raise
            paths.sync(target.parent)
        return folder

    def hide(self, folder: str, name: str, tag: str) -> None:
        self.remove(folder, name)

    def remove(self, folder: str, first: str) -> None:
        """Renames the folder away, then deletes it."""
        with self._refusals("written"):
            path = self._entry(folder)
            away = self._entry(f"{REMOVING_FOLDER}/{paths.attempt_name(path.name)}")
            while os.path.lexists(path):  # another process may remove `.removing` in between
                away.parent.mkdir(exist_ok=True)
                with suppress(FileNotFoundError):
                    os.rename(path, away)
                    paths.sync(path.parent)
            _delete(away)
            _remove_empty(path.parent)

    def remove_all(self, folder: str, but: Collection[str] = ()) -> None:
        for name in sorted(set(self._files(folder)).difference(but)):
            self.delete(name)

    def strays(self, *, remove: bool) -> dict[str, int]:
        """Lists temporary files (under this lock, they are remains) and folders renamed away; ignores links."""
        root = os.path.realpath(self.url)
        with self._refusals("written"), self.locked() if remove else nullcontext():
            found = (path for pattern in _STRAYS for path in Path(root).glob(pattern))
            strays = [path for path in found if os.path.realpath(path.parent) == str(path.parent)]
            sizes = {path.relative_to(root).as_posix(): folder_bytes(path) for path in strays}
            for path in strays if remove else []:
                _delete(path)
        return sizes

    def _entry(self, name: str) -> Path:
        """Returns an entry's path, without following it if it is a link. Raises: DatasetError: it leaves the output."""
        folder, _, last = paths.check_inner(name).rpartition("/")
        return Path(paths.locate(self.url, folder) if folder else self.url, last)

    @contextmanager
    def _refusals(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = error.filename or self.url
            raise base.OutputError(f"the output {self.url} cannot be {action}: {error.strerror}: {path}") from error


def _replace(path: Path, data: bytes) -> None:
    """Replaces a file atomically and durably."""
    paths.write_atomically(path, data)
    paths.sync(path.parent)


def _delete(path: Path) -> None:
    """Deletes a file, a link or a folder, and a hidden parent folder left empty."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    _remove_empty(path.parent)


def _remove_empty(folder: Path) -> None:
    if folder.name.startswith("."):
        with suppress(OSError):
            folder.rmdir()


def folder_bytes(path: Path) -> int:
    """Returns the bytes of a file, or of all files below a folder; ignores files deleted meanwhile."""
    total = 0
    walk = (Path(parent, name) for parent, _, names in os.walk(path) for name in names)
    for file in walk if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total
