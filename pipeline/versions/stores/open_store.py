"""Opens the store of an output: a local folder, Google Cloud Storage or S3, all by one protocol, `Store`."""

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

READ_BYTES = 4 << 20  # 4 MiB: the bytes of an object that a request of a stream asks for
_STORES: dict[str, type[BucketStore]] = {"gs": GcsStore, "s3": S3Store}


def is_local(output: str) -> bool:
    """Whether an output is a path of this machine, not a URL."""
    return ":/" not in output


def open_store(output: str) -> Store:
    """Opens the store of an output: a path, `gs://bucket/folder` or `s3://bucket/folder`. Sends no request yet.

    Raises:
        OutputError: a URL of another scheme, without a bucket, or with odd parts, or its library is not installed.
    """
    return LocalStore(output) if is_local(output) else open_bucket(output)


def open_bucket(url: str) -> BucketStore:
    """Opens a folder of an object store. Raises: OutputError as `open_store`."""
    scheme, _, rest = url.partition("://")
    bucket, _, folder = rest.removesuffix("/").partition("/")
    if scheme not in _STORES or not bucket:
        raise OutputError(f"{url} is neither a path nor a URL like gs://bucket/folder or s3://bucket/folder")
    if folder and not is_plain(folder):
        raise OutputError(f"{url} has an empty or dotted part, by which tools mean different folders: name one without")
    return _STORES[scheme](bucket, folder)


def open_object(url: str) -> tuple[BucketStore, str]:
    """Returns the bucket and the name of an object; all reads of this process share the bucket's client.

    Raises:
        OutputError: as `open_store`.
    """
    scheme, _, rest = url.partition("://")
    bucket, _, name = rest.partition("/")
    return _shared_bucket(f"{scheme}://{bucket}"), name


@lru_cache(maxsize=32)
def _shared_bucket(url: str) -> BucketStore:
    return open_bucket(url)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_shared_bucket.cache_clear)  # a fork shares its parent's connections


def open_stream(url: str) -> BufferedReader:
    """Opens an object for reading in any order. Raises: OutputError as `open_store`; the first read: as its `range`."""
    return BufferedReader(_ObjectStream(*open_object(url)), READ_BYTES)


class _ObjectStream(RawIOBase):
    """An object that is read by ranges; its size comes with the first of them."""

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
        return self._next(None)  # by one request: by itself it asks for 8 KiB at a time

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
    """Returns an output, or a folder in it, as `pipeline.dataset.manifest` reads it; a local path stays as given."""
    return Path(output) if is_local(output) else open_store(output).location
