"""Reads of parts of objects, by obstore first: a seventh of the CPU of a store's own client, and outside Python's lock.

obstore is asked once. What it cannot read, the store's client reads: it finds a bucket of another region, waits and
repeats, and says what an error means.
"""

import os
import time
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from recordmill.pipeline.dataset.paths import NO_PARTS
from recordmill.pipeline.versions.stores.base import TooLargeError
from recordmill.pipeline.versions.stores.traffic import TRAFFIC

OPTIONS: dict[str, Any] = {
    "retry_config": {"max_retries": 0},
    "client_options": {"allow_http": True, "timeout": "120s"},  # of a whole answer
}
"""Settings of obstore's stores."""
TRIES = 8
"""Failures after which a bucket that obstore never read is left to the store's client."""


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
