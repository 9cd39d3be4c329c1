"""Reads of objects that begin before they are asked for: a store takes tens of milliseconds to answer, a decoder few.

>>> read = ReadAhead(str.encode, [("a",), ("b",)])
>>> read("a"), read("b"), read("another")
(b'a', b'b', b'another')
>>> read.close()
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any

IN_FLIGHT = 32
"""Requests of this process at a time, and reads of one `ReadAhead` that were begun and not asked for."""
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
            for each in self._next():
                if each not in self._begun:  # of images that occur twice, the other one is read when it is asked for
                    self._begun[each] = _pool().submit(_held, self._read, each)

    def _next(self) -> Iterator[tuple[Any, ...]]:
        while len(self._begun) < IN_FLIGHT and HELD.bytes < HELD_BYTES:
            yield from (some := list(islice(self._wanted, 1)))
            if not some:
                return

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
