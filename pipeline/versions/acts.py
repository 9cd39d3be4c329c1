"""Manual acts on an output: pin, tag, roll back, approve and reject versions.

Each takes a `reason`, in the person's words, for the output's history (`history.recorded`).
"""

import re
from dataclasses import replace

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, Latest, Manifest
from recordmill.pipeline.versions.base import awaits_approval, compare_and_swap, read_forgotten, rolls_back
from recordmill.pipeline.versions.history import recorded
from recordmill.pipeline.versions.listing import HELD_BACK, LIVE, find_among, marked, open_existing, there
from recordmill.pipeline.versions.prune import remove_marked
from recordmill.pipeline.versions.publishing import Choose, Moved, make_live, published
from recordmill.pipeline.versions.stores.base import OutputError, Store, UnsettledOutputError

TAG = re.compile(r"[A-Za-z][\w.-]{0,99}", re.ASCII)


def pin(output: str, wanted: str, reason: str = "") -> Manifest:
    """Protects a version from prunes. Raises: DatasetError: no such version. OutputError: no live one, not writable."""
    return _edit_pins("pin", output, wanted, reason)[0]


def tag(output: str, name: str, wanted: str = LIVE, reason: str = "") -> Manifest:
    """Pins a version by a name that finds it until `unpin`. Raises: as `pin`. OutputError: no tag, or another's."""
    if name in (LIVE, HELD_BACK):
        raise OutputError(f"'{name}' is reserved for the version that is {name}: take another name")
    if not TAG.fullmatch(name):
        raise OutputError(f"'{name}' is no tag: take a letter, then letters, digits, dots, dashes and underscores")
    return _edit_pins("tag", output, wanted, reason, name)[0]


def unpin(output: str, wanted: str, reason: str = "") -> tuple[Manifest, bool]:
    """Lets prunes remove a version again, and takes its tags; also returns whether it was pinned. Raises: as `pin`."""
    return _edit_pins("unpin", output, wanted, reason)


def _edit_pins(act: str, output: str, wanted: str, reason: str, name: str = "") -> tuple[Manifest, bool]:
    """Returns the version, and whether the pins changed."""
    store = open_existing(output)
    chosen: list[tuple[Manifest, bool]] = []

    def edit(latest: Latest | None) -> Latest:
        if latest is None:
            raise OutputError(f"{output} has no live version: {rolls_back(output)}")
        version = find_among(published(store), output, wanted, latest)
        others = {*latest.pinned} - {version.version}
        if (tagged := latest.tags.get(name, version.version)) != version.version:
            raise OutputError(f"'{name}' is {tagged}: `recordmill versions unpin {output} {name}` frees the name")
        pinned = tuple(sorted(others if act == "unpin" else others | {version.version}))
        tags = {tag: of for tag, of in latest.tags.items() if act != "unpin" or of != version.version}
        tags |= {name: version.version} if name else {}
        chosen.append((version, (pinned, tags) != (latest.pinned, latest.tags)))
        return replace(latest, pinned=pinned, tags=tags)

    with recorded(output, act, reason) as changes:
        latest = compare_and_swap(store, edit)
        if chosen[-1][1]:
            changes |= {"version": chosen[-1][0].version, "pinned": latest.pinned}
    return chosen[-1]


def rollback(output: str, wanted: str | None = None, reason: str = "") -> Moved:
    """Makes another version live, by default the one published before the live one; repairs a broken `LATEST`.

    From then on, builds of the inputs left behind are held back until one is approved. `wanted` is as in
    `listing.find`. Raises: DatasetError: no such version. OutputError: it was held back: `approve`; not writable.
    """
    store = open_existing(output)

    def choose(latest: Latest | None) -> Manifest:
        chosen = find_among(published(store), output, wanted or "-1", latest)
        if latest and chosen.version not in latest.retired and awaits_approval(latest, chosen):
            approve = f"`recordmill versions approve {output} {chosen.version}`"
            raise OutputError(f"{chosen.version} was held back: {approve} makes it live")
        return chosen

    return _make_live("rollback", store, reason, choose, mend=True)


def _make_live(act: str, store: Store, reason: str, choose: Choose, *, mend: bool = False) -> Moved:
    with recorded(store.url, act, reason) as changes:
        live, before = make_live(store, choose, mend=mend)
        if live.version != before:
            changes |= {"version": live.version, "live_before": before, "live_after": live.version}
    return live, before


def approve(output: str, wanted: str | None = None, reason: str = "") -> Moved:
    """Makes a held-back or rolled-back version live, by default the newest.

    One given by `wanted` (`listing.find`) goes live even if the live version changed since the gate's comparison.
    Raises: OutputError: it is not held back, was removed, or has forgotten rows; the live one changed. DatasetError.
    """
    store = open_existing(output)

    def choose(latest: Latest | None) -> Manifest:
        chosen = _held_back(store, latest, wanted)
        live = latest and latest.version
        if wanted is None and chosen.gate.get("live", live) != live:
            remedy = f"build again to compare them, or run `recordmill versions approve {output} {chosen.version}`"
            compared = f"{chosen.version} was compared with {chosen.gate.get('live')}"
            raise OutputError(f"{compared}, but {live} is live: {remedy}")
        forgotten = read_forgotten(store)
        if forgotten.keys and not forgotten.are_left_out_of(chosen):
            since = f"keys were forgotten in {store.url} since {chosen.version} was built"
            raise UnsettledOutputError(f"{since}: build again")
        return chosen

    return _make_live("approve", store, reason, choose)


def reject(output: str, wanted: str | None = None, reason: str = "") -> Manifest:
    """Removes a held-back version. Raises: DatasetError. OutputError: none is held back; it is pinned, or in use."""
    store = open_existing(output)
    rejected: list[Manifest] = []

    def edit(latest: Latest | None) -> Latest:
        rejected.append(_held_back(store, latest, wanted))
        latest, version = there(latest), rejected[-1].version
        if version in latest.pinned:
            raise OutputError(f"{version} is pinned: first run `recordmill versions unpin {output} {version}`")
        return marked(latest, [version])

    with recorded(output, "reject", reason) as changes:
        compare_and_swap(store, edit)
        changes["version"] = rejected[-1].version
        changes["removed"] = remove_marked(output).removed
        if store.exists(f"{VERSIONS_FOLDER}/{rejected[-1].version}/{MANIFEST_FILE}"):
            changes.clear()
            raise UnsettledOutputError(
                f"{rejected[-1].version} stays: end the program that reads it, then reject again"
            )
    return rejected[-1]


def _held_back(store: Store, latest: Latest | None, wanted: str | None) -> Manifest:
    manifests = published(store)
    if wanted is None and not (manifests and awaits_approval(latest, manifests[-1])):
        live = f"; {latest.version} is live" if latest else ""
        raise OutputError(f"no version is held back in {store.url}{live}")
    chosen = find_among(manifests, store.url, wanted or HELD_BACK, latest)
    if not awaits_approval(latest, chosen):
        lists = f"see `recordmill versions list {store.url}`"
        raise OutputError(f"{chosen.version} is not held back in {store.url}: {lists}")
    return chosen
