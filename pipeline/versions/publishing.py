"""The output: published versions, the pointer to the live one, and how a version gets there.

A version is staged first, and everything of it is on the store's disks. Then, as one step that others cannot come
between, it gets its number, becomes visible by its manifest, and `LATEST` is replaced: in a folder by renames under a
lock, in an object store by a conditional write. The numbers are the order of versions: neither clocks nor names are.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from recordmill.pipeline.build.attempts import BUILDING_FOLDER
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
from recordmill.pipeline.versions.leases import LEASES_FOLDER, Lease
from recordmill.pipeline.versions.stores.base import CLAIM_FILE
from recordmill.pipeline.versions.stores.open_store import (
    Conflict,
    OutputError,
    Store,
    is_local,
    location,
    open_location,
    open_store,
)

OURS = {LATEST_FILE, VERSIONS_FOLDER, BUILDING_FOLDER, LEASES_FOLDER}
SHOWN = 3


def check_output(output: str) -> None:
    """Refuses an output that cannot be written, or that is not one; nothing is written.

    Raises:
        OutputError: it is a URL of no known store, cannot be reached or written, holds files but no dataset, or its
            `LATEST` is broken.
    """
    store = open_store(output)
    if is_local(output):
        for folder in (store.url, os.path.join(store.url, VERSIONS_FOLDER)):
            _check_folder(output, Path(folder))
    entries = store.children("")
    shown = [name for name in entries if not name.startswith(".") and name != "lost+found"]
    if shown and not OURS & set(entries):
        some = ", ".join(shown[:SHOWN]) + (", …" if len(shown) > SHOWN else "")
        raise OutputError(f"the output {output} holds no dataset but {some}: give a new folder or an empty one")
    if LATEST_FILE in entries and not store.exists(LATEST_FILE):
        raise OutputError(f"{store.url}/{LATEST_FILE} is no file, as a pointer should be: move it away")
    latest_file.read(store)


def _check_folder(output: str, folder: Path) -> None:
    try:
        while not os.path.lexists(folder):
            folder = folder.parent
        reason = None if folder.is_dir() else "Not a directory"
        if reason is None and not os.access(folder, os.W_OK | os.X_OK):
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
    """Gives the manifests of all versions that can be read, in the order of publishing; not those being deleted."""
    try:
        latest = latest_file.read(store)
    except OutputError:  # broken: the versions may be listed all the same
        latest = None
    removing = latest.removing if latest else ()
    names = [name for name in store.children(VERSIONS_FOLDER) if name not in removing]
    manifests = [manifest for manifest in (_manifest(store, name) for name in names) if manifest is not None]
    return sorted(manifests, key=lambda manifest: (manifest.sequence, manifest.version))


def _manifest(store: Store, version: str) -> Manifest | None:
    try:
        return read_manifest(version_folder(location(store), version))
    except DatasetError:
        return None


def find_version(output: str, build_key: str) -> Manifest | None:
    """The last published version that this very build made, whole; None where there is none."""
    store = open_store(output)
    for manifest in reversed(published(store)):
        if manifest.build_key == build_key and _is_whole(store, manifest):
            return manifest
    return None


def _is_whole(store: Store, manifest: Manifest) -> bool:
    """Whether every shard is there, of the size that the manifest gives."""
    folder = f"{VERSIONS_FOLDER}/{manifest.version}"
    sizes = store.sizes(folder)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    return all(sizes.get(f"{folder}/{shard.file}") == shard.bytes for shard in shards)


def live_version(output: str) -> str | None:
    """The name of the live version; None where nothing is published, or the pointer is broken."""
    try:
        latest = latest_file.read(open_store(output))
    except OutputError:
        return None
    return latest.version if latest else None


def place(output: str, version: str) -> str:
    """A version's folder, as a path or a URL."""
    return str(version_folder(open_location(output), version))


def publish(output: str, assembled: str, manifest: Manifest, lease: Lease | None = None) -> tuple[str, Manifest]:
    """Makes an assembled version visible and live.

    Args:
        output: the dataset's output.
        assembled: the local folder with all files of the version but the manifest. In a local output it becomes the
            version's.
        manifest: the version's; it gets its number, and another name where its own is taken.
        lease: this build's.

    Returns:
        The version's folder, as a path or a URL, and its manifest.

    Raises:
        LeaseLostError: another process took the work over; nothing was published.
        OutputError: the output cannot be written, or holds a dataset of another name meanwhile.
    """
    store = open_store(output)
    for version in _names(manifest.version):
        try:
            done = _publish(store, assembled, replace(manifest, version=version), lease)
        except Conflict:
            continue  # another was published in the same second, whose key begins alike
        break
    with suppress(OutputError):  # it is published: what is left over is for the next build
        _sweep(store, manifest.build_key)
    return place(output, done.version), done


def _names(version: str) -> Iterator[str]:
    return chain([version], (f"{version}-{number}" for number in count(2)))


def _publish(store: Store, assembled: str, manifest: Manifest, lease: Lease | None) -> Manifest:
    folder = f"{VERSIONS_FOLDER}/{manifest.version}"
    store.stage(assembled, folder, attempt_name(manifest.build_key[:16]).encode())

    is_shown = False

    def reveal(latest: Latest | None) -> Latest:
        nonlocal manifest, is_shown
        try:
            if lease is not None:
                lease.check()
            _check_name(store, latest, manifest.name)
            manifest = replace(manifest, sequence=next_sequence(store, latest))
        except UserError:
            if is_shown or not is_local(store.url):  # staged or shown by this process alone, and never live
                store.remove(folder, MANIFEST_FILE)
            raise
        store.reveal(assembled, folder, MANIFEST_FILE, manifest.to_text().encode())
        is_shown = True
        return latest_file.moved(latest, manifest.version, manifest.sequence)

    latest_file.change(store, reveal)
    return manifest


def next_sequence(store: Store, latest: Latest | None) -> int:
    """One more than the largest number that any version or the pointer has."""
    return 1 + max([latest.sequence if latest else 0, *(manifest.sequence for manifest in published(store))])


def make_live(output: str, version: str) -> None:
    """Points `LATEST` to a version, by one atomic replacement."""
    store = open_store(output)

    def edit(latest: Latest | None) -> Latest:
        if not store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"):
            raise OutputError(f"the version {version} was removed meanwhile: run the same command again")
        return latest_file.moved(latest, version, next_sequence(store, latest))

    latest_file.change(store, edit)


def uploads(store: Store) -> dict[str, str]:
    """The versions that are, or were, being uploaded, each with the name of the lease of who does it."""
    found = {}
    for name in store.children(VERSIONS_FOLDER):
        with suppress(DatasetError):  # no name of a version
            claim = store.read(f"{VERSIONS_FOLDER}/{name}/{CLAIM_FILE}")
            if claim is not None:
                found[name] = claim.data.decode(errors="replace").partition(".")[0]
    return found


def end_upload(store: Store, version: str) -> None:
    """Ends what `uploads` gave: of a version that was published the claim is removed, of any other all there is."""
    folder = f"{VERSIONS_FOLDER}/{version}"
    if store.exists(f"{folder}/{MANIFEST_FILE}"):
        store.delete(f"{folder}/{CLAIM_FILE}")
    else:
        store.remove(folder, MANIFEST_FILE)


def _sweep(store: Store, build_key: str) -> None:
    """Ends this build's own uploads, and those of earlier attempts at it, which are dead: it holds the lease."""
    for version, lease in uploads(store).items():
        if lease == build_key[:16]:
            end_upload(store, version)
