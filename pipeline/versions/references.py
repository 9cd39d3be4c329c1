"""The files of other versions that a version needs: its shards may lie in their folders (`Shard.version`).

A version stays readable as long as its manifest is there. So who removes versions removes their manifests first, then
reads all that are left, and then removes the files that none of these names. Two at once, or one that was killed, can
only keep too much, which the next removal finds.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

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
    """Reads what all versions need of others.

    Args:
        store: the output.
        but: versions that do not count.
        is_recent: decides whether somebody may still read a version as it was before it was made whole; what it
            needed then counts, too.

    Raises:
        OutputError: the output cannot be read.
    """
    names = store.children(VERSIONS_FOLDER)
    needs = Needs()
    for version in names:
        data = None if version in but else store.read(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}")
        if data is None:
            continue
        try:
            manifest = Manifest.from_json(parse_json(data))
        except DatasetError:  # of a newer Recordmill, or broken: what it names may count
            needs.whole.update({name: version for name in names if name != version and name.encode() in data})
            continue
        needs.files.update(dict.fromkeys(referenced_files(manifest), version))
        if MATERIALIZED in manifest.provenance and is_recent(manifest):
            before = manifest.provenance[MATERIALIZED]["from"]
            needs.files.update({f"{VERSIONS_FOLDER}/{name}": version for name in before})
    return needs


def referenced_files(manifest: Manifest) -> Iterator[str]:
    """Yields the names in the output of the files in other versions' folders that a version needs."""
    for split in manifest.splits.values():
        for shard in split.shards:
            if shard.version is not None:
                yield f"{VERSIONS_FOLDER}/{shard.version}/{shard.file}"
                yield f"{VERSIONS_FOLDER}/{shard.version}/{shard.index}"


def remove_unneeded(store: Store, folder: str, needs: Needs) -> None:
    """Removes a version's folder, or those of its files that nobody needs."""
    names = store.sizes(folder)
    needed = {*needs.of(folder, names)}
    if not needed:
        store.remove(folder, MANIFEST_FILE)
    else:
        store.remove_all(folder, but=needed)
