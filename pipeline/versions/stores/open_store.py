"""Opens an output's `Store`: a local folder, Google Cloud Storage or S3."""

import os
from functools import lru_cache
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.versions.stores.base import OutputError, Store
from recordmill.pipeline.versions.stores.bucket import BucketStore
from recordmill.pipeline.versions.stores.gcs import GcsStore
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.parts import is_plain
from recordmill.pipeline.versions.stores.s3 import S3Store

READ_BYTES = 4 << 20  # 4 MiB: per request of a stream
_STORES: dict[str, type[BucketStore]] = {"gs": GcsStore, "s3": S3Store}


def is_local(output: str) -> bool:
    """Whether an output is a path of this machine, not a URL."""
    return ":/" not in output


def open_store(output: str) -> Store:
    """Opens a path, `gs://bucket/folder` or `s3://bucket/folder`, without a request. Raises: OutputError: others."""
    return LocalStore(output) if is_local(output) else open_bucket(output)


def open_bucket(url: str) -> BucketStore:
    """Opens a folder of an object store. Raises: OutputError as `open_store`."""
    scheme, _, rest = url.partition("://")
    bucket, _, folder = rest.removesuffix("/").partition("/")
    if scheme not in _STORES or not bucket:
        raise OutputError(f"{url} is neither a path nor a URL like gs://bucket/folder or s3://bucket/folder")
    if folder and not is_plain(folder):
        raise OutputError(f"{url} has an empty or dotted part, which tools read differently: use a URL without it")
    return _STORES[scheme](bucket, folder)


def open_object(url: str) -> tuple[BucketStore, str]:
    """Returns an object's bucket, with one client per process, and its name. Raises: OutputError as `open_store`."""
    scheme, _, rest = url.partition("://")
    bucket, _, name = rest.partition("/")
    return _shared_bucket(f"{scheme}://{bucket}"), name


@lru_cache(maxsize=32)
def _shared_bucket(url: str) -> BucketStore:
    return open_bucket(url)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_shared_bucket.cache_clear)  # a fork shares its parent's connections


def open_stream(url: str) -> BufferedReader:
    """Opens a seekable stream of an object. Raises: OutputError as `open_store`; its reads raise as `range`."""
    return BufferedReader(_ObjectStream(*open_object(url)), READ_BYTES)


class _ObjectStream(RawIOBase):
    """An object read by ranges; the first answer also has its size."""

    def __init__(self, store: BucketStore, name: str) -> None:
        self._store, self._name, self._at = store, name, 0
        self._size: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._next(self._at + len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._next(self._size)  # one request; the default is one per 8 KiB

    def _next(self, end: int | None) -> bytes:
        if self._size is not None and self._at >= self._size:
            return b""
        data, self._size, _ = self._store.range(self._name, self._at, end)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END and self._size is None:
            self._size = self._store.size(self._name)
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size or 0}
        self._at = base[whence] + offset
        return self._at


def open_location(output: str) -> Location:
    """Returns an output's `Location` for readers (`pipeline.dataset.manifest`); a local path stays relative."""
    return Path(output) if is_local(output) else open_store(output).location
