"""Publishes versions: checks the output, shows a version whole, and points `LATEST` to it.

A version is first staged: all its files reach the store's disks. Then one step, which no other process can interleave
with, gives it its number, shows it by its manifest, and replaces `LATEST`: in a folder by renames under a lock, in an
object store by a conditional write. Numbers order the versions; clocks and names do not.
"""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

from recordmill.pipeline.dataset.atomic_files import attempt_name
from recordmill.pipeline.dataset.file_names import inner_paths
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
from recordmill.pipeline.versions import forgotten, latest_file
from recordmill.pipeline.versions.build_folders import BUILDING_FOLDER
from recordmill.pipeline.versions.candidates import Judge, publishes_all, put_up, replaced
from recordmill.pipeline.versions.leases import LEASES_FOLDER, Lease
from recordmill.pipeline.versions.references import Needs, needs_of, remove_unneeded
from recordmill.pipeline.versions.stores.base import (
    CLAIM_FILE,
    HISTORY_FILE,
    Conflict,
    OutputError,
    Store,
    UnsettledOutputError,
)
from recordmill.pipeline.versions.stores.bucket import BucketStore, claimant
from recordmill.pipeline.versions.stores.open_store import is_local, open_location, open_store

OURS = {LATEST_FILE, VERSIONS_FOLDER, BUILDING_FOLDER, LEASES_FOLDER, HISTORY_FILE}
SHOWN = 3
MOST_SAME = 16  # source keys that `LATEST` remembers: the newest
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


def holds_dataset(store: Store) -> bool:
    """Whether a build has written to an output before."""
    return not OURS.isdisjoint(store.children(""))


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
    manifests = [manifest for manifest in (_manifest(store, name) for name in _kept(store)) if manifest is not None]
    return sorted(manifests, key=lambda manifest: (manifest.sequence, manifest.version))


def broken(store: Store) -> list[str]:
    """Names the versions whose manifest is there and cannot be read: nobody knows which rows they hold."""
    named = (name for name in _kept(store) if store.exists(f"{VERSIONS_FOLDER}/{name}/{MANIFEST_FILE}"))
    return sorted(name for name in named if _manifest(store, name) is None)


def _kept(store: Store) -> list[str]:
    """Names the folders of versions that are not being deleted."""
    removing: tuple[str, ...] = ()
    with suppress(OutputError):  # a broken `LATEST` hides no version
        latest = latest_file.read(store)
        removing = latest.removing if latest else ()
    return [name for name in store.children(VERSIONS_FOLDER) if name not in removing]


def _manifest(store: Store, version: str) -> Manifest | None:
    """Reads the manifest of the version in a folder; None for a broken one, or one that names itself otherwise."""
    try:
        manifest = read_manifest(version_folder(store.location, version))
    except DatasetError:
        return None
    return manifest if manifest.version == version else None


def find_version(output: str, source_key: str, fits: Callable[[Manifest], bool] = lambda _: True) -> Manifest | None:
    """Finds the newest whole version of a source key that fits; None where no version does."""
    store = open_store(output)
    for manifest in reversed(published(store)):
        if manifest.source_key == source_key and fits(manifest) and is_whole(store, manifest):
            return manifest
    return None


def is_whole(store: Store, manifest: Manifest) -> bool:
    """Whether all files of a version are there with their sizes."""
    return next(_missing(store, manifest), None) is None


def _missing(store: Store, manifest: Manifest) -> Iterator[str]:
    """Gives the files of a version that are not there with the size that the manifest gives."""
    own = f"{VERSIONS_FOLDER}/{manifest.version}"
    listed = {f"{own}/{path}": entry["bytes"] for path, entry in manifest.files.items()}
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    listed |= {f"{own}/{shard.file}": shard.bytes for shard in shards if shard.version is None}
    for shard in (shard for shard in shards if shard.version is not None):
        file, index = inner_paths(shard)
        listed[f"{VERSIONS_FOLDER}/{file}"] = shard.bytes
        listed[f"{VERSIONS_FOLDER}/{index}"] = 8 * (shard.records + 1)
    sizes = store.sizes(VERSIONS_FOLDER if any(shard.version for shard in shards) else own)
    return (name for name, size in listed.items() if sizes.get(name) != size)


def live_version(output: str) -> str | None:
    """The name of the live version; None if nothing is published or `LATEST` is broken."""
    try:
        latest = latest_file.read(open_store(output))
    except OutputError:
        return None
    return latest.version if latest else None


def _is_named(store: Store, version: str) -> bool:
    """Whether `LATEST` names a version, as the live one or as the candidate."""
    try:
        latest = latest_file.read(store)
    except OutputError:
        return False
    return latest is not None and version in (latest.version, latest.candidate and latest.candidate.version)


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
    output: str,
    assembled: str,
    manifest: Manifest,
    lease: Lease | None = None,
    check: Check = lambda: None,
    judge: Judge = publishes_all,
) -> tuple[str, Manifest]:
    """Makes an assembled version visible and live, or the candidate where the judge finds breaches; a trial neither.

    Args:
        output: the dataset's output.
        assembled: the local folder with all files of the version but the manifest. In a local output it becomes the
            version's folder. In a bucket files may lie there already, if this build's claim does, too.
        manifest: the version's; it gets its number, and another name if its own is taken.
        lease: this build's.
        check: raises where the version may not follow the one that is live; called as the last thing before it does.
        judge: compares the version with the one that is live, unless it is the first.

    Returns:
        The path or URL of the version's folder, and its manifest.

    Raises:
        LeaseLostError: another process took the work over; nothing was published.
        OutputError: the output cannot be written, or a dataset of another name was published in it meanwhile.
    """
    store, name = open_store(output), manifest.version
    for version in free_names(name):
        try:
            manifest = _publish(store, assembled, replace(manifest, version=version), lease, check, judge)
        except Conflict:  # a version was published in the same second whose build key begins alike
            continue
        break
    end_uploads(output, manifest.build_key)
    return version_path(output, manifest.version), manifest


def end_uploads(output: str, build_key: str) -> None:
    """Ends the uploads of this process and its dead predecessors, which hold the build's lease."""
    store = open_store(output)
    with suppress(OutputError):  # the next build removes what this leaves
        for upload, holder in uploads(store).items():
            if holder == build_key[:16]:
                end_upload(store, upload)


def version_name(build_key: str) -> str:
    """The name of a version that is made now."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{build_key[:8]}"


def free_names(name: str) -> Iterator[str]:
    """A version's name, and others in case it is taken."""
    return chain([name], (f"{name}-{number}" for number in count(2)))


def _publish(
    store: Store, assembled: str, manifest: Manifest, lease: Lease | None, check: Check, judge: Judge
) -> Manifest:
    """Shows a version and makes it live, or the candidate.

    In a bucket nothing keeps a successor out between the checks and the manifest. So they are repeated once it is
    there: a build that takes the lease later finds it, and one that took it before has made the check fail.
    """
    folder, is_stored = f"{VERSIONS_FOLDER}/{manifest.version}", not is_local(store.url)
    store.stage(assembled, folder, attempt_name(manifest.build_key[:16]).encode())
    judge = _judged(store, judge)
    predecessors = store.read(f"{folder}/{MANIFEST_FILE}") if is_stored else None  # one that lost the lease showed it
    shown = predecessors.tag if predecessors else None

    def check_files() -> None:
        if lease is not None:
            lease.check()
        if is_stored:
            _check_whole(store, manifest)

    def reveal(latest: Latest | None) -> Latest:
        nonlocal manifest, shown
        try:
            check_files()
            _check_name(store, latest, manifest.name)
            check()
            figures, breaches = judgement = judge(latest.version) if latest else publishes_all("")
            manifest = replace(manifest, sequence=next_sequence(store, latest), gate=figures)
            shown = store.reveal(assembled, folder, MANIFEST_FILE, manifest.to_text().encode(), shown)
            if is_stored:
                check_files()
        except UserError:
            if shown is not None and not _is_named(store, manifest.version):
                store.hide(folder, MANIFEST_FILE, shown)
            raise
        if latest is not None:
            if breaches:
                return put_up(latest, manifest.version, judgement)
            latest = replaced(latest, manifest.version)
        return latest_file.moved(latest, manifest.version, manifest.sequence)

    if manifest.trial:
        with store.locked():
            reveal(latest_file.read(store))
    else:
        latest_file.compare_and_swap(store, reveal)
    return manifest


def _check_whole(store: Store, manifest: Manifest) -> None:
    """Checks that a version has all its files. Raises: OutputError."""
    for name in _missing(store, manifest):
        raise UnsettledOutputError(f"{store.url}/{name} was removed meanwhile: run the same command again")


def next_sequence(store: Store, latest: Latest | None) -> int:
    """One more than the largest number of any version or of the pointer."""
    return 1 + max([latest.sequence if latest else 0, *(manifest.sequence for manifest in published(store))])


def make_live(output: str, version: str, judge: Judge = publishes_all) -> Latest:
    """Points `LATEST` to a version by compare-and-swap, or makes it the candidate where the judge finds breaches.

    Raises:
        OutputError: the version was removed meanwhile, or `LATEST` cannot be written.
    """
    store = open_store(output)
    judge = _judged(store, judge, version)

    def edit(latest: Latest | None) -> Latest:
        if not store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"):
            raise UnsettledOutputError(f"the version {version} was removed meanwhile: run the same command again")
        forgotten.check(store, version)
        if latest is not None and latest.version != version:
            judgement = judge(latest.version)
            if judgement.breaches:
                return put_up(latest, version, judgement)
            latest = replaced(latest, version)
        return latest_file.moved(latest, version, next_sequence(store, latest))

    return latest_file.compare_and_swap(store, edit)


def _judged(store: Store, judge: Judge, version: str = "") -> Judge:
    """Judges against the version that is live now, if it is another, before anything is locked: that takes time.

    The judge that it gives remembers its judgements, and judges again where another version is live by then.
    """
    remembering = functools.cache(judge)
    latest = latest_file.read(store)
    if latest is not None and latest.version != version:
        remembering(latest.version)
    return remembering


def take_back(output: str, live: str) -> None:
    """Takes the waiting candidate back, since the inputs are those of the live version again.

    Raises:
        OutputError: `LATEST` cannot be written.
    """
    latest = latest_file.read(open_store(output))
    if latest is not None and latest.candidate is not None:

        def edit(latest: Latest | None) -> Latest:
            if latest is None:
                raise UnsettledOutputError(f"the version {live} was removed meanwhile: run the same command again")
            return replaced(latest, live) if latest.version == live else latest

        latest_file.compare_and_swap(open_store(output), edit)


def remember_same(output: str, version: str, key: str) -> None:
    """Notes that the inputs of a source key come to the live version, as long as that is this one.

    Raises:
        OutputError: `LATEST` cannot be written.
    """

    def edit(latest: Latest | None) -> Latest:
        if latest is None:
            raise UnsettledOutputError(f"the version {version} was removed meanwhile: run the same command again")
        if latest.version != version or key in latest.same:
            return latest
        return replace(latest, same=(*latest.same, key)[-MOST_SAME:])

    latest_file.compare_and_swap(open_store(output), edit)


def uploads(store: Store) -> dict[str, str]:
    """The versions that are being uploaded, or whose upload was cut off, each with its uploader's lease name."""
    claims = {}
    for version in store.children(VERSIONS_FOLDER):
        with suppress(DatasetError):  # no version's name
            claim = store.read(f"{VERSIONS_FOLDER}/{version}/{CLAIM_FILE}")
            if claim is not None:
                claims[version] = claimant(claim.data)
    return claims


def ownerless(store: BucketStore) -> list[str]:
    """The folders of versions with neither a manifest nor a claim.

    A dead build's worker wrote there after all was removed; or somebody copies a version, or deleted its manifest.
    """
    marks = MANIFEST_FILE, CLAIM_FILE
    versions = store.children(VERSIONS_FOLDER)
    return [name for name in versions if not any(store.exists(f"{VERSIONS_FOLDER}/{name}/{mark}") for mark in marks)]


def end_upload(store: Store, version: str, needs: Needs | None = None) -> None:
    """Ends one of `uploads`: removes the claim of a published version, or all of an unpublished one that nobody needs.

    Args:
        store: the output.
        version: its name.
        needs: the files that other versions need, where they are known.
    """
    folder = f"{VERSIONS_FOLDER}/{version}"
    if store.exists(f"{folder}/{MANIFEST_FILE}"):
        store.delete(f"{folder}/{CLAIM_FILE}")
    else:
        remove_unneeded(store, folder, needs_of(store) if needs is None else needs)
