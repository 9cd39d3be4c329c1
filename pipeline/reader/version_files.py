"""The files of a version, local or at a URL, such as `s3://bucket/out/emoji`.

`RemotePath` has the methods of `pathlib.Path` that a dataset needs: one code reads local and remote folders. It caches
nothing, so it sees a version published meanwhile. The store's client is that of builds, loaded at its first use.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TypeAlias

from recordmill.pipeline.dataset.file_names import shard_paths
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.paths import ADVICE, Location, check_place, locate, open_file
from recordmill.pipeline.errors import FORBIDDEN, NOT_FOUND, DatasetError, ExitCode, code_of, status_of
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_object, open_stream


@dataclass(frozen=True)
class RemotePath:
    """A URL without a trailing slash."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, inner: str) -> "RemotePath":
        """Returns the URL of a file or folder in this folder."""
        return RemotePath(f"{self.url}/{inner}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePath":
        """The folder that holds this."""
        return RemotePath(self.url.rpartition("/")[0])

    def is_file(self) -> bool:
        """Whether the object exists. Raises: DatasetError if the store does not answer."""
        # S3 answers Forbidden for an absent object if the user may not list the bucket.
        with readable(self.url, FORBIDDEN, NOT_FOUND), suppress(FileNotFoundError):
            store, name = open_object(self.url)
            try:
                return store.size(name) >= 0
            except OutputError as error:
                if status_of(error) == FORBIDDEN and self.name in store.children(name.rpartition("/")[0]):
                    raise DatasetError(f"{error}; it is there: ask for the right to read it") from None
                raise
        return False

    def is_dir(self) -> bool:
        """Whether the folder holds anything. Raises: DatasetError if the store does not answer."""
        with readable(self.url, NOT_FOUND):
            store, name = open_object(self.url)
            return bool(store.children(name))
        return False

    def read_bytes(self, most: int | None = None) -> bytes:
        """Returns the object's content, or its first bytes. Raises: DatasetError if missing or unreadable."""
        with readable(self.url):
            store, name = open_object(self.url)
            return store.range(name, 0, most).data


Folder: TypeAlias = Path | RemotePath  # the folder of a dataset or of a version


class UnansweredError(DatasetError):
    """A store did not answer, was too busy, or wants newer credentials: a retry may succeed."""

    exit_code = ExitCode.TRY_AGAIN


@contextmanager
def readable(url: str, *absent: int, advice: str = ADVICE) -> Iterator[None]:
    """Turns a store's errors, which may hold secrets, into DatasetError; suppresses the statuses `absent`."""
    try:
        yield
    except FileNotFoundError:
        raise DatasetError(f"{url} is missing: {advice}") from None
    except OutputError as error:
        if status_of(error) not in absent:
            kind = UnansweredError if code_of(error) is ExitCode.TRY_AGAIN else DatasetError
            raise kind(str(error)) from None


class VersionFiles:
    """A version's folder, local or at a URL."""

    def __init__(self, folder: Location) -> None:
        self.folder = folder

    @contextmanager
    def open(self, path: str) -> Iterator[tuple[BufferedReader, int]]:
        """Opens a file: (file, size). Raises: DatasetError: missing, unreadable, not plain, or outside the folder."""
        if isinstance(self.folder, Path):
            try:
                file = open_file(locate(str(self.folder), path))
            except FileNotFoundError:
                raise DatasetError("the file is missing") from None
            except OSError as error:
                raise DatasetError(f"the file cannot be read: {error.strerror}") from None
            opened = file, os.fstat(file.fileno()).st_size
        else:
            check_place(str(self.folder), path)
            with readable(str(self.folder / path)):
                stream = open_stream(str(self.folder / path))
                opened = stream, stream.seek(0, os.SEEK_END)
                stream.seek(0)
        with opened[0]:
            try:
                with readable(str(self.folder / path)):
                    yield opened
            except OSError as error:
                raise DatasetError(f"the file cannot be read: {error.strerror or error}") from None

    def located(self, shard: Shard) -> list[tuple["VersionFiles", str]]:
        """Returns the folder and the inner path of a shard's file, and of each index. Raises: DatasetError."""
        file, index, _, packs = shard_paths(str(self.folder), shard)
        found = []
        for place in (file, index, *packs):
            folder = RemotePath(place.root) if "://" in place.root else Path(place.root)
            found.append((VersionFiles(folder), place.file))
        return found

    def read(self, path: str, most: int = -1) -> bytes:
        """Reads a whole file, or its first `most` bytes. Raises: DatasetError as `open`."""
        with self.open(path) as (file, _):
            return file.read(most)

    def listing(self) -> list[str]:
        """Lists all files, and links to folders, by sorted relative paths. Raises: DatasetError."""
        if isinstance(self.folder, Path):
            paths = (path for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir())
            return sorted(str(path.relative_to(self.folder)) for path in paths)
        with readable(str(self.folder)):
            store, folder = open_object(str(self.folder))
            names = (name.removeprefix(folder).lstrip("/") for name in store.names(folder))
            return sorted(name for name in names if name and not name.endswith("/"))  # no console's folder markers
