"""Lists the versions of an output, finds the one that a person names, pins it, holds it, or makes it live.

>>> for version in list_versions("out"):  # doctest: +SKIP
...     print(version.manifest.sequence, version.manifest.version, version.is_live)
1 20261120T120000Z-4f1c9a2e False
2 20261121T090000Z-77d0a4b1 True
"""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from recordmill.pipeline.dataset.manifest import (
    MANIFEST_FILE,
    VERSIONS_FOLDER,
    DatasetError,
    Latest,
    Manifest,
    which_versions,
)
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.versions import latest_file, leases
from recordmill.pipeline.versions.latest_file import compare_and_swap
from recordmill.pipeline.versions.leases import Holder
from recordmill.pipeline.versions.publishing import next_sequence, published
from recordmill.pipeline.versions.stores.base import OutputError, Store
from recordmill.pipeline.versions.stores.open_store import open_location, open_store

LIVE, CANDIDATE, TRIAL = "live", "candidate", "trial"
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
    is_candidate: bool = False
    """Whether it waits for `recordmill versions approve`."""


def list_versions(output: str) -> list[Version]:
    """Lists the versions of an output in the order of publishing; an output without any gives an empty list.

    Raises:
        DatasetError: there is no such folder.
        OutputError: the output cannot be read, or `LATEST` is broken.
    """
    store = open_existing(output)
    latest = latest_file.read(store) or Latest("", 0)
    held = {name: holder for name, holder in leases.holders(store).items() if not holder.is_dead()}
    return [
        Version(
            manifest,
            manifest.version == latest.version,
            manifest.version in latest.pinned,
            tuple(holder for name, holder in held.items() if holds(name, manifest.version)),
            latest.retired.get(manifest.version),
            latest.candidate is not None and manifest.version == latest.candidate.version,
        )
        for manifest in published(store)
    ]


def open_existing(output: str) -> Store:
    """Opens the store of an output that is there. Raises: DatasetError if it is not."""
    if not open_location(output).is_dir():
        raise DatasetError(f"there is no folder {output}")
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
        latest = latest_file.read(store)  # after the lease is taken: a prune marks first, and then reads the leases
        is_going = latest is not None and version in latest.removing
        if is_going or not store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"):
            raise DatasetError(f"the version {version} was removed from {output}: open the dataset again")
        yield


def find(output: str, wanted: str) -> Manifest:
    """Finds the version that a person names.

    Args:
        output: the dataset's output.
        wanted: its name; its number (`3` or `#3`); a beginning or end that no other name shares; `live`; `candidate`;
            `trial`, the newest; or `-1`, the version published before the live one, `-2` the one before that.

    Raises:
        DatasetError: no version fits, or several do; the message names them. OutputError: `LATEST` is broken.
    """
    store = open_existing(output)
    latest = latest_file.read(store) if wanted in (LIVE, CANDIDATE) or BEFORE.fullmatch(wanted) else None
    return _find(published(store), output, wanted, latest)


def _find(manifests: list[Manifest], output: str, wanted: str, latest: Latest | None) -> Manifest:
    if wanted == CANDIDATE:
        if latest is None or latest.candidate is None:
            raise DatasetError(f"no candidate waits in {output}; {_known(manifests)}")
        wanted = latest.candidate.version
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


def pin(output: str, wanted: str) -> Manifest:
    """Keeps a version from being pruned.

    Raises:
        DatasetError: there is no such version. OutputError: nothing is published, or it cannot be written.
    """
    return _edit_pins(output, wanted, lambda pinned, version: pinned | {version})[0]


def unpin(output: str, wanted: str) -> tuple[Manifest, bool]:
    """Lets a version be pruned again; gives whether it was pinned, too. Raises: as `pin`."""
    return _edit_pins(output, wanted, lambda pinned, version: pinned - {version})


def _edit_pins(output: str, wanted: str, edited: Callable[[set[str], str], set[str]]) -> tuple[Manifest, bool]:
    """Gives the version, and whether anything changed."""
    store = open_existing(output)
    chosen: list[tuple[Manifest, bool]] = []

    def edit(latest: Latest | None) -> Latest:
        if latest is None:
            raise OutputError(
                f"nothing is live in {output}: make a version live by `recordmill versions rollback {output} VERSION`"
            )
        version = _find(published(store), output, wanted, latest)
        pinned = tuple(sorted(edited({*latest.pinned}, version.version)))
        chosen.append((version, pinned != latest.pinned))
        return replace(latest, pinned=pinned)

    compare_and_swap(store, edit)
    return chosen[-1]


def rollback(output: str, wanted: str | None = None) -> tuple[Manifest, str | None]:
    """Makes another version live by moving the pointer; mends a broken `LATEST`.

    Args:
        output: the dataset's output.
        wanted: the version, as `find` takes it; by default the one published before the live one.

    Returns:
        The manifest of the version that is live now, and the name of the one that was; None if none was.

    Raises:
        DatasetError: there is no such version, or none before the live one. OutputError: it cannot be written.
    """
    store = open_existing(output)
    steps: list[tuple[Manifest, str | None]] = []

    def edit(latest: Latest | None) -> Latest:
        manifests = published(store)
        chosen = _find(manifests, output, wanted or "-1", latest)
        if chosen.trial:
            raise DatasetError(f"{chosen.version} is a trial of about {chosen.trial:,} rows, and is never made live")
        steps.append((chosen, latest.version if latest else None))
        if latest is not None and latest.version == chosen.version:
            return latest
        return latest_file.moved(latest, chosen.version, next_sequence(store, latest))

    compare_and_swap(store, edit, mend=True)
    return steps[-1]


def pair(output: str, before: str | None = None, after: str | None = None) -> tuple[Manifest, Manifest]:
    """Finds two versions to compare, each as `find` takes it: by default the live one, and the one before it.

    Raises:
        DatasetError: there is no such version, or none before the live one. OutputError: `LATEST` is broken.
    """
    store = open_existing(output)
    latest, manifests = latest_file.read(store), published(store)
    return _find(manifests, output, before or "-1", latest), _find(manifests, output, after or LIVE, latest)


def _never_live(latest: Latest, manifest: Manifest) -> bool:
    """Whether a version is a trial, or the gate held it back and nobody approved it."""
    return (
        bool(manifest.trial)
        or bool(manifest.gate.get("breaches"))
        and manifest.version not in {latest.version, *latest.retired}
    )


def _previous(manifests: list[Manifest], output: str, latest: Latest | None, steps: int) -> Manifest:
    """Gives the version published so many before the live one; 0 is the live one."""
    were_live = [manifest for manifest in manifests if latest is None or not _never_live(latest, manifest)]
    names = [manifest.version for manifest in were_live]
    if latest is None or latest.version not in names:
        raise DatasetError(f"{output} has no live version: give a version by its name; {_known(manifests)}")
    position = names.index(latest.version) - steps
    if position < 0:
        before = f"{steps:,} versions" if steps > 1 else "version"
        raise DatasetError(f"{output} has no {before} before {latest.version}, which is live")
    return were_live[position]
