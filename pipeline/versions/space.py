"""The bytes that versions hold on the disk, where several versions may hold the same file."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from recordmill.pipeline.dataset.file_names import shard_paths
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, DatasetError, Manifest, Shard, version_folder
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.local import LocalStore


class Removal:
    """Adds up what removing files frees: the bytes of a file with several names, when its last name goes.

    It looks at the files when it is made, before anything is removed.
    """

    def __init__(self, store: Store, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        local = isinstance(store, LocalStore)
        self._states = dict(_states(store.url, sizes)) if local else {}
        self._removed: Counter[tuple[int, int]] = Counter()

    def freed(self, names: Iterable[str]) -> int:
        """Returns the bytes that removing some of the files frees, after all that were given before."""
        return sum(self._freed(name) for name in names)

    def _freed(self, name: str) -> int:
        state = self._states.get(name)
        if state is None:
            return self._sizes[name]
        self._removed[state.st_dev, state.st_ino] += 1
        return state.st_size if self._removed[state.st_dev, state.st_ino] == state.st_nlink else 0


def _states(folder: str, names: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    for name in names:
        with suppress(FileNotFoundError):
            yield name, os.lstat(f"{folder}/{name}")


def shared_bytes(store: Store, manifests: Iterable[Manifest]) -> dict[str, int]:
    """Returns the bytes of each version's shards that another of these versions holds, too, by version."""
    files = {manifest.version: _identities(store, manifest) for manifest in manifests}
    holders = Counter(identity for held in files.values() for identity in held)
    return {
        version: sum(bytes_ for identity, bytes_ in held.items() if holders[identity] > 1)
        for version, held in files.items()
    }


def _identities(store: Store, manifest: Manifest) -> dict[object, int]:
    """Returns the bytes of each shard, by what names its file on the disk or in the store."""
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    return {_identity(store, manifest.version, shard): shard.bytes for shard in shards}


def _identity(store: Store, version: str, shard: Shard) -> object:
    if isinstance(store, LocalStore):
        try:
            state = os.stat(shard_paths(str(version_folder(store.url, version)), shard).full[0])
        except (OSError, DatasetError):  # a damaged version shares nothing
            return version, shard.file
        return state.st_dev, state.st_ino
    return f"{VERSIONS_FOLDER}/{shard.version or version}/{shard.file}"
