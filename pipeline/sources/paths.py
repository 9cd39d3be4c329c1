"""Paths inside a source (relative to its root, POSIX, normalized), and name checks."""

import os
import posixpath
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.errors import listed as listed
from recordmill.pipeline.sources.faults import SourceError
from recordmill.transforms.images.image_header import SUFFIXES as SUFFIXES

ODD = "left out, because their names have empty or dotted parts"
ARRAY = ".npy"


def inside(folder: str, path: str, *, in_store: bool = False) -> str | None:
    """Makes a path in `folder` relative to the root (in a store, `a//b` stays); None if absolute, a URL or outside."""
    if path.startswith("/") or "://" in path or "\0" in path:
        return None
    joined = posixpath.join(folder, path)
    normalized = posixpath.normpath(re.sub("(?<=/)(?=/)", "\0", joined) if in_store else joined).replace("\0", "")
    return None if normalized == ".." or normalized.startswith("../") else normalized


class Inside:
    """Checks that files stay in a folder when links are followed; caches folders for the life of a block of rows."""

    def __init__(self, root: str) -> None:
        """Takes a folder, local or a URL; a URL has no links."""
        self.root = root
        self.is_local = "://" not in root
        self._folders: dict[str, bool] = {}
        self._names: dict[str, dict[bytes, list[str]]] = {}

    def holds(self, path: str) -> bool:
        """Whether a path from `inside`, which need not exist, stays in the folder."""
        if not self.is_local:
            return True
        folder = posixpath.dirname(path)
        if folder not in self._folders:
            self._folders[folder] = self._stays(folder)
        return self._folders[folder] and (not os.path.islink(join(self.root, path)) or self._stays(path))

    def spelled(self, path: str) -> str:
        """Returns a path as the file system spells it, perhaps in NFD; as it is unless one name is equivalent."""
        is_of_one_form = path.isascii() or all(unicodedata.is_normalized(form, path) for form in ("NFC", "NFD"))
        is_too_long = len(path) > 4096  # Linux's limit, in bytes
        if not self.is_local or is_of_one_form or is_too_long or os.path.lexists(join(self.root, path)):
            return path
        spelled = ""
        for name in path.split("/"):
            exact = posixpath.join(spelled, name)
            alike = [] if os.path.lexists(join(self.root, exact)) else self._alike(spelled).get(path_key(name), [])
            spelled = posixpath.join(spelled, alike[0]) if len(alike) == 1 else exact
        return spelled

    def _alike(self, folder: str) -> dict[bytes, list[str]]:
        """Returns the names in a folder by composed form; empty if it cannot be listed."""
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
    """Returns the key of a file's row: the same for a composed (NFC) and a decomposed name."""
    return unicodedata.normalize("NFC", path).encode()


def is_utf8(path: str) -> bool:
    """Whether a file's name is UTF-8: POSIX allows any bytes, and Python decodes others to surrogates."""
    return path.encode(errors="ignore").decode() == path


def join(root: str, path: str) -> str:
    """Returns the full path of a path relative to the root."""
    return f"{root}/{path}"


def check_names(file: str, asked: Iterable[str], found: Collection[str], where: str = "") -> None:
    """Checks that every asked column exists. Raises: SourceError: one is missing; suggests the nearest name."""
    for name in asked:
        if name not in found:
            near = did_you_mean(name, found, "{!r}")
            raise SourceError(f"{file} has no column {name!r}{where}; it has {listed(found)}{near}")


def is_image(path: str) -> bool:
    """Whether a file's ending is an image's."""
    return posixpath.splitext(path)[1].lower() in SUFFIXES and is_utf8(path)


def may_be_image(path: str) -> bool:
    """Whether a file may be an image by its ending, as `.npy` may be any array."""
    return is_image(path) or (path.lower().endswith(ARRAY) and is_utf8(path))


def image_test(paths: Iterable[str]) -> Callable[[str], bool]:
    """Returns the test for images among a folder's files: `.npy` files are some if others are absent."""
    return is_image if any(map(is_image, paths)) else may_be_image


@contextmanager
def planning(path: str) -> Iterator[None]:
    """Turns an OSError into one clear line for the user, who gave this path."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"cannot read {error.filename or path}: {error.strerror or error}") from error


def note(what: str, names: Sequence[str]) -> list[str]:
    """Makes a note with a count and the first few names; empty without names."""
    return [f"{what}: {len(names):,} ({listed(names, 3)})"] if names else []
