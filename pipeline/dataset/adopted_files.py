"""The files that an adopted version names: somebody else's, which a reader opens only where its caller allows it.

A version may come from anybody, and name any file. Allowed are places in the dataset's own folder, those that a caller
names, and those that this user adopted into this folder on this machine.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from recordmill.pipeline.dataset.file_names import Allowed
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Location, Manifest
from recordmill.pipeline.dataset.paths import NO_PARTS, check_inner, user_cache, write_atomically

HERE = "."
"""The root of files in the dataset's own folder."""


def dataset_folder(version: Location) -> str:
    """Returns the folder of a version's dataset: the folder with `versions`, or the version's own if it was copied."""
    folder = str(version)
    parent, _, _ = folder.rpartition("/")
    above, _, name = parent.rpartition("/")
    return above if name == VERSIONS_FOLDER else folder


def allow(manifest: Manifest, version: Location, files: Iterable[str] = ()) -> Manifest:
    """Marks the roots of adopted files that readers may open; others are refused when a reader needs them.

    Args:
        manifest: a version's.
        version: its folder.
        files: folders, files, globs or URLs that the caller allows.
    """
    roots = {shard.root for shard in manifest.shards if shard.root is not None}
    if not roots:
        return manifest
    dataset = dataset_folder(version)
    allowed = [*map(_literal, files), *_remembered(dataset)]
    places = {root: place for root in roots if (place := _place(root, dataset, allowed)) is not None}
    splits = {
        name: replace(
            split, shards=tuple(replace(each, root=places.get(each.root or "", each.root)) for each in split.shards)
        )
        for name, split in manifest.splits.items()
    }
    return replace(manifest, splits=splits)


def _place(root: str, dataset: str, allowed: Sequence[str]) -> Allowed | None:
    """Returns a root's path or URL if it is allowed."""
    if root == HERE:
        return Allowed(dataset)
    if not os.path.isabs(root) and "://" not in root:
        return Allowed(f"{dataset}/{check_inner(root)}")
    return Allowed(root) if any(_is_within(root, place) for place in allowed) else None


def _is_within(root: str, place: str) -> bool:
    if "://" in root:
        return NO_PARTS.isdisjoint(root.partition("://")[2].split("/")) and f"{root}/".startswith(
            f"{place.rstrip('/')}/"
        )
    if "://" in place:
        return False
    real, folder = os.path.realpath(root), os.path.realpath(place)
    return real == folder or real.startswith(os.path.join(folder, ""))


def _literal(pattern: str) -> str:
    """Returns the folder of a file or of a glob's matches; another path as given."""
    plain = pattern.split("*")[0].split("?")[0].split("[")[0]
    return plain if plain == pattern and not os.path.isfile(plain) else plain.rpartition("/")[0] or "."


def remember(dataset: str, roots: Iterable[str]) -> None:
    """Notes in the user's cache where files lie that this user adopted into a dataset."""
    path = _note(dataset)
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
