"""Pins versions, makes one live, or removes one that the gate held back: the acts of a person on an output.

>>> approve("out")[0].version  # doctest: +SKIP
'20261121T090000Z-77d0a4b1'
"""

from collections.abc import Callable
from dataclasses import replace

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, Latest, Manifest
from recordmill.pipeline.versions import forgotten
from recordmill.pipeline.versions.latest_file import compare_and_swap, is_held_back
from recordmill.pipeline.versions.listing import HELD_BACK, find_among, open_existing
from recordmill.pipeline.versions.prune import marked, remove_marked, there
from recordmill.pipeline.versions.publishing import make_live, published
from recordmill.pipeline.versions.stores.base import OutputError, Store


def pin(output: str, wanted: str) -> Manifest:
    """Keeps a version from being pruned.

    Raises:
        DatasetError: there is no such version. OutputError: nothing is published, or it cannot be written.
    """
    return _edit_pins(output, wanted, lambda pinned, version: pinned | {version})[0]


def unpin(output: str, wanted: str) -> tuple[Manifest, bool]:
    """Lets a version be pruned again; also returns whether it was pinned. Raises: as `pin`."""
    return _edit_pins(output, wanted, lambda pinned, version: pinned - {version})


def _edit_pins(output: str, wanted: str, edited: Callable[[set[str], str], set[str]]) -> tuple[Manifest, bool]:
    """Returns the version, and whether anything changed."""
    store = open_existing(output)
    chosen: list[tuple[Manifest, bool]] = []

    def edit(latest: Latest | None) -> Latest:
        if latest is None:
            raise OutputError(
                f"nothing is live in {output}: make a version live by `recordmill versions rollback {output} VERSION`"
            )
        version = find_among(published(store), output, wanted, latest)
        pinned = tuple(sorted(edited({*latest.pinned}, version.version)))
        chosen.append((version, pinned != latest.pinned))
        return replace(latest, pinned=pinned)

    compare_and_swap(store, edit)
    return chosen[-1]


def rollback(output: str, wanted: str | None = None) -> tuple[Manifest, str | None]:
    """Makes another version live by moving the pointer; mends a broken `LATEST`.

    Args:
        output: the dataset's output.
        wanted: the version, as `listing.find` takes it; by default the one published before the live one.

    Returns:
        The version that is live now, and the name of the one that was; None if none was.

    Raises:
        DatasetError: there is no such version, none before the live one, or it is a trial.
        OutputError: the output cannot be written.
    """
    store = open_existing(output)
    return make_live(store, lambda latest: find_among(published(store), output, wanted or "-1", latest), mend=True)


def approve(output: str, wanted: str | None = None) -> tuple[Manifest, str | None]:
    """Makes a version live that the gate held back.

    Args:
        output: the dataset's output.
        wanted: the version, as `listing.find` takes it: goes live even if another version became live since the gate
            compared them; by default the newest.

    Returns:
        The version that is live now, and the name of the one that was.

    Raises:
        OutputError: no version is held back, it was removed, another version became live meanwhile, or rows of it
            were forgotten.
        DatasetError: there is no such version.
    """
    store = open_existing(output)

    def choose(latest: Latest | None) -> Manifest:
        chosen = _held_back(store, latest, wanted)
        live = latest and latest.version
        if wanted is None and chosen.gate["live"] != live:
            raise OutputError(
                f"{chosen.version} was compared with {chosen.gate['live']}, and {live} is live now: the same build "
                f"again compares them; `recordmill versions approve {output} {chosen.version}` makes it live anyway"
            )
        forgotten.check(store, chosen.version)
        return chosen

    return make_live(store, choose)


def reject(output: str, wanted: str | None = None) -> tuple[Manifest, bool]:
    """Removes a version that the gate held back, unless it is pinned or a program reads it.

    Returns:
        The version, and whether it was removed.

    Raises:
        OutputError: no version is held back, or the named one is not. DatasetError: there is no such version.
    """
    store = open_existing(output)
    rejected: list[Manifest] = []

    def edit(latest: Latest | None) -> Latest:
        rejected.append(_held_back(store, latest, wanted))
        return marked(there(latest), [rejected[-1].version])

    compare_and_swap(store, edit)
    remove_marked(output)
    return rejected[-1], not store.exists(f"{VERSIONS_FOLDER}/{rejected[-1].version}/{MANIFEST_FILE}")


def _held_back(store: Store, latest: Latest | None, wanted: str | None) -> Manifest:
    manifests = published(store)
    if wanted is None and not (manifests and is_held_back(latest, manifests[-1])):
        live = f"; {latest.version} is live" if latest else ""
        raise OutputError(f"no version is held back in {store.url}{live}")
    chosen = find_among(manifests, store.url, wanted or HELD_BACK, latest)
    if not is_held_back(latest, chosen):
        raise OutputError(
            f"{chosen.version} is not held back in {store.url}: `recordmill versions rollback` makes it live"
        )
    return chosen
