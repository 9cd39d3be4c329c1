"""Reads and streamed writes of parts of objects.

Reads try obstore once: it needs a seventh of the CPU of a store's own client, outside the GIL. If it fails, the store's
client reads: it finds a bucket's region, retries with backoff, and explains errors.
"""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from io import RawIOBase
from typing import Any, NamedTuple, Protocol

from recordmill.pipeline.dataset.paths import NO_PARTS
from recordmill.pipeline.parallel import free_bytes
from recordmill.pipeline.versions.stores.base import Conflict, TooLargeError, refusals

OPTIONS: dict[str, Any] = {
    "retry_config": {"max_retries": 0},
    "client_options": {"allow_http": True, "timeout": "120s"},  # for a whole answer
}
"""Settings of obstore's stores."""
TRIES = 8  # failures until a bucket never read by obstore is left to the store's client
PART_BYTES = 8 << 20  # 8 MiB of a stream sent, and held in memory, at a time
MOST_ANSWER = 64 << 20  # 64 MiB: of an answer that is no object, such as a page of a listing; one of S3 has 2 MiB


class Part(NamedTuple):
    """A part of an object, and of the whole object its size and the store's tag of its content ("" if unknown)."""

    data: bytes
    size: int
    tag: str = ""


def is_plain(key: str) -> bool:
    """Whether a key has only plain parts, none empty or dotted: for `a/`, obstore reads `a`."""
    return NO_PARTS.isdisjoint(key.split("/"))


def byte_range(start: int, end: int | None) -> dict[str, str]:
    """Returns the header `Range` of a request (RFC 9110, 14.2), or {} for a whole object."""
    return {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end is not None else {}


def size_of(content_range: str | None, length: int, most: int | None) -> int:
    """Returns an object's bytes by an answer's `Content-Range` and `Content-Length`. Raises: TooLargeError."""
    size = int(content_range.rpartition("/")[2]) if content_range else length
    check_size(size, most)
    return size


def received(read: Callable[[int], bytes], size: int, start: int = 0, end: int | None = None) -> bytes:
    """Reads a part of an object of `size` bytes. Raises: ValueError: another length came, or it exceeds the memory."""
    wanted = max(0, min(size, size if end is None else end) - start)
    if wanted > MOST_ANSWER and wanted > free_bytes():
        raise ValueError(f"{wanted:,} bytes are more than the free memory")
    data = read(wanted + 1)  # one more reveals an answer without an end
    if len(data) != wanted:
        found = "more" if len(data) > wanted else "fewer"
        raise ValueError(f"the store sent {found} than the {wanted:,} bytes asked for")
    return data


def check_size(size: int, most: int | None) -> None:
    """Raises: TooLargeError: the size is more than `most`."""
    if most is not None and size > most:
        raise TooLargeError(size)


class DirectReads:
    """Reads one bucket by obstore; thread-safe. `store` is obstore's, with `OPTIONS`; `tag` the tag's field."""

    def __init__(self, store: Any, tag: str) -> None:
        self._get, self._store, self._tag = import_module("obstore").get, store, tag
        self._works, self._failures = False, 0

    def range(self, key: str, start: int, end: int | None, most: int | None) -> Part | None:
        """Reads like `BucketStore.range`; None leaves it to the store's client. Raises: TooLargeError."""
        if (self._failures >= TRIES and not self._works) or _process() != os.getpid() or not is_plain(key):
            return None
        wanted = {"offset": start} if end is None else (start, end)
        try:
            answer = self._get(self._store, key, options={"range": wanted} if start or end is not None else None)
            size = int(answer.meta["size"])
            data = b""
            if most is None or size <= most:
                data = received(lambda some: bytes(next(answer.stream(min_chunk_size=some), b"")), size, start, end)
            part = Part(data, size, str(answer.meta[self._tag] or ""))
        except Exception:  # the store's client will report it
            self._failures += 1
            return None
        self._works = True
        check_size(size, most)
        return part


@cache
def _process() -> int:
    """Returns the process that started obstore, whose threads do not survive a fork."""
    return os.getpid()


class Upload(Protocol):
    """An upload of a new object, invisible until `complete`."""

    def send(self, data: bytes | bytearray) -> None:
        """Sends the next PART_BYTES or more, a multiple of 256 KiB. Raises: Conflict, or the library's errors."""

    def complete(self, data: bytes | bytearray) -> None:
        """Sends the rest, and shows the object. Raises: Conflict: another's is, or will be, there; other errors."""

    def abort(self) -> None:
        """Removes the sent parts. Raises: the library's errors."""


class Stream(RawIOBase):
    """Uploads written data in parts; after losing the race, only hashes it."""

    def __init__(self, upload: Upload, url: str) -> None:
        self._upload, self._url, self._rest, self._parts = upload, url, bytearray(), 0
        self.sha256 = hashlib.sha256()  # of the written data
        self.is_late = False

    def writable(self) -> bool:
        """Returns True."""
        return True

    def write(self, data: Any, /) -> int:
        """Sends complete parts. Raises: OutputError."""
        self.sha256.update(data)
        self._rest += data
        part = PART_BYTES << (self._parts // 1000)  # S3 allows 10,000 parts
        while len(self._rest) >= part:
            self._unless_there(self._upload.send, self._rest[:part])
            del self._rest[:part]
            self._parts += 1
        return memoryview(data).nbytes

    def complete(self) -> None:
        """Sends the rest. Raises: OutputError."""
        self._unless_there(self._upload.complete, self._rest)

    def _unless_there(self, step: Callable[[bytearray], None], data: bytearray) -> None:
        try:
            if not self.is_late:
                with refusals(self._url, "written"):
                    step(data)
        except Conflict:
            self.is_late = True
