"""Removes old versions and remains of killed builds; never a live, pinned, held or held-back version.

A prune first marks versions as `removing` in `LATEST`, by the same compare-and-swap as the pointer and pins: from then
on nobody can use them. The next prune completes a killed one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, Latest, Manifest
from recordmill.pipeline.versions import build_folders, leases, listing, publishing
from recordmill.pipeline.versions.base import compare_and_swap, is_held_back, latest_of
from recordmill.pipeline.versions.files import Needs, Removal, needs_of, remove_unneeded
from recordmill.pipeline.versions.history import recorded
from recordmill.pipeline.versions.leases import BUILD, Holder, OnWait
from recordmill.pipeline.versions.stores.base import CLAIM_FILE, Store
from recordmill.pipeline.versions.stores.local import folder_bytes
from recordmill.pipeline.versions.stores.open_store import open_store


@dataclass
class Pruned:
    """The changes of a prune, or of a dry run."""

    removed: dict[str, int] = field(default_factory=dict)  # folders and files by name in the output, with their bytes
    kept: dict[str, str] = field(default_factory=dict)  # old versions that stay, with reasons


def prune(
    output: str,
    keep: int | None,
    grace_seconds: float = listing.GRACE_SECONDS,
    *,
    also: Collection[str] = (),
    dry_run: bool = False,
    building: str | None = None,
    on_wait: OnWait = lambda _: None,
    reason: str = "",
) -> Pruned:
    """Removes all versions but the newest, and the remains of dead builds; waits for other hosts' beats (`on_wait`).

    The newest `keep` versions stay, by order of publishing (None: all), others for `grace_seconds` after they were
    live, for readers that may have one open; those in `also` go at any age, because they hold forgotten rows.
    `building` is the local folder of the output's unfinished builds, None to leave them. Raises: DatasetError: the
    folder does not exist. OutputError: the output cannot be read or written, or `LATEST` is broken.
    """
    store = listing.open_existing(output)
    if not dry_run:
        store.check_conditions()
    pruning = _Pruning(store, *leases.census(store, on_wait=on_wait), dry_run)
    with recorded(output, "prune", reason) as changes:
        changes["removed"] = {} if dry_run else pruning.done.removed  # filled below
        pruning.prune_versions(keep, grace_seconds, also)
        if building is not None:
            pruning.prune_builds(building)
        pruning.prune_uploads()
        pruning.prune_ownerless(grace_seconds)
        pruning.end_leases()
        pruning.done.removed |= store.strays(remove=not dry_run)
    return pruning.done


def sweep(output: str, building: str) -> None:
    """Removes work and leases of dead builds, superseded held-back versions and a prune's remains; never waits."""
    store = open_store(output)
    pruning = _impatient(store)
    pruning.prune_builds(building)
    pruning.prune_uploads()
    pruning.end_leases()
    remove_superseded(output)
    store.strays(remove=True)


def remove_superseded(output: str) -> None:
    """Removes held-back versions older than the newest version, except pinned or held ones."""
    _remove_held_back(output, publishing.published(open_store(output))[:-1])


def remove_held_back(output: str, live: str) -> None:
    """Removes the versions held back since the live one was made: its inputs are back."""
    store = open_store(output)
    second = live.partition("-")[0]  # names begin with the time, so the manifests need not be read
    if any(name > second and name != live for name in store.children(VERSIONS_FOLDER)):
        _remove_held_back(output, publishing.published(store))


def _remove_held_back(output: str, manifests: Sequence[Manifest]) -> None:
    def mark(latest: Latest | None) -> Latest:  # asks again: a person may have approved one
        held_back = [manifest.version for manifest in manifests if is_held_back(latest, manifest)]
        return listing.marked(listing.there(latest), held_back)

    store = open_store(output)
    latest = latest_of(store)
    if any(is_held_back(latest, manifest) for manifest in manifests):
        compare_and_swap(store, mark)
    remove_marked(output)


def remove_marked(output: str) -> Pruned:
    """Removes the versions marked as `removing` in `LATEST`, except those held by readers."""
    store = open_store(output)
    pruning = _impatient(store)
    pruning.remove_marked(latest_of(store))
    return pruning.done


def _impatient(store: Store) -> "_Pruning":
    """Begins a prune that treats only visibly dead holders as dead."""
    holders = leases.holders(store)
    dead = {name: holder for name, holder in holders.items() if holder.is_dead()}
    living = {name: holder for name, holder in holders.items() if name not in dead}
    return _Pruning(store, living, dead, dry_run=False)


@dataclass(frozen=True)
class _Pruning:
    """One prune of an output, with the leases of living and dead holders."""

    store: Store
    living: Mapping[str, Holder]
    dead: Mapping[str, Holder]
    dry_run: bool
    done: Pruned = field(default_factory=Pruned)

    def prune_versions(self, keep: int | None, grace: float, also: Collection[str]) -> None:
        def mark(latest: Latest | None) -> Latest:
            latest, published = listing.there(latest), publishing.published(self.store)
            held_back = [each.version for each in published if is_held_back(latest, each)]
            ordinary = [each.version for each in published if each.version not in held_back]
            old = [] if keep is None else ordinary[: max(0, len(ordinary) - keep)]
            superseded = [version for version in held_back if version != published[-1].version]
            graces = dict.fromkeys(old, grace) | dict.fromkeys([*superseded, *also], 0.0)
            chosen, kept = listing.choose(latest, graces, self.living, datetime.now(UTC))
            holding = {version: f"it holds forgotten rows, but {kept[version]}" for version in also if version in kept}
            self.done.kept.update(kept | holding)
            return chosen

        latest = latest_of(self.store)
        if latest is not None:
            self.remove_marked(mark(latest) if self.dry_run else compare_and_swap(self.store, mark))

    def remove_marked(self, latest: Latest | None) -> None:
        """Removes marked versions, except those held by readers and files needed by other versions."""
        if latest is None or not latest.removing:
            return
        marked = list(latest.removing)
        if not self.dry_run:  # a reader checks the mark after taking its lease
            now = leases.holders(self.store).items()
            held = [name for name, holder in now if self.dead.get(name) != holder and not holder.is_dead()]
            spared = [version for version in marked if any(listing.holds(name, version) for name in held)]
            self._unmark(spared, forget=False)
            self.done.kept.update(dict.fromkeys(spared, "it is held"))
            marked = [version for version in marked if version not in spared]
        folders = {version: f"{VERSIONS_FOLDER}/{version}" for version in marked}
        sizes = {folder: self.store.sizes(folder) for folder in folders.values()}
        removal = Removal(self.store, {name: size for each in sizes.values() for name, size in each.items()})
        if not self.dry_run:  # another prune may have unmarked a version meanwhile, and it may have become live
            with self.store.locked():
                latest = latest_of(self.store)
                marked = [version for version in marked if latest is not None and version in latest.removing]
                for version in marked:
                    for name in (CLAIM_FILE, MANIFEST_FILE):  # from here on its references do not count
                        self.store.delete(f"{VERSIONS_FOLDER}/{version}/{name}")
        needs = needs_of(self.store, marked) if marked else Needs()
        for version in marked:
            self._remove_unneeded(folders[version], sizes[folders[version]], needs, removal)
        if not self.dry_run:
            self._unmark(marked, forget=True)

    def _unmark(self, versions: Sequence[str], *, forget: bool) -> None:
        """Removes versions' marks; with `forget`, also their `retired` times."""

        def edit(latest: Latest | None) -> Latest:
            latest = listing.there(latest)
            removing = tuple(version for version in latest.removing if version not in versions)
            retired = {name: time for name, time in latest.retired.items() if not (forget and name in versions)}
            return replace(latest, retired=retired, removing=removing)

        if versions:
            compare_and_swap(self.store, edit)

    def _remove_unneeded(self, folder: str, sizes: Mapping[str, int], needs: Needs, removal: Removal) -> None:
        """Removes a version's files, except those needed by other versions."""
        needed = set(needs.of(folder, sizes))
        if needed:
            of_all = f"{sum(sizes[name] for name in needed):,} bytes of its shards stay"
            self.done.kept[folder.rpartition("/")[2]] = f"{of_all}: {needs.who(folder, needed)}"
        if needed != sizes.keys():
            self.done.removed[folder] = removal.freed(sizes.keys() - needed)
        if not self.dry_run:
            remove_unneeded(self.store, folder, needs)

    def prune_builds(self, building: str) -> None:
        """Removes the work of builds unless a build is running."""
        for folder in build_folders.builds(building).values():
            self._end(str(folder), partial(folder_bytes, folder), partial(build_folders.remove_build, folder))
        for name in [] if self.store.links else self.store.children(build_folders.BUILDING_FOLDER):
            inner = f"{build_folders.BUILDING_FOLDER}/{name}"
            remove = partial(build_folders.remove_stored_build, self.store, inner)
            self._end(inner, partial(_bytes, self.store, inner), remove)

    def prune_uploads(self) -> None:
        """Removes interrupted uploads; of a published version only the claim."""
        for version in build_folders.uploads(self.store):
            folder = f"{VERSIONS_FOLDER}/{version}"
            claim, sizes = f"{folder}/{CLAIM_FILE}", self.store.sizes(folder)
            is_published = f"{folder}/{MANIFEST_FILE}" in sizes
            removed, parts = (claim, [sizes.get(claim, 0)]) if is_published else (folder, [*sizes.values()])
            self._end(removed, partial(sum, parts), partial(build_folders.end_upload, self.store, version))

    def prune_ownerless(self, grace: float) -> None:
        """Removes a bucket's files outside versions and uploads, unless they may be needed."""
        store = self.store
        latest, unowned = latest_of(store), [] if store.links else build_folders.ownerless(store)
        needs = needs_of(store) if unowned else Needs()
        for version in unowned:
            folder = f"{VERSIONS_FOLDER}/{version}"
            newest, sizes = store.newest(folder), store.sizes(folder)
            if newest is None or folder in self.done.removed or version in self.done.kept:
                continue
            reason: str | None = None
            if latest and version in {latest.version, *latest.pinned, *latest.retired} - {*latest.removing}:
                reason = "`LATEST` names it"
            elif any(listing.holds(lease, version) for lease in self.living):
                reason = "it is held"
            elif grace > 0 and (datetime.now(UTC) - newest).total_seconds() < grace:
                reason = f"its newest file is of {newest:%Y-%m-%dT%H:%M:%SZ}: its grace is not over"
            if reason is None and needs.of(folder, sizes):
                self._remove_unneeded(folder, sizes, needs, Removal(store, sizes))
            elif reason is None:
                end = partial(build_folders.end_upload, store, version, needs)
                self._end(folder, partial(_bytes, store, folder), end)
            else:
                self.done.kept[version] = f"it has no {MANIFEST_FILE}, but {reason}"

    def end_leases(self) -> None:
        for name, holder in {} if self.dry_run else self.dead.items():
            lease = leases.take_over(self.store, name, holder)
            if lease is not None:
                lease.release()

    def _end(self, removed: str, measure: Callable[[], int], remove: Callable[[], object]) -> None:
        """Removes something reserved to builds, unless a build is running."""
        if BUILD in self.living:
            return
        size = measure()
        lease = None if self.dry_run else leases.take_over(self.store, BUILD, self.dead.get(BUILD))
        if lease is not None:
            try:
                remove()
            finally:
                lease.release()
        if lease is not None or self.dry_run:  # else a build has started
            self.done.removed[removed] = size


def _bytes(store: Store, folder: str) -> int:
    return sum(store.sizes(folder).values())
