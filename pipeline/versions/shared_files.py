"""Files that several versions share: whose they are, which ones must stay, and the bytes that removing some frees.

In a bucket a shard may be in another version's folder (`Shard.version`); on a disk a file has a name in each version.
A version stays readable as long as its manifest is there. So who removes versions removes their manifests first, then
reads all that remain, and then removes the files that they do not name. Two at once, or one that was killed, can only
keep too much, which the next removal finds.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from recordmill.pipeline.dataset.file_names import inner_paths
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, DatasetError, Manifest
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.versions.stores.base import Store

MATERIALIZED = "materialized"
"""The entry of a manifest's provenance on when it was made whole, and in which files its shards lay before."""


@dataclass(frozen=True)
class Needs:
    """The files in versions' folders that other versions need."""

    files: dict[str, str] = field(default_factory=dict)
    """By name in the output: a version that needs it."""
    whole: dict[str, str] = field(default_factory=dict)
    """Versions of which any file may be needed, each with the version that may need it."""

    def of(self, folder: str, names: Collection[str]) -> list[str]:
        """Returns those names of files in a version's folder that must stay."""
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
    """Reads what all versions, but some, need of others. Raises: OutputError: the output cannot be read.

    Where `is_recent` says that a version may still be read as before it was made whole, what it needed counts, too.
    """
    names = store.children(VERSIONS_FOLDER)
    needs = Needs()
    for version in names:
        content = None if version in but else store.read_tagged(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}")
        if content is None:
            continue
        try:
            manifest = Manifest.from_json(parse_json(content.data))
        except DatasetError:  # of a newer Recordmill, or broken: what it names may count
            needs.whole.update({name: version for name in names if name != version and name.encode() in content.data})
            continue
        needs.files.update(dict.fromkeys(referenced_files(manifest), version))
        if MATERIALIZED in manifest.provenance and is_recent(manifest):
            before = manifest.provenance[MATERIALIZED]["from"]
            needs.files.update({f"{VERSIONS_FOLDER}/{name}": version for name in before})
    return needs


def referenced_files(manifest: Manifest) -> Iterator[str]:
    """Yields the names in the output of the files in other versions' folders that a version needs."""
    for shard in manifest.shards:
        if shard.version is not None:
            yield from (f"{VERSIONS_FOLDER}/{path}" for path in inner_paths(shard))


def remove_unneeded(store: Store, folder: str, needs: Needs) -> None:
    """Removes a version's folder, or those of its files that nobody needs."""
    names = store.sizes(folder)
    needed = {*needs.of(folder, names)}
    if not needed:
        store.remove(folder, MANIFEST_FILE)
    else:
        store.remove_all(folder, but=needed)


class Removal:
    """Adds up what removing files frees: the bytes of a file with several names, when its last name goes.

    It looks at the files when it is made, before anything is removed.
    """

    def __init__(self, store: Store, sizes: Mapping[str, int]) -> None:
        self._sizes, self._identities = sizes, {name: store.identity(name) for name in sizes}
        self._removed: Counter[Hashable] = Counter()

    def freed(self, names: Iterable[str]) -> int:
        """Returns the bytes that removing some of the files frees, after those of earlier calls."""
        freed = 0
        for name in names:
            identity, count = self._identities[name]
            self._removed[identity] += 1
            freed += self._sizes[name] if self._removed[identity] == count else 0
        return freed


def shared_bytes(store: Store, manifests: Iterable[Manifest]) -> dict[str, int]:
    """Returns the bytes of each version's shards that another of the versions holds, too, by version."""
    files = {manifest.version: _identities(store, manifest) for manifest in manifests}
    holders = Counter(identity for held in files.values() for identity in held)
    return {
        version: sum(bytes_ for identity, bytes_ in held.items() if holders[identity] > 1)
        for version, held in files.items()
    }


def _identities(store: Store, manifest: Manifest) -> dict[Hashable, int]:
    """Returns the bytes of each shard, by the identity of its file."""
    files = {f"{shard.version or manifest.version}/{shard.file}": shard.bytes for shard in manifest.shards}
    return {store.identity(f"{VERSIONS_FOLDER}/{path}")[0]: size for path, size in files.items()}
