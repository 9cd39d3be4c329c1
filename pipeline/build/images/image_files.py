"""Reads images by reference: files, parts of files, or bytes in the row. Needs no TensorFlow.

Objects are prefetched: a store takes tens of milliseconds to answer, a decoder few.

>>> read = ReadAhead(str.encode, [("a",), ("b",)])
>>> read("a"), read("b"), read("another")
(b'a', b'b', b'another')
>>> read.close()
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.sources.files import Files, why_absent
from recordmill.pipeline.sources.images import file_path, parse
from recordmill.pipeline.sources.typing.checks import ABSENT
from recordmill.pipeline.versions.stores.base import TooLargeError
from recordmill.transforms.images.image_header import ImageError
from recordmill.transforms.images.image_spec import MAX_BYTES

IN_FLIGHT = 32  # concurrent requests of this process, and prefetched reads of one `ReadAhead`
HELD_BYTES = 64 << 20  # 64 MiB prefetched in this process; beyond, reads start on demand


class ReadAhead:
    """Prefetches reads, given their arguments in the order of use; thread-safe.

    An unused read costs its request, and its memory until `close`.
    """

    def __init__(self, read: Callable[..., bytes], wanted: Iterable[tuple[Any, ...]]) -> None:
        """Starts reading: `read` returns bytes, `wanted` are its arguments."""
        self._read, self._wanted = read, iter(wanted)
        self._begun: dict[tuple[Any, ...], Future[bytes]] = {}
        self._lock = threading.Lock()
        self._begin()

    def __call__(self, *wanted: Any) -> bytes:
        """Returns the bytes, or raises the read's error; reads on demand if not prefetched."""
        with self._lock:
            begun = self._begun.pop(wanted, None)
        data = self._read(*wanted) if begun is None else _result(begun)
        self._begin()
        return data

    def _begin(self) -> None:
        with self._lock:
            while len(self._begun) < IN_FLIGHT and HELD.bytes < HELD_BYTES:
                if (each := next(self._wanted, None)) is None:
                    return
                if each not in self._begun:  # a repeated image is read on demand
                    self._begun[each] = _pool().submit(_held, self._read, each)

    def close(self) -> None:
        """Drops unused reads."""
        self._wanted = iter(())
        for begun in self._begun.values():
            if not begun.cancel():
                begun.add_done_callback(lambda done: done.exception() or _result(done))
        self._begun.clear()


class _Held:
    """Counts this process' prefetched, unused bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.bytes += count


HELD = _Held()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(IN_FLIGHT, "recordmill-read")


def _held(read: Callable[..., bytes], wanted: tuple[Any, ...]) -> bytes:
    data = read(*wanted)
    HELD.add(len(data))
    return data


def _result(begun: "Future[bytes]") -> bytes:
    data = begun.result()
    HELD.add(-len(data))
    return data


@dataclass(frozen=True)
class ImageFiles:
    """Reads the bytes of a build's images."""

    files: Files
    roots: Sequence[str]  # each source's folder of images
    scratch: str  # the build's scratch folder, for images without random access in their source
    max_bytes: int = MAX_BYTES  # the largest `max_bytes` of the image features
    ahead: ReadAhead | None = None  # prefetched reads

    @classmethod
    def of(cls, planned: PlannedBuild, **more: Any) -> Self:
        """Creates the reader of a build's images."""
        most = max((options.max_bytes for options in planned.images().values()), default=MAX_BYTES)
        return cls(planned.files, planned.roots, planned.scratch, most, **more)

    def reading_ahead(self, wanted: Iterable[tuple[int, bytes, int]]) -> Self:
        """Prefetches images of stores within a `with`; `wanted` are the arguments of `read` in the order of use."""
        is_remote = any("://" in root for root in self.roots)
        return replace(self, ahead=ReadAhead(self.read, wanted)) if is_remote else self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drops unused reads."""
        if self.ahead is not None:
            self.ahead.close()

    def read(self, source: int, reference: bytes, max_bytes: int | None = None) -> bytes:
        """Reads an image's bytes, at most `max_bytes`.

        Raises:
            ImageError: `unreadable`: the file is missing; `too_large`, unread; `missing_value`: empty bytes.
            OSError: the machine, the disk or the network failed.
        """
        most = self.max_bytes if max_bytes is None else max_bytes
        if self.ahead is not None:
            return self.ahead(source, reference, most)
        parsed = parse(reference)
        if parsed.data == b"" or parsed.length == 0:
            raise ImageError(ABSENT.reason, ABSENT.message)
        if (size := len(parsed.data or b"") or parsed.length or 0) > most:
            raise _too_large(size, most)
        if parsed.data is not None:
            return parsed.data
        full = f"{self.scratch if parsed.in_scratch else self.roots[source]}/{parsed.path}"
        try:
            return self.files.read(full, parsed.offset, parsed.length, most if parsed.length is None else None)
        except TooLargeError as error:
            raise _too_large(error.size, most) from None
        except OSError as error:
            why = why_absent(error, full, self.files)
            if why is None or parsed.in_scratch:
                raise
            hint = "; separate folders by `/`, not `\\`" if "\\" in parsed.path else ""
            raise ImageError("unreadable", f"the file {parsed.path}: {why}{hint}", parsed.path) from None

    def whole_file(self, source: int, reference: bytes) -> str | None:
        """Names a local image file by source and path; None for any other image."""
        path = file_path(reference)
        return None if path is None or "://" in self.roots[source] else f"{source}/{path}"


def _too_large(size: int, most: int) -> ImageError:
    return ImageError("too_large", f"the image has {size:,} bytes; max_bytes allows {most:,}")
