"""Files of the operating system, as sources list and open them.

Symbolic links are followed, once in a chain of folders; a broken one is listed with 0 bytes, so that reading it counts
it as missing.
"""

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from recordmill.pipeline.dataset.paths import open_file
from recordmill.pipeline.sources.base import FileInfo
from recordmill.pipeline.sources.file_list import FileList
from recordmill.pipeline.sources.globs import depth, folder_prefix, glob_pattern, is_literal, literal_prefix

Identity = tuple[int, int]
"""A folder's device and inode."""


class LocalFiles:
    """Files of this machine; has no state, so it can be sent to workers."""

    def match(self, pattern: str) -> FileList:
        """Lists the files that a glob, or a plain path, matches, sorted by path.

        Raises:
            OSError: a folder cannot be listed.
        """
        return FileList(_matched(pattern))

    def is_folder(self, path: str) -> bool:
        """Whether `path` is a folder."""
        return os.path.isdir(path)

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading, at its first byte.

        Raises:
            OSError: it is missing or unreadable.
        """
        if "\0" in path:
            raise OSError(f"cannot open {path!r}: a path holds no NUL character")
        return open_file(path)


def _matched(pattern: str) -> Iterator[FileInfo]:
    for path in (pattern, literal_prefix(pattern)) if is_literal(pattern) else (pattern,):
        if os.path.isfile(path):
            return _regular(path)
    folder = folder_prefix(pattern)
    if is_literal(pattern) or not os.path.isdir(folder or "."):
        return iter(())
    matches = glob_pattern(pattern).fullmatch
    hidden = "/." in pattern[len(folder) :] or pattern[len(folder) :].startswith(".")
    paths = _walk(folder, depth(pattern), hidden, frozenset())
    return (file for path in paths if matches(path) for file in _regular(path))  # to look at a file takes long


def _walk(folder: str, levels: int | None, hidden: bool, above: frozenset[Identity]) -> Iterator[str]:
    """Lists what lies in a folder, and in at most `levels` of folders below, but folders; sorted by the whole paths.

    `above` are the folders around it.
    """
    state = os.stat(folder or ".")
    identity = state.st_dev, state.st_ino
    if identity in above:
        return
    for name in _names(folder, hidden):
        if not name.endswith("/"):
            yield folder + name
        elif levels != 0:
            yield from _walk(folder + name, levels and levels - 1, hidden, above | {identity})


def _names(folder: str, hidden: bool) -> list[str]:
    """Lists what lies in a folder, sorted; folders with a slash at their ends, as all paths below them begin."""
    with os.scandir(folder or ".") as entries:
        shown = (entry for entry in entries if hidden or not entry.name.startswith("."))
        return sorted(f"{entry.name}/" if _is_folder(entry) else entry.name for entry in shown)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _regular(path: str) -> Iterator[FileInfo]:
    """Yields a file, or a link that leads nowhere; no socket, pipe or device."""
    try:
        state = os.stat(path)
    except OSError:
        yield FileInfo(path, 0, 0.0)
        return
    if stat.S_ISREG(state.st_mode):
        yield FileInfo(path, state.st_size, state.st_mtime)
