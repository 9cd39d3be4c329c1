"""The folders that builds work in, and the versions that they began to upload: where they are, and their removal.

    OUT/.building/<the build key's first 16 digits>/run-<12 hex digits>/

Whoever holds the output's lease (`leases.BUILD`) may remove them.
"""

import hashlib
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, DatasetError
from recordmill.pipeline.dataset.paths import locate, user_cache
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions.shared_files import Needs, needs_of, remove_unneeded
from recordmill.pipeline.versions.stores.base import CLAIM_FILE, OutputError, Store
from recordmill.pipeline.versions.stores.bucket import claimant
from recordmill.pipeline.versions.stores.open_store import open_store

BUILDING_FOLDER = ".building"
RUN, REMOVED = "run-", "gone-"
"""The first letters of the names of an attempt's folder, and of one that is being removed."""
PLAN_FILE = "reports/plan.json"
"""The file that makes a folder an attempt: written when the others are there, and deleted before them."""


def building_folder(output: str, work: str | None = None) -> str:
    """The folder of all builds for an output: beside its versions; for a URL in a local folder, by default a cache.

    Raises:
        UserError: `work` is given, and the output is local; or the folder is a link out of the output.
    """
    if "://" not in output:
        if work is not None:
            raise UserError(f"--work is for outputs at a URL: a build for {output} works in {output}/{BUILDING_FOLDER}")
        return locate(os.path.abspath(output), BUILDING_FOLDER)
    folder = os.path.abspath(work or user_cache())
    return os.path.join(folder, hashlib.sha256(output.encode()).hexdigest()[:16], BUILDING_FOLDER)


def builds(building: str) -> dict[str, Path]:
    """The folders of builds by their names, the first 16 digits of their keys."""
    return {folder.name: folder for folder in subfolders(Path(building))}


def runs(build: Path) -> list[Path]:
    """The folders of a build's attempts, by name."""
    return [folder for folder in subfolders(build) if folder.name.startswith(RUN)]


def remove_build(build: Path) -> None:
    """Removes all attempts at a build, and the folders around them that are empty then."""
    for folder in subfolders(build):
        if folder.name.startswith((RUN, REMOVED)):
            remove_run(folder)
    _remove_empty(build)


def remove_run(folder: str | Path) -> None:
    """Removes an attempt's folder, and those around it that are empty then.

    It is renamed first: nobody takes over a folder that is half removed.
    """
    removed = Path(folder).with_name(f"{REMOVED}{uuid.uuid4().hex[:12]}")
    with suppress(OSError):
        os.rename(folder, removed)
        shutil.rmtree(removed, ignore_errors=True)
    _remove_empty(removed.parent)


def remove_stored_build(store: Store, folder: str) -> None:
    """Removes all attempts at a build in a bucket; one that is half removed is no attempt any more."""
    for name in store.children(folder):
        store.remove(f"{folder}/{name}", PLAN_FILE)


def _remove_empty(build: Path) -> None:
    with suppress(OSError):  # another attempt, or another build, is at work
        os.rmdir(build)
        os.rmdir(build.parent)


def entries(folder: Path) -> list[Path]:
    """The entries of a folder; none where it is a link, which leads to somebody else's files."""
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, without links."""
    return [entry for entry in entries(folder) if entry.is_dir() and not entry.is_symlink()]


def uploads(store: Store) -> dict[str, str]:
    """Returns the versions whose upload goes on or was cut off, each with the first 16 digits of its build's key."""
    claims = {}
    for version in store.children(VERSIONS_FOLDER):
        with suppress(DatasetError):  # no version's name
            claim = store.read(f"{VERSIONS_FOLDER}/{version}/{CLAIM_FILE}")
            if claim is not None:
                claims[version] = claimant(claim)
    return claims


def ownerless(store: Store) -> list[str]:
    """The folders of versions with neither a manifest nor a claim.

    A dead build's worker wrote there after all was removed; or somebody copies a version, or deleted its manifest.
    """
    marks = MANIFEST_FILE, CLAIM_FILE
    versions = store.children(VERSIONS_FOLDER)
    return [name for name in versions if not any(store.exists(f"{VERSIONS_FOLDER}/{name}/{mark}") for mark in marks)]


def end_upload(store: Store, version: str, needs: Needs | None = None) -> None:
    """Ends one of `uploads`: removes the claim of a published version, or an unpublished one that nobody needs."""
    folder = f"{VERSIONS_FOLDER}/{version}"
    if store.exists(f"{folder}/{MANIFEST_FILE}"):
        store.delete(f"{folder}/{CLAIM_FILE}")
    else:
        remove_unneeded(store, folder, needs_of(store) if needs is None else needs)


def end_uploads(output: str, build_key: str) -> None:
    """Ends the uploads of a build, of this process and of its dead predecessors; holds the output's lease."""
    store = open_store(output)
    with suppress(OutputError):  # the next build removes what this leaves
        for upload, holder in uploads(store).items():
            if holder == build_key[:16]:
                end_upload(store, upload)
