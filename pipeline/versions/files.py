"""The files of a version that is being assembled: taken over from an earlier one without reading them, and listed.

On a disk a file gets one more name, a hard link, so every version is whole and holds its bytes once; where the disk
refuses links, the file is copied. In an object store a shard stays where it is, and the manifest names its version;
small files are copied inside the store. The other files are new, and are read for their digests.

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
    """Files of a base version on their way into an assembled one.

    Hold the base meanwhile (`listing.held`), so that no prune removes it or what it refers to.

    Attributes:
        made: where its files are written.
        entries: `bytes` and `sha256` of the files taken over, by their paths in the new version, for its inventory.
        copied_bytes: the bytes that were copied on a disk because it refused links.
    """

    def __init__(self, output: str, base: Manifest, assembled: str, version: str) -> None:
        self._store, self._base = open_store(output), base
        self._folder = f"{VERSIONS_FOLDER}/{base.version}"
        self.made = LocalStore(assembled) if self._store.links else self._store.at(f"{VERSIONS_FOLDER}/{version}")
        self._refusal = ""
        self.entries: dict[str, Json] = {}
        self.copied_bytes = 0

    def shard(self, shard: Shard, file: str, index: str) -> Shard:
        """Takes over a shard and its index, on a disk under new names, and returns its entry for the new manifest.

        Raises:
            DatasetError: a file is missing, or not of its size.
            OSError: it can be neither linked nor copied.
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
        """Takes over small files that the base lists, under their own paths. Raises: as `shard`; OutputError."""
        self.entries |= {path: self._base.files[path] for path in paths}
        sizes = (self._base.files[path]["bytes"] for path in paths)
        with ThreadPoolExecutor(UPLOADS) as threads:
            names = (f"{self._folder}/{path}" for path in paths)
            for copied in threads.map(self._store.copy, names, repeat(self.made), paths, sizes):
                self._note(copied)

    @property
    def note(self) -> str | None:
        """A line for the user where the disk refused links; None where it did not."""
        if not self._refusal:
            return None
        return f"the disk refuses hard links ({self._refusal}): {self.copied_bytes:,} bytes of kept shards were copied"

    def _note(self, copied: Copied) -> None:
        if copied.refusal:
            self._refusal = copied.refusal
            self.copied_bytes += copied.bytes


def replace_file(made: Path, path: Path) -> None:
    """Replaces a file of a version, and its other names in the other versions, which share its bytes."""
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
    """Maps each file of a version but its shards and its manifest to its `bytes` and its `sha256` in hex, by path.

    The files of `known` need not be in the folder. Raises: OSError: a file cannot be read.
    """
    root, entries = Path(folder), dict(known)
    paths = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    for path in paths - {MANIFEST_FILE, *shards, *known}:
        with open(root / path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            entries[path] = {"bytes": file.tell(), "sha256": digest}
    return dict(sorted(entries.items()))
