"""The folders of builds and the unfinished uploads of versions: their places and their removal.

    OUT/.building/<the build key's first 16 digits>/run-<12 hex digits>/

The holder of the output's lease (`leases.BUILD`) may remove them.
"""

import hashlib
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, DatasetError
from recordmill.pipeline.dataset.paths import locate, user_cache
from recordmill.pipeline.errors import UserError, check_utf8
from recordmill.pipeline.versions.files import Needs, needs_of, remove_unneeded
from recordmill.pipeline.versions.stores.base import CLAIM_FILE, OutputError, Store
from recordmill.pipeline.versions.stores.bucket import claimant
from recordmill.pipeline.versions.stores.open_store import open_store

BUILDING_FOLDER = ".building"
RUN, REMOVED = "run-", "gone-"  # prefixes of an attempt's folder, and of one under removal
PLAN_FILE = "reports/plan.json"  # marks a folder as an attempt: written last and deleted first


def building_folder(output: str, work: str | None = None) -> str:
    """Returns the folder of an output's builds: inside a local output; for a URL in `work`, by default a cache.

    Raises: UserError: `work` is given for a local output; the folder is a link out of the output, or not UTF-8.
    """
    check_utf8(output)
    if "://" not in output:
        if work is not None:
            raise UserError(f"--work is for outputs at a URL: a build for {output} uses {output}/{BUILDING_FOLDER}")
        return locate(check_utf8(os.path.abspath(output)), BUILDING_FOLDER)
    folder = check_utf8(os.path.abspath(work or user_cache()))
    return os.path.join(folder, hashlib.sha256(output.encode()).hexdigest()[:16], BUILDING_FOLDER)


def builds(building: str) -> dict[str, Path]:
    """Returns the folders of builds by name, the first 16 digits of the build key."""
    return {folder.name: folder for folder in subfolders(Path(building))}


def runs(build: Path) -> list[Path]:
    """Returns the folders of a build's attempts, sorted by name."""
    return [folder for folder in subfolders(build) if folder.name.startswith(RUN)]


def remove_build(build: Path) -> None:
    """Removes all attempts at a build, and parent folders left empty."""
    for folder in subfolders(build):
        if folder.name.startswith((RUN, REMOVED)):
            remove_run(folder)
    _remove_empty(build)


def remove_run(folder: str | Path) -> None:
    """Removes an attempt's folder, and parent folders left empty; renames it first, so nobody resumes half of it."""
    removed = Path(folder).with_name(f"{REMOVED}{uuid.uuid4().hex[:12]}")
    with suppress(OSError):
        os.rename(folder, removed)
        shutil.rmtree(removed, ignore_errors=True)
    _remove_empty(removed.parent)


def remove_stored_build(store: Store, folder: str) -> None:
    """Removes all attempts at a build in a bucket, each starting with the file that marks it."""
    for name in store.children(folder):
        store.remove(f"{folder}/{name}", PLAN_FILE)


def _remove_empty(build: Path) -> None:
    with suppress(OSError):  # another attempt or build uses it
        os.rmdir(build)
        os.rmdir(build.parent)


def entries(folder: Path) -> list[Path]:
    """Lists a folder's entries; ignores a link, which may lead to other people's files."""
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def subfolders(folder: Path) -> list[Path]:
    """Lists the folders in a folder, without links."""
    return [entry for entry in entries(folder) if entry.is_dir() and not entry.is_symlink()]


def uploads(store: Store) -> dict[str, str]:
    """Maps the versions with unfinished uploads to the first 16 digits of their build keys."""
    claims = {}
    for version in store.children(VERSIONS_FOLDER):
        with suppress(DatasetError):  # not a version's name
            claim = store.read(f"{VERSIONS_FOLDER}/{version}/{CLAIM_FILE}")
            if claim is not None:
                claims[version] = claimant(claim)
    return claims


def ownerless(store: Store) -> list[str]:
    """Names the versions with neither manifest nor claim: a dead build's late files, or a person's copy."""
    marks = MANIFEST_FILE, CLAIM_FILE
    versions = store.children(VERSIONS_FOLDER)
    return [name for name in versions if not any(store.exists(f"{VERSIONS_FOLDER}/{name}/{mark}") for mark in marks)]


def end_upload(store: Store, version: str, needs: Needs | None = None) -> None:
    """Ends one of `uploads`: removes a published version's claim, or an unpublished version's unneeded files."""
    folder = f"{VERSIONS_FOLDER}/{version}"
    if store.exists(f"{folder}/{MANIFEST_FILE}"):
        store.delete(f"{folder}/{CLAIM_FILE}")
    else:
        remove_unneeded(store, folder, needs_of(store) if needs is None else needs)


def end_uploads(output: str, build_key: str) -> None:
    """Ends a build's uploads, by this process and its dead predecessors; the caller holds the output's lease."""
    store = open_store(output)
    with suppress(OutputError):  # the next build removes the rest
        for upload, holder in uploads(store).items():
            if holder == build_key[:16]:
                end_upload(store, upload)
