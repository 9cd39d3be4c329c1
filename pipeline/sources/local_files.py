"""Files of the operating system, as sources list and open them.

Symbolic links are followed, once in a chain of folders; a broken one is listed with 0 bytes, so that reading it counts
it as missing.
"""

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from recordmill.pipeline.dataset.safe_paths import open_file
from recordmill.pipeline.sources.base import FileInfo
from recordmill.pipeline.sources.globs import depth, folder_prefix, glob_pattern, is_literal, literal_prefix

Identity = tuple[int, int]
"""A folder's device and inode."""


class LocalFiles:
    """Files of this machine; has no state, so it can be sent to workers."""

    def match(self, pattern: str) -> list[FileInfo]:
        """Lists the files that a glob, or a plain path, matches, sorted by path.

        Raises:
            OSError: a folder cannot be listed.
        """
        return sorted(_matched(pattern), key=lambda file: file.path)

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


def _matched(pattern: str) -> list[FileInfo]:
    for path in (pattern, literal_prefix(pattern)) if is_literal(pattern) else (pattern,):
        if os.path.isfile(path):
            return list(_regular(path))
    folder = folder_prefix(pattern)
    if is_literal(pattern) or not os.path.isdir(folder or "."):
        return []
    matches = glob_pattern(pattern).fullmatch
    hidden = "/." in pattern[len(folder) :] or pattern[len(folder) :].startswith(".")
    return [file for file in _walk(folder, depth(pattern), hidden, frozenset()) if matches(file.path)]


def _walk(folder: str, levels: int | None, hidden: bool, above: frozenset[Identity]) -> Iterator[FileInfo]:
    """Lists the files in a folder and in at most `levels` of folders below; `above` are the folders around it."""
    state = os.stat(folder or ".")
    identity = state.st_dev, state.st_ino
    if identity in above:
        return
    folders = []
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if entry.name.startswith(".") and not hidden:
                continue
            if _is_folder(entry):
                folders.append(f"{folder}{entry.name}/")
            else:
                yield from _regular(folder + entry.name)
    if levels != 0:
        for below in folders:
            yield from _walk(below, levels and levels - 1, hidden, above | {identity})


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
