"""The bytes of images by reference: in files, in pieces of files, or in the row itself. Needs no TensorFlow.

Reads of objects begin before they are asked for: a store takes tens of milliseconds to answer, a decoder few.

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
from recordmill.pipeline.sources.typing.blocks import ABSENT
from recordmill.pipeline.spec.features.image import MAX_BYTES
from recordmill.pipeline.versions.stores.base import TooLargeError
from recordmill.transforms.contract.image_header import ImageError

IN_FLIGHT = 32  # requests of this process at a time, and reads of one `ReadAhead` that were begun and not asked for
HELD_BYTES = 64 << 20  # 64 MiB of this process: beyond, a read begins when it is asked for


class ReadAhead:
    """Reads whose arguments are given in the order in which they will be asked for; several threads may ask.

    A read that nobody asks for costs its request, and its memory until `close`.
    """

    def __init__(self, read: Callable[..., bytes], wanted: Iterable[tuple[Any, ...]]) -> None:
        """Takes a function of bytes, and its arguments. Begins."""
        self._read, self._wanted = read, iter(wanted)
        self._begun: dict[tuple[Any, ...], Future[bytes]] = {}
        self._lock = threading.Lock()
        self._begin()

    def __call__(self, *wanted: Any) -> bytes:
        """Returns the bytes, or raises what the function did; reads what was not begun."""
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
                if each not in self._begun:  # of images that occur twice, the other one is read when it is asked for
                    self._begun[each] = _pool().submit(_held, self._read, each)

    def close(self) -> None:
        """Lets go of what was not asked for."""
        self._wanted = iter(())
        for begun in self._begun.values():
            if not begun.cancel():
                begun.add_done_callback(_let_go)
        self._begun.clear()


class _Held:
    """The bytes that were read and not asked for, in this process."""

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


def _let_go(begun: "Future[bytes]") -> None:
    if begun.exception() is None:
        _result(begun)


@dataclass(frozen=True)
class ImageFiles:
    """Reads the bytes of a build's images."""

    files: Files
    roots: Sequence[str]
    """The folder of each source's images."""
    scratch: str
    """The build's scratch folder, for images that cannot be read again from their source in any order."""
    max_bytes: int = MAX_BYTES
    """The largest `max_bytes` of the image features."""
    ahead: ReadAhead | None = None
    """Reads that have begun."""

    def reading_ahead(self, wanted: Iterable[tuple[int, bytes, int]]) -> Self:
        """Begins to read images of stores, in the order in which they will be asked for, within a `with`.

        Args:
            wanted: the arguments of `read`.
        """
        is_remote = any("://" in root for root in self.roots)
        return replace(self, ahead=ReadAhead(self.read, wanted)) if is_remote else self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets go of what was read and not asked for."""
        if self.ahead is not None:
            self.ahead.close()

    def read(self, source: int, reference: bytes, max_bytes: int | None = None) -> bytes:
        """Reads an image's bytes, at most `max_bytes`.

        Raises:
            ImageError: `unreadable`: the file is not there; `too_large`: it was not read; `missing_value`: the row's
                bytes are empty.
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
            hint = "; between folders write `/`, where it has `\\`" if "\\" in parsed.path else ""
            raise ImageError("unreadable", f"the file {parsed.path}: {why}{hint}", parsed.path) from None

    def whole_file(self, source: int, reference: bytes) -> str | None:
        """Names an image that is a local file, by its source and its path there; None for any other."""
        path = file_path(reference)
        return None if path is None or "://" in self.roots[source] else f"{source}/{path}"


def _too_large(size: int, most: int) -> ImageError:
    return ImageError("too_large", f"the image has {size:,} bytes; max_bytes allows {most:,}")


def image_files(planned: PlannedBuild) -> ImageFiles:
    """Creates the reader of the bytes of a build's images."""
    return ImageFiles(planned.files, planned.roots, planned.scratch, most_bytes(planned))


def most_bytes(planned: PlannedBuild) -> int:
    """Returns the largest `max_bytes` of the image features."""
    return max((options.max_bytes for options in planned.images().values()), default=MAX_BYTES)
