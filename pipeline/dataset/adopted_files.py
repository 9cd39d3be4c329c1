"""The files that an adopted version names: somebody else's, which a reader opens only where its caller allows it.

A version may come from anybody, and name any file. Allowed are places in the dataset's own folder, those that a caller
names, and those that this user adopted into this folder on this machine. A place is what remains after every link on
its way is resolved: `allow` decides it, and `paths.real_place` holds a file there when it is opened.
"""

import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from recordmill.pipeline.dataset.file_names import Allowed
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Location, Manifest, Shard
from recordmill.pipeline.dataset.paths import ADOPT, NO_PARTS, OF_URLS, check_place, user_cache, write_atomically
from recordmill.pipeline.errors import DatasetError

WILDCARD = re.compile(r"[*?\[]")
BLOCK = 16 << 10  # 16 KiB: a request to a store costs more than its bytes
HERE = "."  # the root of files in the dataset's own folder


def allow(manifest: Manifest, version: Location, files: Iterable[str] = ()) -> Manifest:
    """Marks the roots of adopted files that readers may open; others are refused when a reader needs them.

    `version` is the version's folder, and `files` are folders, files, globs or URLs that the caller allows.
    """
    if not manifest.adopted:
        return manifest
    above, _, name = str(version).rpartition("/")[0].rpartition("/")
    dataset = above if name == VERSIONS_FOLDER else str(version)  # which may have been copied without the dataset
    places = [*((place, "") for place in _remembered(dataset)), *map(_place, files)]
    real = cache(_real)

    def marked(shard: Shard) -> Shard:
        root = shard.root or ""
        if not _is_absolute(root):
            if root != HERE:
                check_place(dataset, root)
            return replace(shard, root=Allowed(real(dataset if root == HERE else f"{dataset}/{root}")))
        is_allowed = "\0" not in root and any(_holds(*place, real(root), shard.file) for place in places)
        return replace(shard, root=Allowed(real(root))) if is_allowed else shard

    splits = {name: replace(split, shards=tuple(map(marked, split.shards))) for name, split in manifest.splits.items()}
    return replace(manifest, splits=splits)


def _is_absolute(root: str) -> bool:
    return os.path.isabs(root) or "://" in root


def _real(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)


def _place(given: str) -> tuple[str, str]:
    """Splits a folder, a file, a glob or a URL into its folder, links resolved, and a glob of names ("": all below)."""
    wildcard = WILDCARD.search(given)
    if os.path.isfile(given):
        return _real(os.path.dirname(given)), glob.escape(os.path.basename(given))
    if wildcard is None:
        return _real(given), ""
    folder = os.path.dirname(given[: wildcard.start()])
    return _real(folder), given[len(folder) :].lstrip("/").replace("**/", "*")


def _holds(folder: str, names: str, root: str, file: str) -> bool:
    """Whether a place holds a file below a root, both without links; URLs by their texts."""
    if names:
        return root == folder and fnmatchcase(file, names)
    whole, place = f"{root}/", f"{folder.rstrip('/')}/"
    special = OF_URLS & set(whole.removeprefix(place)) or NO_PARTS & set(root.partition("://")[2].split("/"))
    return whole.startswith(place) and not ("://" in root and special)


def sample(read: Callable[[int, int], bytes], size: int) -> str:
    """Returns the SHA-256 of four blocks of a file, in hex, by `read(start, bytes)`; of all up to 64 KiB."""
    starts = sorted({max(0, size - BLOCK) * part // 3 for part in range(4)}) if size else []
    return hashlib.sha256(b"".join(read(start, min(BLOCK, size)) for start in starts)).hexdigest()


def check_content(path: str, size: int, expected: str | None, read: Callable[[int, int], bytes]) -> None:
    """Compares an adopted file's `sample` with that of its adoption, if known. Raises: DatasetError."""
    if expected and sample(read, size) != expected:
        raise DatasetError(f"{path} changed since it was adopted: {ADOPT}")


def remember(dataset: str, roots: Iterable[str]) -> None:
    """Notes in the user's cache where files lie that this user adopted into a dataset, links resolved."""
    path, places = _note(dataset), {_real(root) for root in roots if _is_absolute(root)}
    with suppress(OSError):  # without a cache, `files=` allows them
        os.makedirs(path.parent, mode=0o700, exist_ok=True)
        write_atomically(path, json.dumps(sorted({*places, *_remembered(dataset)})).encode())


def _remembered(dataset: str) -> list[str]:
    with suppress(OSError, ValueError):
        path = _note(dataset)
        if path.stat().st_uid == os.geteuid() and not path.parent.stat().st_mode & 0o022:
            roots = json.loads(path.read_bytes())
            return [root for root in roots if isinstance(root, str) and _is_absolute(root)]
    return []


def _note(dataset: str) -> Path:
    name = dataset if "://" in dataset else os.path.realpath(dataset)
    return Path(user_cache(), "adopted", f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json")
