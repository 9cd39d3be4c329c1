"""Records the files that a piece of code opens or writes, by Python's audit events (`sys.addaudithook`).

Libraries that open files by themselves (Arrow, TensorFlow), and other processes, raise no event here: compare two
`snapshot`s for what they did.
"""

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Named = Callable[[str, tuple[Any, ...]], tuple[Any, ...]]
CHANGES = {"os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.chown", "os.utime"}
"""Events of a path, and last the number of the open folder that it is relative to, or -1."""
PAIRS = {"os.rename", "os.link", "os.symlink"}
"""Events of two paths, and last the numbers of their folders; a link's first is not written, and has no folder."""

_watching: list[tuple[list[str], Named]] = []
_inside = threading.local()
"""The folder's number that the open under way names: its event has none."""


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    for paths, named in (_watching or ())[-1:]:  # None as Python ends
        paths += [os.fsdecode(each) for each in named(event, arguments) if isinstance(each, str | bytes | os.PathLike)]


sys.addaudithook(_on_event)  # it cannot be taken back: it does nothing while nobody watches


def _opened(event: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    file = arguments[:1] if event == "open" else ()
    return tuple(os.path.realpath(os.fsdecode(each)) for each in file if isinstance(each, str | bytes))


def _written(event: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if event == "open":
        is_written = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        return (_full(arguments[0], getattr(_inside, "folder", None)),) if is_written else ()
    if event == "os.truncate":
        return (_full(arguments[0], None),)
    if event in CHANGES:
        return (_full(arguments[0], arguments[-1]),)
    if event in PAIRS:
        first = arguments[-2] if event != "os.symlink" else None
        pair = (_full(arguments[0], first), _full(arguments[1], arguments[-1]))
        return pair if event == "os.rename" else pair[1:]
    return ()


def _full(path: Any, folder: Any) -> str:
    """Returns the path of a file, its folder's links followed: by a path, one in an open folder, or its own number."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    inside = os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) and folder >= 0 else os.getcwd()
    parent, name = os.path.split(os.path.join(inside, os.fsdecode(path)))
    return os.path.join(os.path.realpath(parent), name)


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
    """Records the absolute paths of everything that the block writes, creates, changes, renames or removes."""
    real = os.open

    def in_folder(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        _inside.folder = dir_fd
        try:
            return real(path, flags, mode, dir_fd=dir_fd)
        finally:
            _inside.folder = None

    with _watch(_written) as paths, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", in_folder)
        yield paths


State = tuple[int, int, int, int, int, str]
"""Inode, mode, owner, time and size of an entry, and its content: a digest, or where a link leads to."""


def snapshot(folder: Path) -> dict[str, State]:
    """Describes a folder and all below it, without following links, by paths relative to it."""
    entries = [folder, *(Path(parent, name) for parent, *names in os.walk(folder) for name in sum(names, []))]
    return {str(entry.relative_to(folder)): _state(entry) for entry in entries}


def _state(entry: Path) -> State:
    state, content = entry.lstat(), ""
    if stat.S_ISLNK(state.st_mode):
        content = os.readlink(entry)
    elif stat.S_ISREG(state.st_mode):
        content = hashlib.sha256(entry.read_bytes()).hexdigest()
    return state.st_ino, state.st_mode, state.st_uid, state.st_mtime_ns, state.st_size, content
