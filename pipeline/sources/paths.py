"""Paths inside a source: relative to its root, POSIX, normalized; and names that were meant."""

import os
import posixpath
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.errors import listed as listed
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.transforms.contract.image_header import SUFFIXES as SUFFIXES

NOTED = 3
ODD = "left out, because their names have empty or dotted parts"
MAX_PATH = 4096  # Linux' own limit, in bytes


def inside(folder: str, path: str, *, in_store: bool = False) -> str | None:
    """Makes a path that is relative to `folder`, itself below the root, relative to the root; in a store, `a//b` stays.

    Returns None where it is absolute, a URL, holds a NUL, or leaves the root.
    """
    if path.startswith("/") or "://" in path or "\0" in path:
        return None
    joined = posixpath.join(folder, path)
    normalized = posixpath.normpath(re.sub("(?<=/)(?=/)", "\0", joined) if in_store else joined).replace("\0", "")
    return None if normalized == ".." or normalized.startswith("../") else normalized


class Inside:
    """Finds out if files stay in a folder when links are followed; looks each folder inside it up once.

    An object lives as long as a block of rows, and remembers the folders that it looked up.
    """

    def __init__(self, root: str) -> None:
        """Takes the folder, local or a URL; of a URL there are no links."""
        self.root = root
        self.is_local = "://" not in root
        self._folders: dict[str, bool] = {}
        self._names: dict[str, dict[bytes, list[str]]] = {}

    def holds(self, path: str) -> bool:
        """Whether a path inside the folder, as `inside` gives it, leads to a place inside it; it need not be there."""
        if not self.is_local:
            return True
        folder = posixpath.dirname(path)
        if folder not in self._folders:
            self._folders[folder] = self._stays(folder)
        return self._folders[folder] and (not os.path.islink(join(self.root, path)) or self._stays(path))

    def spelled(self, path: str) -> str:
        """Returns a path as the file system spells it, which may hold decomposed letters (NFD) for composed ones (NFC).

        The path stays as it is where that very name is there, where no name is alike or several are, and for a URL.
        """
        if not self.is_local or is_of_one_form(path) or len(path) > MAX_PATH or os.path.lexists(join(self.root, path)):
            return path
        spelled = ""
        for name in path.split("/"):
            exact = posixpath.join(spelled, name)
            alike = [] if os.path.lexists(join(self.root, exact)) else self._alike(spelled).get(path_key(name), [])
            spelled = posixpath.join(spelled, alike[0]) if len(alike) == 1 else exact
        return spelled

    def _alike(self, folder: str) -> dict[bytes, list[str]]:
        """Returns the names in a folder by their composed form; none of a folder that cannot be listed."""
        if folder not in self._names:
            names = self._names[folder] = dict[bytes, list[str]]()
            with suppress(OSError):
                for name in filter(is_utf8, os.listdir(join(self.root, folder))):
                    names.setdefault(path_key(name), []).append(name)
        return self._names[folder]

    def _stays(self, path: str) -> bool:
        root, real = os.path.realpath(join(self.root, "")), os.path.realpath(join(self.root, path))
        return real == root or real.startswith(posixpath.join(root, ""))


def path_key(path: str) -> bytes:
    """The key of a row that a file stands for: the same whether its name is composed (NFC) or decomposed."""
    return unicodedata.normalize("NFC", path).encode()


def is_of_one_form(path: str) -> bool:
    """Whether a name's composed form is its decomposed one, too, as in ASCII."""
    return path.isascii() or all(unicodedata.is_normalized(form, path) for form in ("NFC", "NFD"))


def is_utf8(path: str) -> bool:
    """Whether a file's name is UTF-8: POSIX takes any bytes, and Python gives others as surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def join(root: str, path: str) -> str:
    """The full path of a path relative to the root."""
    return f"{root}/{path}"


def check_names(file: str, asked: Iterable[str], found: Collection[str], where: str = "") -> None:
    """Checks that every asked column is there. Raises: SourceError: one is not; the nearest name is suggested."""
    for name in asked:
        if name not in found:
            near = did_you_mean(name, found, "{!r}")
            raise SourceError(f"{file} has no column {name!r}{where}; it has {listed(found)}{near}")


def is_image(path: str) -> bool:
    """Whether a file is listed as an image, by its name's ending."""
    return posixpath.splitext(path)[1].lower() in SUFFIXES and is_utf8(path)


@contextmanager
def planning(path: str) -> Iterator[None]:
    """Makes an OSError one clear line for the user, who gave this path."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"cannot read {error.filename or path}: {error.strerror or error}") from error


def note(what: str, names: Sequence[str]) -> list[str]:
    """Makes a note with a count and the first few names; empty where there are none."""
    return [f"{what}: {len(names):,} ({listed(names, NOTED)})"] if names else []
