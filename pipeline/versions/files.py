"""The files of a new version: kept from an earlier one without reading them, or new and hashed.

On a disk kept files are hard links, so every version is whole and its bytes are stored once; a disk without links gets
copies. In an object store kept shards stay in place, and the manifest names their version; small files are copied
inside the store.

>>> kept = KeptFiles("out", live, assembled, "20261121T120000Z-77d0a4b1")             # doctest: +SKIP
>>> kept.shard(shard, "d-train.tfrecord-00003-of-00004", "d-train.index-00003-of-00004")  # doctest: +SKIP
>>> inventory("out/emoji/versions/20261120T120000Z-4f1c9a2e", shards=["emoji-train.tfrecord-00000-of-00001"])
... # doctest: +SKIP
{'dataset_info.json': {'bytes': 312, 'sha256': '…'}, …}
"""

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any

from recordmill.pipeline.dataset.file_names import inner_sizes
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, Json, Manifest, Shard
from recordmill.pipeline.dataset.paths import attempt_name
from recordmill.pipeline.versions.stores.base import Copied
from recordmill.pipeline.versions.stores.bucket import UPLOADS
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.open_store import open_store


class KeptFiles:
    """Keeps files of a base version in a new one. Hold the base (`listing.held`): a prune could remove its files.

    Attributes:
        made: the store of the new version's files.
        entries: `bytes` and `sha256` of the kept files, by path in the new version, for its inventory.
        copied_bytes: the bytes copied because the disk refused links.
    """

    def __init__(self, output: str, base: Manifest, assembled: str, version: str) -> None:
        self._store, self._base = open_store(output), base
        self._folder = f"{VERSIONS_FOLDER}/{base.version}"
        self.made = LocalStore(assembled) if self._store.links else self._store.at(f"{VERSIONS_FOLDER}/{version}")
        self._refusal = ""
        self.entries: dict[str, Json] = {}
        self.copied_bytes = 0

    def shard(self, shard: Shard, file: str, index: str) -> Shard:
        """Keeps a shard and its index, on a disk under new names; returns the shard for the new manifest.

        Raises:
            DatasetError: a file is missing or has a wrong size.
            OSError: a file can be neither linked nor copied.
        """
        if not self._store.links:
            return replace(shard, version=shard.version or self._base.version)
        folder = self._folder if shard.version is None else VERSIONS_FOLDER
        for (path, size), name in zip(inner_sizes(shard).items(), (file, index), strict=True):
            self._note(self._store.copy(f"{folder}/{path}", self.made, name, size))
        if shard.version is None and shard.index in self._base.files:
            self.entries[index] = self._base.files[shard.index]
        return replace(shard, file=file, index=index, version=None)

    def files(self, paths: Sequence[str]) -> None:
        """Keeps small files of the base under the same paths. Raises: as `shard`; OutputError."""
        self.entries |= {path: self._base.files[path] for path in paths}
        sizes = (self._base.files[path]["bytes"] for path in paths)
        with ThreadPoolExecutor(UPLOADS) as threads:
            names = (f"{self._folder}/{path}" for path in paths)
            for copied in threads.map(self._store.copy, names, repeat(self.made), paths, sizes):
                self._note(copied)

    @property
    def note(self) -> str | None:
        """A line for the user if the disk refused links, else None."""
        if not self._refusal:
            return None
        return f"the disk refuses hard links ({self._refusal}): {self.copied_bytes:,} bytes of kept shards were copied"

    def _note(self, copied: Copied) -> None:
        if copied.refusal:
            self._refusal = copied.refusal
            self.copied_bytes += copied.bytes


def replace_file(made: Path, path: Path) -> None:
    """Replaces a file of a version, and its hard links in other versions."""
    twins = _twins(path)
    os.replace(made, path)
    for twin in twins:
        link = attempt_name(str(twin))
        os.link(path, link)
        os.replace(link, twin)


def _twins(path: Path) -> list[Path]:
    if not path.exists() or (state := path.stat()).st_nlink == 1:
        return []
    others = (other for other in path.parents[1].glob("*/*") if other != path and other.is_file())
    own = (other for other in others if not (other.is_symlink() or other.parent.is_symlink()))
    return [other for other in own if os.path.samestat(state, other.stat())]


def inventory(
    folder: str, shards: Collection[str], known: Mapping[str, dict[str, Any]] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """Maps the paths of a version's files, except shards and manifest, to their `bytes` and `sha256` in hex.

    Entries of `known` are included without reading the files. Raises: OSError: a file cannot be read.
    """
    root, entries = Path(folder), dict(known)
    paths = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    for path in paths - {MANIFEST_FILE, *shards, *known}:
        with open(root / path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            entries[path] = {"bytes": file.tell(), "sha256": digest}
    return dict(sorted(entries.items()))
