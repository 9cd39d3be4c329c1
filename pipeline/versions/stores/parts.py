"""Parts of objects: streams that write them, and reads.

obstore reads first: it takes a seventh of the CPU of a store's own client, outside Python's lock. It is asked once.
What it cannot read, the store's client reads: it finds a bucket of another region, waits and repeats, and says what an
error means.
"""

import hashlib
import os
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from io import RawIOBase
from typing import Any, NamedTuple, Protocol

from recordmill.pipeline.dataset.paths import NO_PARTS
from recordmill.pipeline.versions.stores.base import Conflict, TooLargeError, refusals
from recordmill.pipeline.versions.stores.traffic import TRAFFIC

OPTIONS: dict[str, Any] = {
    "retry_config": {"max_retries": 0},
    "client_options": {"allow_http": True, "timeout": "120s"},  # of a whole answer
}
"""Settings of obstore's stores."""
TRIES = 8  # failures after which a bucket that obstore never read is left to the store's client


PART_BYTES = 8 << 20  # 8 MiB: the bytes of a stream that are sent, and held in memory, at a time


class Part(NamedTuple):
    """A part of an object, and the bytes of the whole."""

    data: bytes
    size: int
    tag: str = ""
    """The store's tag of the whole, which changes with its content; empty where it says none."""


def is_plain(key: str) -> bool:
    """Whether a key has no empty and no dotted part: of `a/`, obstore reads `a`."""
    return NO_PARTS.isdisjoint(key.split("/"))


def byte_range(start: int, end: int | None) -> dict[str, str]:
    """Returns the header `Range` of a request (RFC 9110, 14.2); none for a whole object."""
    return {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end is not None else {}


def size_of(content_range: str | None, length: int, most: int | None) -> int:
    """Returns the bytes of an object by the headers `Content-Range` and `Content-Length` of an answer.

    Raises:
        TooLargeError: they are more than `most`.
    """
    size = int(content_range.rpartition("/")[2]) if content_range else length
    check_size(size, most)
    return size


def check_size(size: int, most: int | None) -> None:
    """Checks a size. Raises: TooLargeError: it is more than `most`."""
    if most is not None and size > most:
        raise TooLargeError(size)


class DirectReads:
    """Reads of one bucket by obstore. May be used by several threads."""

    def __init__(self, store: Any, tag: str) -> None:
        """Takes a store of obstore's, with `OPTIONS`, and the field of its answers that holds an object's tag."""
        self._get, self._store, self._tag = import_module("obstore").get, store, tag
        self._works, self._failures = False, 0

    def range(self, key: str, start: int, end: int | None, most: int | None) -> Part | None:
        """Reads as `BucketStore.range`; None: the store's client should.

        Raises:
            TooLargeError: the object has more than `most` bytes.
        """
        if (self._failures >= TRIES and not self._works) or _process() != os.getpid() or not is_plain(key):
            return None
        began, wanted = time.monotonic(), {"offset": start} if end is None else (start, end)
        try:
            answer = self._get(self._store, key, options={"range": wanted} if start or end is not None else None)
            size = int(answer.meta["size"])
            data = bytes(answer.bytes()) if most is None or size <= most else b""
            part = Part(data, size, str(answer.meta[self._tag] or ""))
        except Exception:  # whatever it is, the store's client meets it, too
            _count(began, retries=1)
            self._failures += 1
            return None
        _count(began, bytes=len(part.data))
        self._works = True
        check_size(size, most)
        return part


def _count(began: float, **counts: int) -> None:
    TRAFFIC.add("get", milliseconds=round(1000 * (time.monotonic() - began)), **counts)


@cache
def _process() -> int:
    """Returns the process in which obstore began: its threads are in no fork of that."""
    return os.getpid()


class Upload(Protocol):
    """A stream on its way to a new object, which nobody sees before `complete`."""

    def send(self, data: bytes | bytearray) -> None:
        """Sends the next PART_BYTES or more, a multiple of 256 KiB. Raises: Conflict, or the library's errors."""

    def complete(self, data: bytes | bytearray) -> None:
        """Sends the rest, and shows the object.

        Raises:
            Conflict: another process was first; its object is there, or about to be. Or the library's errors.
        """

    def abort(self) -> None:
        """Removes what was sent. Raises: the library's errors."""


class Stream(RawIOBase):
    """Sends what is written in parts; where another process was first, only digests it."""

    def __init__(self, upload: Upload, url: str) -> None:
        self._upload, self._url, self._rest, self._parts = upload, url, bytearray(), 0
        self._sha256 = hashlib.sha256()
        self.is_late = False

    @property
    def digest(self) -> bytes:
        """The SHA-256 of what was written."""
        return self._sha256.digest()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any, /) -> int:
        """Sends the parts that are whole. Raises: OutputError."""
        self._sha256.update(data)
        self._rest += data
        part = PART_BYTES << (self._parts // 1000)  # S3 takes 10,000 parts
        while len(self._rest) >= part:
            self._send(part)
        return memoryview(data).nbytes

    def _send(self, part: int) -> None:
        self._unless_there(self._upload.send, self._rest[:part])
        del self._rest[:part]
        self._parts += 1

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
