"""An output in a local or network folder: `os.replace` and fsync under a lock (`stores.folder_lock`)."""

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from recordmill.pipeline.dataset.atomic_files import attempt_name, sync, sync_tree, write_atomically
from recordmill.pipeline.dataset.paths import check_inner, locate, open_file
from recordmill.pipeline.versions.stores.base import HISTORY_FILE, Conflict, Content, OutputError, Store
from recordmill.pipeline.versions.stores.folder_lock import LOCK_FILE, take_lock

REMOVING_FOLDER = ".removing"
"""Takes a folder by one rename before it is deleted."""
_TEMPORARY = "{}.new"  # always the same, as only the lock's holder writes it: it replaces a killed writer's
_STRAYS = (
    "LATEST.new",
    f"{HISTORY_FILE}.new",
    ".leases/*.json.new",
    "versions/*/dataset.json.new",
    f"{REMOVING_FOLDER}/*",
    "LATEST." + "[0-9a-f]" * 32,
)


@dataclass
class _Lock:
    """The lock of a folder, as this process holds it."""

    mutex: threading.RLock = field(default_factory=threading.RLock)
    depth: int = 0
    file: int = -1


_locks: dict[str, _Lock] = {}
"""By folder; all its stores share one."""


class LocalStore(Store):
    """A folder, made by the first write into it."""

    def __init__(self, folder: str) -> None:
        self.url = os.path.abspath(folder)
        self._root = Path(self.url)
        self._lock = _locks.setdefault(self.url, _Lock())

    @property
    def location(self) -> Path:
        return self._root

    def read(self, name: str) -> Content | None:
        """Reads an object; its tag is the content's digest."""
        with self._refusals("read"):
            try:
                with open_file(locate(self.url, name)) as file:
                    data = file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return Content(data, hashlib.sha256(data).hexdigest())

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Compares and replaces under the lock."""
        with self._refusals("written"):
            if tag is None:
                os.makedirs(self._root, exist_ok=True)
            elif not self._root.is_dir():  # moved away: it must not come back
                raise Conflict(name)
            with self.locked():
                content = self.read(name)
                if (content and content.tag) != tag:
                    raise Conflict(name)
                path = self._entry(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                _replace(path, data)
        return hashlib.sha256(data).hexdigest()

    def exists(self, name: str) -> bool:
        return (self._root / name).is_file()

    def children(self, folder: str) -> list[str]:
        with self._refusals("read"):
            try:
                return sorted(os.listdir(self._root / folder))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def sizes(self, folder: str) -> dict[str, int]:
        """Leaves out files that are deleted meanwhile."""
        sizes = {}
        for path in _files(self._root / folder):
            with suppress(FileNotFoundError):
                sizes[path.relative_to(self._root).as_posix()] = path.lstat().st_size
        return sizes

    def delete(self, name: str, tag: str | None = None) -> None:
        """Also deletes a hidden folder that this leaves empty."""
        path = self._entry(name)
        if not path.exists():
            return
        with self._refusals("written"), self.locked():
            content = None if tag is None else self.read(name)
            if tag is not None and (content is None or tag != content.tag):
                return
            path.unlink(missing_ok=True)
            _remove_empty(path.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks between processes and threads; reentrant."""
        with self._lock.mutex:
            if not self._lock.depth:
                with self._refusals("written"):
                    self._lock.file = take_lock(self._root)
            self._lock.depth += 1
            try:
                yield
            finally:
                self._lock.depth -= 1
                if not self._lock.depth:
                    with suppress(OSError):
                        os.unlink(self._root / LOCK_FILE)
                    os.close(self._lock.file)

    def stage(self, assembled: str, folder: str, claim: bytes) -> None:
        """Fsyncs the files where they are."""
        with self._refusals("written"):
            if self._entry(folder).exists():
                raise Conflict(folder)
            os.makedirs(self._root, exist_ok=True)
            sync_tree(assembled)

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
                    raise Conflict(folder) from None
                raise
            sync(target.parent)
        return folder

    def hide(self, folder: str, name: str, tag: str) -> None:
        """Removes the folder."""
        self.remove(folder, name)

    def remove(self, folder: str, first: str) -> None:
        """Renames the folder away, then deletes it."""
        with self._refusals("written"):
            path = self._entry(folder)
            away = self._entry(f"{REMOVING_FOLDER}/{attempt_name(path.name)}")
            while os.path.lexists(path):  # another removal may take `.removing` away in between
                away.parent.mkdir(exist_ok=True)
                with suppress(FileNotFoundError):
                    os.rename(path, away)
                    sync(path.parent)
            _delete(away)
            _remove_empty(path.parent)

    def strays(self, *, remove: bool) -> dict[str, int]:
        """Lists temporary files, which nobody writes under this lock, and folders renamed away; follows no link."""
        root = os.path.realpath(self.url)
        with self._refusals("written"), self.locked() if remove else nullcontext():
            found = (path for pattern in _STRAYS for path in Path(root).glob(pattern))
            strays = [path for path in found if os.path.realpath(path.parent) == str(path.parent)]
            sizes = {path.relative_to(root).as_posix(): folder_bytes(path) for path in strays}
            for path in strays if remove else []:
                _delete(path)
        return sizes

    def _entry(self, name: str) -> Path:
        """Returns the path of what is to be made, replaced or removed: of a link itself, not of what it leads to.

        Raises:
            DatasetError: it leaves the output, by its text or through a link.
        """
        folder, _, last = check_inner(name).rpartition("/")
        return Path(locate(self.url, folder) if folder else self.url, last)

    @contextmanager
    def _refusals(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = error.filename or self.url
            raise OutputError(f"the output {self.url} cannot be {action}: {error.strerror}: {path}") from error


def _replace(path: Path, data: bytes) -> None:
    """Replaces a file by one that is whole on the disk, and fsyncs the folder's entry."""
    write_atomically(path, data, path.with_name(_TEMPORARY.format(path.name)))
    sync(path.parent)


def _delete(path: Path) -> None:
    """Deletes a file, a link or a folder, and a hidden parent folder that this leaves empty."""
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
    """The bytes of a file, or of all files below a folder, without those that go meanwhile."""
    total = 0
    for file in _files(path) if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total


def _files(folder: Path) -> Iterator[Path]:
    return (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
