"""Lists the versions of an output, finds the one that a person names, and holds it while a program reads it.

>>> for version in list_versions("out"):  # doctest: +SKIP
...     print(version.manifest.sequence, version.manifest.version, version.is_live)
1 20261120T120000Z-4f1c9a2e False
2 20261121T090000Z-77d0a4b1 True
"""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from recordmill.pipeline.dataset.manifest import (
    MANIFEST_FILE,
    VERSIONS_FOLDER,
    DatasetError,
    Latest,
    Manifest,
    no_folder,
    which_versions,
)
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.base import is_held_back, latest_of
from recordmill.pipeline.versions.leases import Holder
from recordmill.pipeline.versions.publishing import published
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.open_store import open_location, open_store

LIVE, HELD_BACK, TRIAL = "live", "held-back", "trial"
BEFORE = re.compile(r"-[1-9]\d{0,5}")


@dataclass(frozen=True)
class Version:
    """A published version, and its state in the output."""

    manifest: Manifest
    is_live: bool
    is_pinned: bool
    held_by: tuple[Holder, ...]
    """The holders of its leases; dead ones of other hosts may be among them."""
    retired: str | None
    """When it stopped being live, in UTC; None if it is live, or that is unknown."""
    is_held_back: bool = False
    """Whether the gate held it back, and nobody approved it since."""


def list_versions(output: str) -> list[Version]:
    """Lists the versions of an output in the order of publishing; an output without any gives an empty list.

    Raises:
        DatasetError: there is no such folder.
        OutputError: the output cannot be read, or `LATEST` is broken.
    """
    store = open_existing(output)
    latest = latest_of(store) or Latest("", 0)
    held = {name: holder for name, holder in leases.holders(store).items() if not holder.is_dead()}
    return [
        Version(
            manifest,
            manifest.version == latest.version,
            manifest.version in latest.pinned,
            tuple(holder for name, holder in held.items() if holds(name, manifest.version)),
            latest.retired.get(manifest.version),
            is_held_back(latest, manifest),
        )
        for manifest in published(store)
    ]


def open_existing(output: str) -> Store:
    """Opens the store of an output that is there. Raises: DatasetError if it is not."""
    if not open_location(output).is_dir():
        raise no_folder(output)
    return open_store(output)


def holds(lease: str, version: str) -> bool:
    """Whether a lease of this name holds a version: it has the version's name; a reader's adds `+` and a token."""
    return lease.partition("+")[0] == version


@contextmanager
def held(output: str, version: str) -> Iterator[None]:
    """Keeps a version from being pruned while a program reads it; several programs may hold one.

    Raises:
        DatasetError: it was removed. OutputError: a lease cannot be written in the output.
    """
    store = open_store(output)
    with leases.hold(store, f"{version}+{secrets.token_hex(6)}"):
        latest = latest_of(store)  # after the lease is taken: a prune marks first, and then reads the leases
        is_going = latest is not None and version in latest.removing
        if is_going or not store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"):
            raise DatasetError(f"the version {version} was removed from {output}: open the dataset again")
        yield


def find(output: str, wanted: str) -> Manifest:
    """Finds the version that a person names.

    Args:
        output: the dataset's output.
        wanted: its name; its number (`3` or `#3`); a beginning or end that no other name shares; `live`; `held-back`,
            the newest if the gate held it back; `trial`, the newest; or `-1`, the version published before the live
            one, `-2` the one before that.

    Raises:
        DatasetError: no version fits, or several do; the message names them. OutputError: `LATEST` is broken.
    """
    store = open_existing(output)
    latest = latest_of(store) if wanted in (LIVE, HELD_BACK) or BEFORE.fullmatch(wanted) else None
    return find_among(published(store), output, wanted, latest)


def find_among(manifests: list[Manifest], output: str, wanted: str, latest: Latest | None) -> Manifest:
    """Finds the version that a person names among all of an output. Arguments and errors are those of `find`."""
    if wanted == HELD_BACK:
        if not manifests or not is_held_back(latest, manifests[-1]):
            raise DatasetError(f"no version is held back in {output}; {_known(manifests)}")
        return manifests[-1]
    if wanted == TRIAL and (trials := [manifest for manifest in manifests if manifest.trial]):
        return trials[-1]
    if wanted == LIVE or BEFORE.fullmatch(wanted):
        return _previous(manifests, output, latest, int(wanted.removeprefix("-")) if wanted != LIVE else 0)
    tests: tuple[Callable[[Manifest], bool], ...] = (
        lambda manifest: manifest.version == wanted,
        lambda manifest: manifest.sequence > 0 and str(manifest.sequence) == wanted.removeprefix("#"),
        lambda manifest: bool(wanted) and (manifest.version.startswith(wanted) or manifest.version.endswith(wanted)),
    )
    for fits in tests:
        fitting = [manifest for manifest in manifests if fits(manifest)]
        if len(fitting) > 1:
            several = ", ".join(manifest.version for manifest in fitting)
            raise DatasetError(f"'{wanted}' may be any of {several}: give more of the name")
        if fitting:
            return fitting[0]
    near = did_you_mean(wanted, [manifest.version for manifest in manifests], "{}")
    raise DatasetError(f"{output} has no version '{wanted}'{near or f'; {_known(manifests)}'}")


def _known(manifests: list[Manifest]) -> str:
    return which_versions([manifest.version for manifest in manifests])


def pair(output: str, before: str | None = None, after: str | None = None) -> tuple[Manifest, Manifest]:
    """Finds two versions to compare, each as `find` takes it: by default the live one, and the one before it.

    Raises:
        DatasetError: there is no such version, or none before the live one. OutputError: `LATEST` is broken.
    """
    store = open_existing(output)
    latest, manifests = latest_of(store), published(store)
    return find_among(manifests, output, before or "-1", latest), find_among(manifests, output, after or LIVE, latest)


def _previous(manifests: list[Manifest], output: str, latest: Latest | None, steps: int) -> Manifest:
    """Returns the version published so many before the live one; 0 is the live one."""
    were_live = [manifest for manifest in manifests if not (manifest.trial or is_held_back(latest, manifest))]
    names = [manifest.version for manifest in were_live]
    if latest is None or latest.version not in names:
        raise DatasetError(f"{output} has no live version: give a version by its name; {_known(manifests)}")
    position = names.index(latest.version) - steps
    if position < 0:
        before = f"{steps:,} versions" if steps > 1 else "version"
        raise DatasetError(f"{output} has no {before} before {latest.version}, which is live")
    return were_live[position]
