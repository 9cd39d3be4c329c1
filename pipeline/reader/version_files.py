"""The files of a version, on this machine or at a URL, such as `s3://bucket/out/emoji`.

`RemotePath` is the part of `pathlib.Path` that a dataset needs, by the same names, so one code reads local and remote
folders. It asks the store each time and keeps nothing, so it sees a version published meanwhile. fsspec, which knows
the stores, is loaded when one is asked. (The package universal-pathlib reports a file that may not be read as absent.)

>>> (RemotePath("s3://bucket/out/emoji") / "LATEST").read_bytes()  # doctest: +SKIP
b'{"version": …'
>>> with VersionFiles(Path("out/emoji/versions/20261120T120000Z-4f1c9a2e")).open("dataset.json") as (file, size):
...     file.read()                                                             # doctest: +SKIP
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from recordmill.pipeline.dataset.file_names import shard_paths
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.paths import Location, check_place, locate, open_file
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import redacted

MISSING = "copy the version again, or build again"
REFUSED = "check the address, the credentials and the network"
BLOCK = 4 << 20  # 4 MiB: one thread's read from a disk or an object store
_EXTRAS = {"s3": "aws", "s3a": "aws", "gs": "gcp", "gcs": "gcp"}


@dataclass(frozen=True)
class RemotePath:
    """An address, without a slash at its end."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, inner: str) -> "RemotePath":
        """Returns the address of a file or folder in this folder."""
        return RemotePath(f"{self.url}/{inner}")

    @property
    def name(self) -> str:
        """The address' last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePath":
        """The folder that holds this."""
        return RemotePath(self.url.rpartition("/")[0])

    def is_file(self) -> bool:
        """Whether the object exists. Raises: DatasetError if the store cannot be asked."""
        try:
            return self._type() == "file"
        except PermissionError:  # S3's answer for an absent object to a user who may not list the bucket
            return False

    def is_dir(self) -> bool:
        """Whether anything is below. Raises: DatasetError if the store cannot be asked."""
        try:
            return self._type() == "directory"
        except PermissionError as error:
            raise unreadable(self.url, error) from None

    def read_bytes(self, most: int | None = None) -> bytes:
        """Returns the object's content, or its first bytes. Raises: DatasetError if it is missing or cannot be read."""
        try:
            return bytes(file_system(self.url).cat_file(self.url, end=most))
        except Exception as error:  # a store's library has its own errors, not only OSError
            raise unreadable(self.url, error) from None

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """Returns the addresses below that match a pattern. Raises: DatasetError if the store cannot be asked."""
        store = file_system(self.url)
        try:
            paths = store.glob(f"{self.url}/{pattern}")
        except Exception as error:
            raise unreadable(self.url, error) from None
        return (RemotePath(store.unstrip_protocol(path)) for path in paths)

    def _type(self) -> str | None:
        try:
            return str(file_system(self.url).info(self.url)["type"])
        except FileNotFoundError:
            return None
        except (PermissionError, DatasetError):
            raise
        except Exception as error:
            raise unreadable(self.url, error) from None


def file_system(url: str) -> Any:
    """Returns fsspec's file system for a URL. Raises: DatasetError if its package is not installed."""
    scheme = url.partition("://")[0]
    try:
        # A cache of listings would hide a version that is published later.
        return importlib.import_module("fsspec.core").url_to_fs(url, use_listings_cache=False)[0]
    except (ImportError, ValueError) as error:
        extra = _EXTRAS.get(scheme)
        advice = (
            f'`pip install "recordmill[{extra}]"`' if extra else "copy the version to a local folder, s3:// or gs://"
        )
        raise DatasetError(f"{url} cannot be read ({redacted(str(error), url)}): {advice}") from None


def unreadable(url: str, error: Exception) -> DatasetError:
    """Returns the error for an object that cannot be read; raise it `from None`: a store's own has secrets."""
    if isinstance(error, FileNotFoundError):
        return DatasetError(f"{url} is missing: {MISSING}")
    reason = redacted(str(getattr(error, "strerror", None) or error), url)
    return DatasetError(f"{url} cannot be read ({reason}): {REFUSED}")


class VersionFiles:
    """A version's folder, on this machine or at a URL."""

    def __init__(self, folder: Location) -> None:
        self.folder = folder

    @contextmanager
    def open(self, path: str) -> Iterator[tuple[BufferedReader, int]]:
        """Opens a file for reading, and returns it with its size in bytes.

        Raises:
            DatasetError: it is missing, cannot be opened or read to its end, is not a plain file, or is a link that
                leaves the folder.
        """
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
            opened = self._open_remote(str(self.folder / path))
        with opened[0]:
            try:
                yield opened
            except OSError as error:
                raise DatasetError(f"the file cannot be read: {error.strerror or error}") from None

    def _open_remote(self, url: str) -> tuple[BufferedReader, int]:
        store = file_system(url)
        try:
            size = int(store.info(url)["size"])
            return cast(BufferedReader, store.open(url, "rb", block_size=BLOCK, cache_type="readahead")), size
        except Exception as error:  # a store's library raises errors of its own, not only OSError
            raise unreadable(url, error) from None

    def located(self, shard: Shard) -> tuple["VersionFiles", str, str]:
        """Returns the folder of a shard, and the paths of its file and its index there.

        Raises:
            DatasetError: as `shard_paths`.
        """
        root, file, index = shard_paths(str(self.folder), shard)
        return VersionFiles(Path(root) if isinstance(self.folder, Path) else RemotePath(root)), file, index

    def read(self, path: str) -> bytes:
        """Reads a whole file. Raises: DatasetError as `open`."""
        with self.open(path) as (file, _):
            return file.read()

    def listing(self) -> list[str]:
        """Lists all files, links to folders among them, by their sorted paths in the folder. Raises: DatasetError."""
        if isinstance(self.folder, Path):
            paths = self.folder.rglob("*")
            return sorted(
                str(path.relative_to(self.folder)) for path in paths if path.is_symlink() or not path.is_dir()
            )
        url = str(self.folder)
        store = file_system(url)
        try:
            root = store._strip_protocol(url)  # the prefix of all paths that `find` returns
            return sorted(path[len(root) :].lstrip("/") for path in store.find(url))
        except Exception as error:
            raise unreadable(url, error) from None
