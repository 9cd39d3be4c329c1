"""The workspace of a build: where driver and workers leave files for each other, in a folder or in an object store.

Names are relative to the workspace, with slashes. A workspace is small and goes to the workers with the job; each
process makes its own client.

    workspace.write("reports/chunk-000000.json", data)      # whole or not at all; replaces
    with workspace.create("set-train.tfrecord-00000-of-00001") as file:
        file.write(data)                                    # appears when the block ends, and not after an error
"""

import errno
import io
import itertools
import json
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol

from recordmill.pipeline.dataset.atomic_files import is_unfinished, replacing
from recordmill.pipeline.dataset.paths import locate
from recordmill.pipeline.versions.stores.bucket import CONNECTIONS, BucketStore
from recordmill.pipeline.versions.stores.open_store import open_bucket

READS = CONNECTIONS
"""Objects of a bucket read at a time."""


class Workspace(Protocol):
    """A folder that driver and workers share; may be used by several threads, and pickled.

    Every method raises OSError (a local folder) or OutputError (a bucket) where the store refuses. A name whose folder
    was taken over by a later attempt (`pipeline.build.attempt.attempts`) cannot be written any more.
    """

    def __hash__(self) -> int: ...

    @property
    def url(self) -> str:
        """The absolute path of the folder, or its URL; no slash at its end."""

    @property
    def pause(self) -> float:
        """The least seconds between two looks at what others write here, and between two writes for their eyes."""

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Writes a file, whole or not at all; replaces one of this name.

        Without `durable` it may be lost with the machine's power.
        """

    def read(self, name: str) -> bytes | None:
        """Reads a file; None if it does not exist."""

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading in any order. Raises: FileNotFoundError."""

    def names(self, folder: str = "") -> list[str]:
        """Lists every finished file below a folder, by its name in the workspace."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Returns the bytes of every file below a folder, by its name in the workspace."""

    def stamps(self, folder: str) -> Mapping[str, Hashable]:
        """Returns for every file below a folder, by its name in the workspace, a value that changes with the file."""

    def delete(self, name: str) -> None:
        """Deletes a file, if there is one."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Opens a stream for a file that appears when the block ends; after an error nothing is left.

        A folder replaces a file of this name. A bucket keeps it, and takes equal content as written.

        Raises:
            OutputError: a bucket has an object of this name and other content.
        """

    def folder(self, name: str) -> "Workspace":
        """Returns a folder in it as a workspace."""


@dataclass(frozen=True)
class LocalWorkspace:
    """A local folder, or a network folder that all workers have under one path.

    It is not made again once it is gone: a later attempt takes a folder over by renaming it, and late writers fail.
    """

    url: str
    pause: ClassVar[float] = 0.0

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Writes and renames."""
        with self.create(name) if durable else replacing(self._path(name), durable=False) as file:
            file.write(data)

    def read(self, name: str) -> bytes | None:
        try:
            return Path(self.url, name).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, name: str) -> BinaryIO:
        return open(os.path.join(self.url, name), "rb")

    def names(self, folder: str = "") -> list[str]:
        start = len(self.url) + 1
        walk = os.walk(os.path.join(self.url, folder))
        files = (os.path.join(parent, name)[start:] for parent, _, names in walk for name in names)
        return list(itertools.filterfalse(is_unfinished, files))

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Leaves out files that go meanwhile."""
        return {name: status.st_size for name, status in self._statuses(folder)}

    def stamps(self, folder: str) -> Mapping[str, Hashable]:
        return {name: (status.st_mtime_ns, status.st_ino) for name, status in self._statuses(folder)}

    def _statuses(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        for name in self.names(folder):
            with suppress(FileNotFoundError):
                yield name, os.stat(os.path.join(self.url, name))

    def delete(self, name: str) -> None:
        Path(self.url, name).unlink(missing_ok=True)

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Opens a temporary file beside it; makes the folders inside the workspace that it needs."""
        return replacing(self._path(name))

    def _path(self, name: str) -> str:
        full, path = locate(self.url, name), self.url
        for folder in name.split("/")[:-1]:
            path = os.path.join(path, folder)
            with suppress(FileExistsError):
                os.mkdir(path)
        return full

    def folder(self, name: str) -> "LocalWorkspace":
        return LocalWorkspace(os.path.join(self.url, name))


@dataclass(frozen=True)
class BucketWorkspace:
    """A folder of an object store, as `gs://bucket/folder` or `s3://bucket/folder`."""

    url: str
    pause: ClassVar[float] = 10.0

    @property
    def _store(self) -> BucketStore:
        return _store(self.url)

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._store.write(name, bytes(data))  # Arrow's buffers are none to every client

    def read(self, name: str) -> bytes | None:
        content = self._store.read(name)
        return None if content is None else content.data

    def open(self, name: str) -> BinaryIO:
        data = self.read(name)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}/{name}")
        return io.BytesIO(data)

    def names(self, folder: str = "") -> list[str]:
        return list(self._store.sizes(folder))

    def sizes(self, folder: str = "") -> dict[str, int]:
        return self._store.sizes(folder)

    def stamps(self, folder: str) -> Mapping[str, Hashable]:
        return self._store.tags(folder)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        return self._store.create(name)

    def folder(self, name: str) -> "BucketWorkspace":
        return BucketWorkspace(f"{self.url}/{name}")


@lru_cache(maxsize=8)
def _store(url: str) -> BucketStore:
    return open_bucket(url)


def read_all(workspace: Workspace, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
    """Reads files in their order, from a bucket many at a time; None for one that does not exist."""
    names = list(names)
    if isinstance(workspace, LocalWorkspace) or len(names) < 2:
        yield from ((name, workspace.read(name)) for name in names)
        return
    with ThreadPoolExecutor(min(READS, len(names))) as pool:
        yield from zip(names, pool.map(workspace.read, names), strict=True)


def write_report(workspace: Workspace, name: str, report: Mapping[str, Any]) -> None:
    """Writes `name.json`."""
    workspace.write(f"{name}.json", json.dumps(report).encode())


def read_report(workspace: Workspace, name: str) -> dict[str, Any] | None:
    """Reads a report; None if it does not exist."""
    data = workspace.read(f"{name}.json")
    return None if data is None else json.loads(data)
