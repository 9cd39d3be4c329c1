"""Publishes versions: checks the output, shows a complete version, and points `LATEST` to it.

A version is first staged: all its files reach the store's disks. Then one atomic step numbers it, shows it by its
manifest, and replaces `LATEST`: in a folder by renames under a lock, in an object store by a conditional write. Numbers
order the versions; clocks and names do not.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

from recordmill.pipeline.dataset import manifest as datasets
from recordmill.pipeline.dataset.manifest import LATEST_FILE, MANIFEST_FILE, VERSIONS_FOLDER, Latest, Manifest
from recordmill.pipeline.dataset.paths import attempt_name, locate
from recordmill.pipeline.errors import DatasetError, ExitCode, UserError
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.versions.base import (
    Base,
    awaits_approval,
    compare_and_swap,
    is_rolled_back,
    latest_of,
    missing_files,
    now,
    rolled_back,
)
from recordmill.pipeline.versions.build_folders import BUILDING_FOLDER, end_uploads
from recordmill.pipeline.versions.leases import LEASES_FOLDER, Lease
from recordmill.pipeline.versions.stores.base import HISTORY_FILE, Conflict, OutputError, Store, UnsettledOutputError
from recordmill.pipeline.versions.stores.open_store import is_local, open_store

_warn_once = cache(logging.getLogger("recordmill").warning)
OURS = {LATEST_FILE, VERSIONS_FOLDER, BUILDING_FOLDER, LEASES_FOLDER, HISTORY_FILE}
SHOWN = 3
Choose = Callable[[Latest | None], Manifest]  # maps the pointer to the version to make live
Moved = tuple[Manifest, str | None]  # the live version, and the name of the previous one, if any
ROLLED_BACK = "a version of the same inputs was rolled back"  # the line of a version that would undo a person's act


def check_output(output: str, but: Collection[str] = ()) -> None:
    """Refuses an output that is not writable or holds files other than a dataset's, and `but`; writes nothing.

    Raises: OutputError: its URL's store is unknown; it cannot be reached or written, or holds files but no dataset; or
    its `LATEST` is not a file. DatasetError: `versions` is a link out of it.
    """
    if not output:
        raise OutputError("the output's name is empty: name a folder or a URL")
    store = open_store(output)
    if is_local(output):
        for folder in (Path(store.url), Path(locate(store.url, VERSIONS_FOLDER))):
            reason = None
            try:
                while not os.path.lexists(folder):
                    folder = folder.parent
                if not folder.is_dir():
                    reason = "Not a directory"
                elif not os.access(folder, os.W_OK | os.X_OK):
                    read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
                    reason = "Read-only file system" if read_only else "Permission denied"
            except OSError as error:
                reason = error.strerror
            if reason:
                raise OutputError(f"the output {output} cannot be written: {reason}: {folder}")
    entries = store.children("")
    shown = [name for name in entries if not name.startswith(".") and name not in ("lost+found", *but)]
    if shown and not OURS & set(entries):
        some = ", ".join(shown[:SHOWN]) + (", …" if len(shown) > SHOWN else "")
        raise OutputError(f"the output {output} holds {some} instead of a dataset: give a new folder, or an empty one")
    if LATEST_FILE in entries and not store.exists(LATEST_FILE):
        raise OutputError(f"{store.url}/{LATEST_FILE} is not a file: move it away")


def published(store: Store) -> list[Manifest]:
    """Reads the manifests of all versions in the order of publishing, without broken or removed ones."""
    manifests = [manifest for manifest in (_manifest(store, name) for name in _kept(store)) if manifest is not None]
    return sorted(manifests, key=lambda manifest: (manifest.sequence, manifest.version))


def broken(store: Store) -> list[str]:
    """Names the versions with unreadable manifests: their rows are unknown."""
    named = (name for name in _kept(store) if store.exists(f"{VERSIONS_FOLDER}/{name}/{MANIFEST_FILE}"))
    return sorted(name for name in named if _manifest(store, name) is None)


def _kept(store: Store) -> list[str]:
    """Names the folders of versions, without those marked for removal."""
    removing: tuple[str, ...] = ()
    with suppress(OutputError):  # a broken `LATEST` does not hide versions
        latest = latest_of(store)
        removing = latest.removing if latest else ()
    return [name for name in store.children(VERSIONS_FOLDER) if name not in removing]


def _manifest(store: Store, version: str) -> Manifest | None:
    """Reads the manifest in a version's folder; None if it is broken or of another version."""
    try:
        manifest = datasets.read_manifest(datasets.version_folder(store.location, version))
        if manifest.version == version:
            return manifest
        raise DatasetError(f"its {MANIFEST_FILE} belongs to {manifest.version}")
    except DatasetError as error:
        if store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"):
            _warn_once(printable(f"the version {version} is ignored: {error}"))
        return None


def find_version(output: str, source_key: str, fits: Callable[[Manifest], bool] = lambda _: True) -> Manifest | None:
    """Finds the newest complete version of a source key that fits, or None."""
    store = open_store(output)
    for manifest in reversed(published(store)):
        if manifest.source_key == source_key and fits(manifest) and not missing_files(store, manifest):
            return manifest
    return None


def live_version(output: str) -> str | None:
    """Returns the live version's name; None without one, or if `LATEST` is broken."""
    with suppress(OutputError):
        latest = latest_of(open_store(output))
        return latest.version if latest else None
    return None


def publish(base: Base, assembled: str, manifest: Manifest, lease: Lease, *, live: bool) -> Manifest:
    """Publishes an assembled version, live or held back, under its number, and another name if its own is taken.

    A local output takes the folder; in a bucket some files may exist under this build's claim. Raises: LeaseLostError:
    another process took over. UnsettledOutputError: the output no longer holds `base`. OutputError: not writable.
    """
    store, name = open_store(base.output), manifest.version
    for version in free_names(name):
        with suppress(Conflict):  # another version has the same second and prefix of the build key
            manifest = _publish(store, base, assembled, replace(manifest, version=version), lease, live)
            break
    end_uploads(base.output, manifest.build_key)
    return manifest


def version_name(build_key: str) -> str:
    """Names a version made now."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{build_key[:8]}"


def free_names(name: str) -> Iterator[str]:
    """Yields a version's name, then alternatives."""
    return chain([name], (f"{name}-{number}" for number in count(2)))


def _publish(store: Store, base: Base, assembled: str, manifest: Manifest, lease: Lease, live: bool) -> Manifest:
    """Shows a version, and makes it live if `live`; a bucket lacks locks: it is checked again behind the manifest."""
    folder, is_stored = f"{VERSIONS_FOLDER}/{manifest.version}", not is_local(store.url)
    store.stage(assembled, folder, attempt_name(manifest.build_key[:16]).encode())
    earlier = store.read_tagged(f"{folder}/{MANIFEST_FILE}") if is_stored else None  # by a build that lost the lease
    shown = earlier.tag if earlier else None

    def check() -> None:
        lease.check()
        _check_whole(store, manifest, None if is_stored else assembled)

    def reveal(latest: Latest | None) -> None:
        nonlocal manifest, shown
        try:
            check()
            base.check(latest)
            manifest = replace(manifest, sequence=next_sequence(store, latest))
            shown = store.reveal(assembled, folder, MANIFEST_FILE, manifest.to_text().encode(), shown)
            if is_stored:
                check()
        except UserError:
            if shown is not None and (latest is None or latest.version != manifest.version):
                store.hide(folder, MANIFEST_FILE, shown)
            raise

    def edit(latest: Latest | None) -> Latest:
        reveal(latest)
        pointer = _moved(store, latest, manifest.version, manifest.sequence)
        return replace(pointer, rolled_back=rolled_back(latest, manifest))

    if live:
        compare_and_swap(store, edit)
    else:
        with store.locked():
            reveal(latest_of(store))
    return manifest


def next_sequence(store: Store, latest: Latest | None) -> int:
    """Returns one more than the largest number of the versions and the pointer."""
    return 1 + max([latest.sequence if latest else 0, *(manifest.sequence for manifest in published(store))])


def _check_whole(store: Store, manifest: Manifest, staged: str | None = None) -> None:
    """Checks by listing that every file of a version is there, with its size. Raises: UnsettledOutputError."""
    for name in missing_files(store, manifest, staged):
        remedy = "run the same command again, and `recordmill verify` if it stays so"
        raise UnsettledOutputError(f"{store.url}/{name} is missing or has a wrong size: {remedy}")


def make_live(store: Store, choose: Choose, *, mend: bool = False) -> Moved:
    """Moves `LATEST` to a version that `choose` gives, asked again after each lost race.

    With `mend`, for a rollback, a broken `LATEST` counts as missing, and the inputs of newer versions that were or may
    have been live are remembered as rolled back. Raises: OutputError: the version was removed; not writable.
    """
    steps = list[Moved]()

    def edit(latest: Latest | None) -> Latest:
        chosen = choose(latest)
        if not store.exists(f"{VERSIONS_FOLDER}/{chosen.version}/{MANIFEST_FILE}"):
            raise UnsettledOutputError(f"{chosen.version} was removed by another process: run the same command again")
        _check_whole(store, chosen)
        steps.append((chosen, latest.version if latest else None))
        if latest is not None and latest.version == chosen.version:
            return latest
        pointer = _moved(store, latest, chosen.version, next_sequence(store, latest))
        left = [each for each in published(store) if latest is None or each.version == latest.version] if mend else []
        return replace(pointer, rolled_back=rolled_back(latest, chosen, left))

    compare_and_swap(store, edit, mend=mend)
    return steps[-1]


def make_live_again(base: Base, manifest: Manifest) -> None:
    """Makes an earlier version live, if the output is still as in `base`. Raises: UnsettledOutputError."""

    def choose(latest: Latest | None) -> Manifest:
        base.check(latest)
        return manifest

    make_live(open_store(base.output), choose)


def _moved(store: Store, latest: Latest | None, version: str, sequence: int) -> Latest:
    """Points `LATEST` to a version, and retires the previous one. Raises: UnsettledOutputError: it is being deleted."""
    if latest is None:  # lost: any other version may have been live, so their graces start now
        others = (other.version for other in published(store) if other.version != version)
        return Latest(version, sequence, retired=dict.fromkeys(others, now()))
    if version in latest.removing:
        raise UnsettledOutputError(f"the version {version} is being deleted: choose another, or build again")
    retired = latest.retired if latest.version == version else {**latest.retired, latest.version: now()}
    retired = {name: time for name, time in retired.items() if name != version}
    same = latest.same if latest.version == version else ()
    return replace(latest, version=version, sequence=sequence, retired=retired, same=same)


def remember_same(output: str, version: str, key: str) -> None:
    """Records that a source key's inputs produce `version`, if it is still live. Raises: OutputError."""

    def edit(latest: Latest | None) -> Latest:
        if latest is None:
            raise UnsettledOutputError(f"{version} was removed by another process: run the same command again")
        if latest.version != version or key in latest.same:
            return latest
        return replace(latest, same=(*latest.same, key)[-16:])  # the newest keys

    compare_and_swap(open_store(output), edit)


def undone(base: Base, version: Manifest) -> tuple[str, ...]:
    """Returns a line for the user if a version would undo a person's rollback."""
    return (ROLLED_BACK,) if is_rolled_back(base.latest, version) else ()


@dataclass(frozen=True)
class Published:
    """The version that a build or an adoption made or found."""

    folder: str
    """Its path or URL."""
    manifest: Manifest
    is_new: bool
    """Whether this call made the version."""
    went_live: bool = True
    """Whether `LATEST` moved to the version; False if it was already live or is held back."""
    was_live: bool = False
    """Whether the version was live earlier: a rollback makes it live, not an approval."""
    before: str | None = None
    """The live version before, if any."""
    breaches: tuple[str, ...] = ()
    """A line for each breached limit of the gate, and for a rollback; any holds the version back."""
    built_spans: tuple[str, ...] = ()
    """The spans that this build read."""
    kept_spans: tuple[str, ...] = ()
    """The spans that it kept."""
    notes: Sequence[str] = ()
    """Lines on guesses, losses and features left out by an adoption."""

    @classmethod
    def of(cls, base: Base, manifest: Manifest, breaches: tuple[str, ...] = (), **more: Any) -> "Published":
        """Makes the outcome of a version compared with the live one, which may be itself."""
        return cls(
            str(base.folder_of(manifest.version)),
            manifest,
            went_live=not breaches and manifest.version != base.version,
            was_live=not awaits_approval(base.latest, manifest),
            before=base.version,
            breaches=breaches,
            **more,
        )

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        if self.breaches:
            return ExitCode.GATE
        return ExitCode.PUBLISHED if self.went_live else ExitCode.UP_TO_DATE

    def reason(self, output: str) -> str:
        """Says why the version is held back, and the remedies; a line for each breach."""
        version = self.manifest.version
        again = "" if self.is_new else "; it was built before, and nothing was built again"
        breaches = "".join(f"\n  {line}" for line in self.breaches)
        given = output if self.is_new else f"{output} {version}"  # its manifest may name another comparison
        ways = f"`recordmill versions approve {given}` makes it live, `recordmill versions reject {given}` removes it"
        if self.was_live:
            ways = f"`recordmill versions rollback {given}` makes it live again"
        if self.breaches == (ROLLED_BACK,):
            return f"{version} is held back: {ROLLED_BACK}, and {self.before} stays live{again}\n{ways}"
        limits = "" if self.manifest.adopted else "; the limits are `gate` in the spec"
        held = f"the gate holds {version} back: it differs too much from {self.before}, which stays live"
        return f"{held}{again}{breaches}\n{ways}{limits}"


class GateBreachedError(UserError):
    """The version is complete but not live: it differs too much from the live one."""

    exit_code = ExitCode.GATE

    def __init__(self, message: str, published: Published) -> None:
        super().__init__(message)
        self.published = published
        """The version's folder and manifest."""
