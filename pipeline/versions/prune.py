"""Removes old versions, and what killed builds left. Never the live version, a pinned one, or one that is held.

What is to go is first written into `LATEST`, as `removing`, by the same compare-and-swap that moves the pointer and
pins versions: from then on it is no version for anybody. A prune that is killed is gone on with by the next.

>>> prune("out", keep=3).removed  # doctest: +SKIP
{'versions/20261120T120000Z-4f1c9a2e': 104857600}
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from recordmill.pipeline.build import attempts
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, Latest, Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions import latest_file, leases, publishing
from recordmill.pipeline.versions.latest_file import change
from recordmill.pipeline.versions.leases import Holder
from recordmill.pipeline.versions.listing import holds, open_existing
from recordmill.pipeline.versions.stores.base import CLAIM_FILE
from recordmill.pipeline.versions.stores.local import folder_bytes
from recordmill.pipeline.versions.stores.open_store import OutputError, Store

GRACE_SECONDS = 24 * 3600.0
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 24 * 3600.0}


@dataclass
class Pruned:
    """What a prune did, or with `dry_run` would do."""

    removed: dict[str, int] = field(default_factory=dict)
    """The folders and files by name in the output, with their bytes."""
    kept: dict[str, str] = field(default_factory=dict)
    """The versions that are older than those to be kept, and why each stays all the same."""


def prune(
    output: str,
    keep: int | None,
    grace_seconds: float = GRACE_SECONDS,
    *,
    dry_run: bool = False,
    work: str | None = None,
    on_wait: Callable[[Holder], None] = lambda holder: None,
) -> Pruned:
    """Removes versions but for the newest, and what builds that are dead left.

    Args:
        output: the dataset's output.
        keep: how many of the newest versions stay, in the order of publishing; None for all.
        grace_seconds: a version stays until it has not been live for so long; a reader may still have it open.
        dry_run: nothing is changed.
        work: the local folder in which builds for an output at a URL work, as in a build.
        on_wait: called with each holder of a lease on another host, whose next beat is waited for.

    Raises:
        DatasetError: there is no such folder.
        OutputError: the output cannot be read or written, or `LATEST` is broken.
    """
    store = open_existing(output)
    pruning = _Pruning(store, *leases.census(store, on_wait=on_wait), dry_run)
    pruning.prune_versions(keep, grace_seconds)
    pruning.prune_runs(Path(attempts.building_folder(output, work)))
    pruning.prune_uploads()
    pruning.end_leases()
    pruning.done.removed |= store.strays(remove=not dry_run)
    return pruning.done


def seconds_of(grace: str) -> float:
    """Reads a time such as `30m`, `12h`, `1d`, or `0`; a number alone is seconds.

    Raises:
        UserError: it is none.
    """
    number, unit = (grace[:-1], grace[-1:]) if grace[-1:] in UNITS else (grace, "s")
    if not number.isascii() or not number.isdecimal():
        raise UserError(f"the grace '{grace}' is no time: give a whole number and s, m, h or d, such as 12h")
    return int(number) * UNITS[unit]


def choose(
    latest: Latest, manifests: list[Manifest], living: Collection[str], keep: int, grace: float, now: datetime
) -> tuple[Latest, dict[str, str]]:
    """Chooses what is to go: gives `LATEST` with that marked, and why other old versions stay.

    Args:
        latest: the pointer.
        manifests: all versions, in the order of publishing.
        living: the leases that are held.
        keep: how many of the newest stay.
        grace: seconds since a version stopped being live.
        now: the time.
    """
    kept, retired, removing = {}, dict(latest.retired), list(latest.removing)
    for version in [manifest.version for manifest in manifests[: max(0, len(manifests) - keep)]]:
        reason = _why_kept(latest, version, living, grace, now)
        if reason is None:
            removing.append(version)
        else:
            kept[version] = reason
            if version != latest.version and _age(latest, version, now) is None:  # from now on it is known
                retired[version] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return replace(latest, retired=retired, removing=tuple(removing)), kept


def _why_kept(latest: Latest, version: str, living: Collection[str], grace: float, now: datetime) -> str | None:
    if version == latest.version:
        return "it is live"
    if version in latest.pinned:
        return "it is pinned"
    if any(holds(lease, version) for lease in living):
        return "it is held"
    if grace <= 0:
        return None
    age, retired = _age(latest, version, now), latest.retired.get(version)
    if age is None:
        return "it is not known when it stopped being live: its grace begins now"
    if age < 0:
        return f"it stopped being live at {retired}, which is to come: a clock was ahead; `--grace 0` removes it"
    return f"it stopped being live at {retired}: the grace is not over" if age < grace else None


def _age(latest: Latest, version: str, now: datetime) -> float | None:
    """How many seconds a version has not been live; None where it is not known, as of an earlier Recordmill's."""
    try:
        return (now - datetime.fromisoformat(latest.retired[version])).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None


@dataclass(frozen=True)
class _Pruning:
    """One prune of an output, with the leases of the living and of the dead."""

    store: Store
    living: Mapping[str, Holder]
    dead: Mapping[str, Holder]
    dry_run: bool
    done: Pruned = field(default_factory=Pruned)

    def prune_versions(self, keep: int | None, grace: float) -> None:
        def mark(latest: Latest | None) -> Latest:
            manifests = publishing.published(self.store)
            most = len(manifests) if keep is None else keep
            marked, kept = choose(_there(latest), manifests, self.living, most, grace, datetime.now(UTC))
            self.done.kept.update(kept)
            return marked

        latest = latest_file.read(self.store)
        if latest is None:
            return
        latest = mark(latest) if self.dry_run else self._spare_held(change(self.store, mark))
        for version in latest.removing:
            folder = f"{VERSIONS_FOLDER}/{version}"
            self.done.removed[folder] = sum(self.store.sizes(folder).values())
            if not self.dry_run:
                self.store.remove(folder, MANIFEST_FILE)
        if latest.removing and not self.dry_run:
            gone = set(latest.removing)
            change(self.store, lambda latest: _unmarked(_there(latest), gone, forget=True))

    def _spare_held(self, latest: Latest) -> Latest:
        """Spares what a reader took a lease of meanwhile: readers look for the mark after they took it."""
        found = leases.holders(self.store).items()
        held = [name for name, holder in found if self.dead.get(name) != holder and not holder.is_dead()]
        spared = {version for version in latest.removing if any(holds(name, version) for name in held)}
        if not spared:
            return latest
        self.done.kept.update(dict.fromkeys(spared, "it is held"))
        return change(self.store, lambda latest: _unmarked(_there(latest), spared, forget=False))

    def prune_runs(self, building: Path) -> None:
        """Removes the work of builds that nobody is at."""
        for key in sorted(building.iterdir()) if building.is_dir() else []:
            others = key.name.__ne__  # `sweep` leaves them alone
            self._end(key.name, str(key), folder_bytes(key), partial(attempts.sweep, str(building), others))

    def prune_uploads(self) -> None:
        """Removes uploads that were cut off; of a version that was published, only the claim."""
        for version, name in publishing.uploads(self.store).items():
            folder = f"{VERSIONS_FOLDER}/{version}"
            claim, sizes = f"{folder}/{CLAIM_FILE}", self.store.sizes(folder)
            is_published = f"{folder}/{MANIFEST_FILE}" in sizes
            what, size = (claim, sizes.get(claim, 0)) if is_published else (folder, sum(sizes.values()))
            self._end(name, what, size, partial(publishing.end_upload, self.store, version))

    def end_leases(self) -> None:
        """Removes leases of the dead."""
        for name, holder in {} if self.dry_run else self.dead.items():
            lease = leases.take_over(self.store, name, holder)
            if lease is not None:
                lease.release()

    def _end(self, name: str, folder: str, size: int, remove: Callable[[], object]) -> None:
        """Removes what only the holder of a lease may touch, if nobody living is."""
        if name in self.living:
            return
        lease = None if self.dry_run else leases.take_over(self.store, name, self.dead.get(name))
        if lease is not None:
            remove()
            lease.release()
        if lease is not None or self.dry_run:  # else a build has begun meanwhile
            self.done.removed[folder] = size


def _there(latest: Latest | None) -> Latest:
    if latest is None:
        raise OutputError("the output's LATEST was removed meanwhile: run the same command again")
    return latest


def _unmarked(latest: Latest, versions: Collection[str], *, forget: bool) -> Latest:
    removing = tuple(version for version in latest.removing if version not in versions)
    retired = {version: time for version, time in latest.retired.items() if not (forget and version in versions)}
    return replace(latest, retired=retired, removing=removing)
