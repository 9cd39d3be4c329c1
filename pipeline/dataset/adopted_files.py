"""The files that an adopted version names: somebody else's, which a reader opens only where its caller allows it.

A version may come from anybody, and name any file. Allowed are places in the dataset's own folder, those that a caller
names, and those that this user adopted into this folder on this machine.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from recordmill.pipeline.dataset.file_names import Allowed
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Location, Manifest, Shard
from recordmill.pipeline.dataset.paths import NO_PARTS, check_inner, user_cache, write_atomically

WILDCARD = re.compile(r"[*?\[]")
HERE = "."  # the root of files in the dataset's own folder


def dataset_folder(version: Location) -> str:
    """Returns the folder of a version's dataset: the folder with `versions`, or the version's own if it was copied."""
    folder = str(version)
    parent, _, _ = folder.rpartition("/")
    above, _, name = parent.rpartition("/")
    return above if name == VERSIONS_FOLDER else folder


def allow(manifest: Manifest, version: Location, files: Iterable[str] = ()) -> Manifest:
    """Marks the roots of adopted files that readers may open; others are refused when a reader needs them.

    `version` is the version's folder, and `files` are folders, files, globs or URLs that the caller allows.
    """
    if not manifest.adopted:
        return manifest
    dataset = dataset_folder(version)
    allowed = [*files, *_remembered(dataset)]

    def marked(shard: Shard) -> Shard:
        root = shard.root or ""
        if not os.path.isabs(root) and "://" not in root:
            return replace(shard, root=Allowed(dataset if root == HERE else f"{dataset}/{check_inner(root)}"))
        is_allowed = any(_names(place, root, shard.file) for place in allowed)
        return replace(shard, root=Allowed(root)) if is_allowed else shard

    splits = {name: replace(split, shards=tuple(map(marked, split.shards))) for name, split in manifest.splits.items()}
    return replace(manifest, splits=splits)


def _names(place: str, root: str, file: str) -> bool:
    """Whether a place, a folder, a file or a glob, holds a file."""
    wildcard = WILDCARD.search(place)
    if wildcard is None and not os.path.isfile(place):
        return _is_within(root, place)
    begin = len(place) if wildcard is None else wildcard.start()
    folder, _, rest = place[:begin].rpartition("/")  # the last slash before the first wildcard
    rest = (rest + place[begin:]).replace("**/", "*")
    return _is_within(root, folder) and _is_within(folder, root) and fnmatchcase(file, rest)


def _is_within(root: str, place: str) -> bool:
    """Whether a folder is another or lies in it; a URL by its text, a local one by what links lead to."""
    if "://" in root or "://" in place:
        is_plain = NO_PARTS.isdisjoint(root.partition("://")[2].split("/"))
        return is_plain and f"{root}/".startswith(f"{place.rstrip('/')}/") and "://" in place
    real, folder = os.path.realpath(root or "."), os.path.realpath(place or ".")
    return real == folder or real.startswith(os.path.join(folder, ""))


def remember(dataset: str, roots: Iterable[str]) -> None:
    """Notes in the user's cache where files lie that this user adopted into a dataset."""
    path = _note(dataset)
    with suppress(OSError):  # without a cache, `files=` allows them
        os.makedirs(path.parent, mode=0o700, exist_ok=True)
        write_atomically(path, json.dumps(sorted({*roots, *_remembered(dataset)})).encode())


def _remembered(dataset: str) -> list[str]:
    with suppress(OSError, ValueError):
        path = _note(dataset)
        if path.stat().st_uid == os.geteuid() and not path.parent.stat().st_mode & 0o022:
            roots = json.loads(path.read_bytes())
            return [root for root in roots if isinstance(root, str)]
    return []


def _note(dataset: str) -> Path:
    name = dataset if "://" in dataset else os.path.realpath(dataset)
    return Path(user_cache(), "adopted", f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json")
