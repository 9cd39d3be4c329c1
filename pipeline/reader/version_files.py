"""The files of a version, on this machine or at a URL.

>>> with VersionFiles(Path("out/emoji/versions/20261120T120000Z-4f1c9a2e")).open("dataset.json") as (file, size):
...     file.read()                                                             # doctest: +SKIP
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import cast

from recordmill.pipeline.dataset.file_names import shard_paths
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.paths import Location, check_place, locate, open_file
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.remote_path import RemotePath, file_system, unreadable

BLOCK = 4 << 20  # 4 MiB: one thread's read from a disk or an object store


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
            root = store._strip_protocol(url)  # the prefix of all paths that `find` gives
            return sorted(path[len(root) :].lstrip("/") for path in store.find(url))
        except Exception as error:
            raise unreadable(url, error) from None
