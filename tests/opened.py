"""Records the files that a piece of code opens or writes, by Python's audit events (`sys.addaudithook`)."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Named = Callable[[str, tuple[Any, ...]], tuple[Any, ...]]
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}

_watching: list[tuple[list[str], Named]] = []


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    for paths, named in _watching[-1:]:
        paths += [os.fsdecode(each) for each in named(event, arguments) if isinstance(each, str | bytes | os.PathLike)]


sys.addaudithook(_on_event)  # it cannot be taken back: it does nothing while nobody watches


def _opened(event: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    file = arguments[:1] if event == "open" else ()
    return tuple(os.path.realpath(os.fsdecode(each)) for each in file if isinstance(each, str | bytes))


def _written(event: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if event == "open":
        return arguments[:1] if arguments[2] & (os.O_WRONLY | os.O_RDWR) else ()
    if event not in CHANGES or (isinstance(arguments[-1], int) and arguments[-1] >= 0):
        return ()  # what is named by an open folder's number is relative to it
    return arguments[:2]


@contextmanager
def _watch(named: Named) -> Iterator[list[str]]:
    paths: list[str] = []
    watched = (paths, named)
    _watching.append(watched)
    try:
        yield paths
    finally:
        _watching[:] = [other for other in _watching if other is not watched]


@contextmanager
def opened() -> Iterator[list[str]]:
    """Records the real paths of all files that any thread opens in the block."""
    with _watch(_opened) as paths:
        yield paths


@contextmanager
def written() -> Iterator[list[str]]:
    """Records the paths of everything that the block writes, creates, renames or removes."""
    with _watch(_written) as paths:
        yield paths
