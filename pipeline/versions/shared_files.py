"""Files shared by several versions: which of them must stay, and how many bytes a removal frees.

In a bucket a shard may be in another version's folder (`Shard.version`); on a disk a file has a name in each version.
A version must stay readable until its manifest is removed. So a removal first deletes manifests, then reads the
remaining ones, and then deletes the files that they do not name. Concurrent or killed removals can only keep too much;
the next one finds it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from recordmill.pipeline.dataset.file_names import inner_paths
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, DatasetError, Manifest
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.versions.stores.base import Store

MATERIALIZED = "materialized"
"""The provenance entry with the time when a version was made whole, and the earlier files of its shards."""


@dataclass(frozen=True)
class Needs:
    """Files in versions' folders needed by other versions."""

    files: dict[str, str] = field(default_factory=dict)
    """By name in the output: a version that needs the file."""
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


def needs_of(
    store: Store, but: Collection[str] = (), is_recent: Callable[[Manifest], bool] = lambda manifest: True
) -> Needs:
    """Collects the files that versions, except `but`, need of others. Raises: OutputError: the output cannot be read.

    `is_recent`: whether readers may still use a materialized version's earlier files, which then count too.
    """
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
        needs.files.update(dict.fromkeys(referenced_files(manifest), version))
        if MATERIALIZED in manifest.provenance and is_recent(manifest):
            before = manifest.provenance[MATERIALIZED]["from"]
            needs.files.update({f"{VERSIONS_FOLDER}/{name}": version for name in before})
    return needs


def referenced_files(manifest: Manifest) -> Iterator[str]:
    """Yields a version's files in other versions' folders, by name in the output."""
    for shard in manifest.shards:
        if shard.version is not None:
            yield from (f"{VERSIONS_FOLDER}/{path}" for path in inner_paths(shard))


def remove_unneeded(store: Store, folder: str, needs: Needs) -> None:
    """Removes a version's folder, or only its unneeded files."""
    names = store.sizes(folder)
    needed = {*needs.of(folder, names)}
    if not needed:
        store.remove(folder, MANIFEST_FILE)
    else:
        store.remove_all(folder, but=needed)


class Removal:
    """Adds up the bytes freed by removing files: a file's bytes count when its last name is removed.

    Make it before the removal: it reads the files' identities.
    """

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
    return {
        version: sum(bytes_ for identity, bytes_ in held.items() if holders[identity] > 1)
        for version, held in files.items()
    }


def _identities(store: Store, manifest: Manifest) -> dict[Hashable, int]:
    """Returns each shard's bytes by its file's identity."""
    files = {f"{shard.version or manifest.version}/{shard.file}": shard.bytes for shard in manifest.shards}
    return {store.identity(f"{VERSIONS_FOLDER}/{path}")[0]: size for path, size in files.items()}
