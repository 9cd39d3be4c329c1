"""Publishes versions: checks the output, shows a version whole, and points `LATEST` to it.

A version is first staged: all its files reach the store's disks. Then one step, which no other process can interleave
with, gives it its number, shows it by its manifest, and replaces `LATEST`: in a folder by renames under a lock, in an
object store by a conditional write. Numbers order the versions; clocks and names do not.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from recordmill.pipeline.dataset.atomic_files import attempt_name
from recordmill.pipeline.dataset.manifest import (
    LATEST_FILE,
    MANIFEST_FILE,
    VERSIONS_FOLDER,
    DatasetError,
    Latest,
    Manifest,
    read_manifest,
    version_folder,
)
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions import latest_file
from recordmill.pipeline.versions.build_folders import BUILDING_FOLDER
from recordmill.pipeline.versions.leases import LEASES_FOLDER, Lease
from recordmill.pipeline.versions.stores.base import CLAIM_FILE, Conflict, OutputError, Store
from recordmill.pipeline.versions.stores.open_store import is_local, open_location, open_store

OURS = {LATEST_FILE, VERSIONS_FOLDER, BUILDING_FOLDER, LEASES_FOLDER}
SHOWN = 3
Check = Callable[[], None]


def check_output(output: str) -> None:
    """Refuses an output that cannot be written or holds something else; writes nothing.

    Raises:
        OutputError: it is a URL of an unknown store, cannot be reached or written, holds files but no dataset, or its
            `LATEST` is broken.
    """
    store = open_store(output)
    if is_local(output):
        for folder in (Path(store.url), Path(store.url, VERSIONS_FOLDER)):
            _check_writable(output, folder)
    entries = store.children("")
    shown = [name for name in entries if not name.startswith(".") and name != "lost+found"]
    if shown and not OURS & set(entries):
        some = ", ".join(shown[:SHOWN]) + (", …" if len(shown) > SHOWN else "")
        raise OutputError(f"the output {output} holds no dataset but {some}: give a new folder or an empty one")
    if LATEST_FILE in entries and not store.exists(LATEST_FILE):
        raise OutputError(f"{store.url}/{LATEST_FILE} is not a file: move it away")
    latest_file.read(store)


def _check_writable(output: str, folder: Path) -> None:
    """Refuses a folder that cannot be made or written. Raises: OutputError."""
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


def check_name(output: str, name: str) -> None:
    """Refuses to publish a dataset in another one's folder.

    Raises:
        OutputError: the live version is of a dataset of another name.
    """
    store = open_store(output)
    _check_name(store, latest_file.read(store), name)


def _check_name(store: Store, latest: Latest | None, name: str) -> None:
    live = None if latest is None else _manifest(store, latest.version)
    if live is not None and live.name != name:
        raise OutputError(
            f"the output {store.url} holds the dataset '{live.name}', and the spec's name is '{name}': use another"
        )


def published(store: Store) -> list[Manifest]:
    """Reads the manifests of all versions but broken ones and those being deleted, in the order of publishing."""
    removing: tuple[str, ...] = ()
    with suppress(OutputError):  # a broken `LATEST` hides no version
        latest = latest_file.read(store)
        removing = latest.removing if latest else ()
    names = [name for name in store.children(VERSIONS_FOLDER) if name not in removing]
    manifests = [manifest for manifest in (_manifest(store, name) for name in names) if manifest is not None]
    return sorted(manifests, key=lambda manifest: (manifest.sequence, manifest.version))


def _manifest(store: Store, version: str) -> Manifest | None:
    try:
        return read_manifest(version_folder(store.location, version))
    except DatasetError:
        return None


def find_version(output: str, source_key: str, fits: Callable[[Manifest], bool] = lambda _: True) -> Manifest | None:
    """Finds the newest whole version of a source key that fits; None where no version does."""
    store = open_store(output)
    for manifest in reversed(published(store)):
        if manifest.source_key == source_key and fits(manifest) and _is_whole(store, manifest):
            return manifest
    return None


def _is_whole(store: Store, manifest: Manifest) -> bool:
    """Whether every shard is there, of the size that the manifest gives."""
    folder = f"{VERSIONS_FOLDER}/{manifest.version}"
    sizes = store.sizes(folder)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    return all(sizes.get(f"{folder}/{shard.file}") == shard.bytes for shard in shards)


def live_version(output: str) -> str | None:
    """The name of the live version; None if nothing is published or `LATEST` is broken."""
    try:
        latest = latest_file.read(open_store(output))
    except OutputError:
        return None
    return latest.version if latest else None


def live_manifest(output: str) -> Manifest | None:
    """The manifest of the live version; None if nothing is published.

    Raises:
        OutputError: `LATEST` is broken.
        DatasetError: the manifest is missing or broken.
    """
    latest = latest_file.read(open_store(output))
    return read_manifest(version_folder(open_location(output), latest.version)) if latest else None


def version_path(output: str, version: str) -> str:
    """The path or URL of a version's folder."""
    return str(version_folder(open_location(output), version))


def publish(
    output: str, assembled: str, manifest: Manifest, lease: Lease | None = None, check: Check = lambda: None
) -> tuple[str, Manifest]:
    """Makes an assembled version visible and live.

    Args:
        output: the dataset's output.
        assembled: the local folder with all files of the version but the manifest. In a local output it becomes the
            version's folder.
        manifest: the version's; it gets its number, and another name if its own is taken.
        lease: this build's.
        check: raises where the version may not follow the one that is live; called as the last thing before it does.

    Returns:
        The path or URL of the version's folder, and its manifest.

    Raises:
        LeaseLostError: another process took the work over; nothing was published.
        OutputError: the output cannot be written, or a dataset of another name was published in it meanwhile.
    """
    store, name = open_store(output), manifest.version
    for version in chain([name], (f"{name}-{number}" for number in count(2))):
        try:
            manifest = _publish(store, assembled, replace(manifest, version=version), lease, check)
        except Conflict:  # a version was published in the same second whose build key begins alike
            continue
        break
    with suppress(OutputError):  # the version is published; the next build removes what this leaves
        for upload, holder in uploads(store).items():  # of this process and its dead predecessors: it holds the lease
            if holder == manifest.build_key[:16]:
                end_upload(store, upload)
    return version_path(output, manifest.version), manifest


def _publish(store: Store, assembled: str, manifest: Manifest, lease: Lease | None, check: Check) -> Manifest:
    folder = f"{VERSIONS_FOLDER}/{manifest.version}"
    store.stage(assembled, folder, attempt_name(manifest.build_key[:16]).encode())
    is_shown = False

    def reveal(latest: Latest | None) -> Latest:
        nonlocal manifest, is_shown
        try:
            if lease is not None:
                lease.check()
            _check_name(store, latest, manifest.name)
            check()
            manifest = replace(manifest, sequence=next_sequence(store, latest))
        except UserError:
            if is_shown or not is_local(store.url):  # this process alone staged or showed it, and it was never live
                store.remove(folder, MANIFEST_FILE)
            raise
        store.reveal(assembled, folder, MANIFEST_FILE, manifest.to_text().encode())
        is_shown = True
        return latest_file.moved(latest, manifest.version, manifest.sequence)

    latest_file.compare_and_swap(store, reveal)
    return manifest


def next_sequence(store: Store, latest: Latest | None) -> int:
    """One more than the largest number of any version or of the pointer."""
    return 1 + max([latest.sequence if latest else 0, *(manifest.sequence for manifest in published(store))])


def make_live(output: str, version: str) -> None:
    """Points `LATEST` to a version by compare-and-swap.

    Raises:
        OutputError: the version was removed meanwhile, or `LATEST` cannot be written.
    """
    store = open_store(output)

    def edit(latest: Latest | None) -> Latest:
        if not store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"):
            raise OutputError(f"the version {version} was removed meanwhile: run the same command again")
        return latest_file.moved(latest, version, next_sequence(store, latest))

    latest_file.compare_and_swap(store, edit)


def uploads(store: Store) -> dict[str, str]:
    """The versions that are being uploaded, or whose upload was cut off, each with its uploader's lease name."""
    claims = {}
    for version in store.children(VERSIONS_FOLDER):
        with suppress(DatasetError):  # no version's name
            claim = store.read(f"{VERSIONS_FOLDER}/{version}/{CLAIM_FILE}")
            if claim is not None:
                claims[version] = claim.data.decode(errors="replace").partition(".")[0]
    return claims


def end_upload(store: Store, version: str) -> None:
    """Ends one of `uploads`: removes the claim of a published version, or everything of an unpublished one."""
    folder = f"{VERSIONS_FOLDER}/{version}"
    if store.exists(f"{folder}/{MANIFEST_FILE}"):
        store.delete(f"{folder}/{CLAIM_FILE}")
    else:
        store.remove(folder, MANIFEST_FILE)
