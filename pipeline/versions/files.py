"""The files of versions: kept in a new version, shared by several, and freed by a removal.

On a disk kept files are hard links, so every version is whole and its bytes are stored once; a disk without links gets
copies. In an object store kept shards stay in place, and the manifest names their version (`Shard.version`); small
files are copied inside the store.

A version must stay readable until its manifest is removed. So a removal first deletes manifests, then reads the
remaining ones, and then deletes the files that they do not name. Concurrent or killed removals can only keep too much;
the next one finds it.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from types import MappingProxyType

from recordmill.pipeline.dataset.file_names import output_sizes
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, DatasetError, Json, Manifest, Shard
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.versions.stores.base import Copied, Store
from recordmill.pipeline.versions.stores.bucket import UPLOADS
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.open_store import open_store

NONE: Mapping[str, Json] = MappingProxyType({})


class KeptFiles:
    """Keeps files of a base version in a new one. Hold the base (`listing.held`): a prune could remove its files."""

    def __init__(self, output: str, base: Manifest, assembled: str, version: str) -> None:
        self._store, self._base = open_store(output), base
        self._folder = f"{VERSIONS_FOLDER}/{base.version}"
        self.made = LocalStore(assembled) if self._store.links else self._store.at(f"{VERSIONS_FOLDER}/{version}")
        """The store of the new version's files."""
        self.entries: dict[str, Json] = {}  # `bytes` and `sha256` of kept files, by path in the new version
        self._refusal, self.copied_bytes = "", 0  # the disk's refusal of links, and the bytes copied instead

    def shard(self, shard: Shard, own: Shard) -> Shard:
        """Keeps a shard with its indexes, on a disk as `own`; returns the new one. Raises: DatasetError, OSError."""
        if not self._store.links:
            return replace(shard, version=shard.version or self._base.version)
        for (file, size), name in zip(output_sizes(shard, self._base.version).items(), own.paths, strict=True):
            self._note(self._store.copy(file, self.made, name, size))
            if (path := file.removeprefix(f"{self._folder}/")) in self._base.files:
                self.entries[name] = self._base.files[path]
        return own

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


def inventory(folder: str, shards: Collection[str], known: Mapping[str, Json] = NONE) -> dict[str, Json]:
    """Maps a version's files but shards and manifest to `bytes` and `sha256`; reads no `known` one. Raises: OSError."""
    root, entries = Path(folder), dict(known)
    paths = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    for path in paths - {MANIFEST_FILE, *shards, *known}:
        with open(root / path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            entries[path] = {"bytes": file.tell(), "sha256": digest}
    return dict(sorted(entries.items()))


@dataclass(frozen=True)
class Needs:
    """Files in versions' folders needed by other versions."""

    files: dict[str, str] = field(default_factory=dict)  # by name in the output: a version that needs the file
    whole: dict[str, str] = field(default_factory=dict)
    """By version, any of its files possibly needed: the version that may need them."""

    def of(self, folder: str, names: Collection[str]) -> list[str]:
        """Returns the files of a version's folder that must stay."""
        if folder.removeprefix(f"{VERSIONS_FOLDER}/") in self.whole:
            return [name for name in names if name != f"{folder}/{MANIFEST_FILE}"]
        return [name for name in names if name in self.files]

    def who(self, folder: str, names: Collection[str]) -> str:
        """Names the versions that need some files of a folder."""
        version = folder.removeprefix(f"{VERSIONS_FOLDER}/")
        needing = {self.files[name] for name in names if name in self.files} | {self.whole.get(version, "")} - {""}
        first, *others = sorted(needing)
        return f"{first} and {len(others)} more need them" if others else f"{first} needs them"


def needs_of(store: Store, but: Collection[str] = ()) -> Needs:
    """Collects the files that versions, except `but`, need of others. Raises: OutputError: the output is unreadable."""
    names = store.children(VERSIONS_FOLDER)
    needs = Needs()
    for version in names:
        content = None if version in but else store.read_tagged(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}")
        if content is None:
            continue
        try:
            manifest = Manifest.from_json(parse_json(content.data))
        except DatasetError:  # from a newer Recordmill, or broken: keeps every version that it mentions
            needs.whole.update({name: version for name in names if name != version and name.encode() in content.data})
            continue
        for shard in (shard for shard in manifest.shards if shard.version is not None):
            needs.files.update(dict.fromkeys(output_sizes(shard, version), version))
    return needs


def remove_unneeded(store: Store, folder: str, needs: Needs) -> None:
    """Removes a version's folder, or only its unneeded files."""
    needed = {*needs.of(folder, store.sizes(folder))}
    if not needed:
        store.remove(folder, MANIFEST_FILE)
    else:
        store.remove_all(folder, but=needed)


class Removal:
    """Adds up the bytes freed: a file's when its last name goes. Make it first: it reads the files' identities."""

    def __init__(self, store: Store, sizes: Mapping[str, int]) -> None:
        self._sizes, self._identities = sizes, {name: store.identity(name) for name in sizes}
        self._removed: Counter[Hashable] = Counter()

    def freed(self, names: Iterable[str]) -> int:
        """Returns the bytes freed by removing some files, after those of earlier calls."""
        freed = 0
        for name in names:
            identity, count = self._identities[name]
            self._removed[identity] += 1
            freed += self._sizes[name] if self._removed[identity] == count else 0
        return freed


def shared_bytes(store: Store, manifests: Iterable[Manifest]) -> dict[str, int]:
    """Returns by version the bytes of shards shared with another of the versions."""
    files = {manifest.version: _identities(store, manifest) for manifest in manifests}
    holders = Counter(identity for held in files.values() for identity in held)
    shared = {version: [held[each] for each in held if holders[each] > 1] for version, held in files.items()}
    return {version: sum(sizes) for version, sizes in shared.items()}


def _identities(store: Store, manifest: Manifest) -> dict[Hashable, int]:
    sizes = (output_sizes(shard, manifest.version).items() for shard in manifest.shards)
    return {store.identity(name)[0]: size for each in sizes for name, size in each}
