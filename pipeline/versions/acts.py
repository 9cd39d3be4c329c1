"""Manual acts on an output: pin, roll back, approve, reject and materialize versions.

Each takes a `reason`, in the person's words, for the output's history (`history.recorded`).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from recordmill.pipeline.dataset.catalogues import CROISSANT, croissant
from recordmill.pipeline.dataset.file_names import inner_paths, output_sizes, renamed
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, DatasetError, Latest, Manifest, Shard
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.versions.base import awaits_approval
from recordmill.pipeline.versions.files import MATERIALIZED
from recordmill.pipeline.versions.forgotten import check_forgotten
from recordmill.pipeline.versions.history import recorded
from recordmill.pipeline.versions.latest import compare_and_swap, now, rolls_back
from recordmill.pipeline.versions.listing import HELD_BACK, LIVE, find, find_among, held, marked, open_existing, there
from recordmill.pipeline.versions.prune import remove_marked
from recordmill.pipeline.versions.publishing import Choose, Moved, make_live, published
from recordmill.pipeline.versions.stores.base import Conflict, OutputError, Store
from recordmill.pipeline.versions.stores.bucket import UPLOADS

_Move = tuple[str, int, Shard, Shard]


def pin(output: str, wanted: str, reason: str = "") -> Manifest:
    """Protects a version from prunes.

    Raises: DatasetError: the version does not exist. OutputError: the output has no live version, or cannot be written.
    """
    return _edit_pins("pin", output, wanted, reason, lambda pinned, version: pinned | {version})[0]


def unpin(output: str, wanted: str, reason: str = "") -> tuple[Manifest, bool]:
    """Lets prunes remove a version again; also returns whether it was pinned. Raises: as `pin`."""
    return _edit_pins("unpin", output, wanted, reason, lambda pinned, version: pinned - {version})


Edit = Callable[[set[str], str], set[str]]


def _edit_pins(act: str, output: str, wanted: str, reason: str, edited: Edit) -> tuple[Manifest, bool]:
    """Returns the version, and whether the pins changed."""
    store = open_existing(output)
    chosen: list[tuple[Manifest, bool]] = []

    def edit(latest: Latest | None) -> Latest:
        if latest is None:
            raise OutputError(f"{output} has no live version: {rolls_back(output)}")
        version = find_among(published(store), output, wanted, latest)
        pinned = tuple(sorted(edited({*latest.pinned}, version.version)))
        chosen.append((version, pinned != latest.pinned))
        return replace(latest, pinned=pinned)

    with recorded(output, act, reason) as changes:
        latest = compare_and_swap(store, edit)
        if chosen[-1][1]:
            changes |= {"version": chosen[-1][0].version, "pinned": latest.pinned}
    return chosen[-1]


def rollback(output: str, wanted: str | None = None, reason: str = "") -> Moved:
    """Makes another version live by moving the pointer; repairs a broken `LATEST`.

    From then on, builds of the inputs left behind are held back until one is approved. `wanted` is as in
    `listing.find`; by default the version published before the live one.

    Raises:
        DatasetError: the version does not exist or is a trial, or none precedes the live one.
        OutputError: the gate held the version back, so it needs `approve`; or the output cannot be written.
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

    A version given by `wanted` (`listing.find`) goes live even if the live version changed since the gate's comparison.

    Raises:
        OutputError: the version is not held back, was removed, or has forgotten rows; or the live version changed.
        DatasetError: the version does not exist.
    """
    store = open_existing(output)

    def choose(latest: Latest | None) -> Manifest:
        chosen = _held_back(store, latest, wanted)
        live = latest and latest.version
        if wanted is None and chosen.gate.get("live", live) != live:
            remedy = f"build again to compare them, or run `recordmill versions approve {output} {chosen.version}`"
            compared = f"{chosen.version} was compared with {chosen.gate.get('live')}"
            raise OutputError(f"{compared}, but {live} is live: {remedy}")
        check_forgotten(store, chosen.version)
        return chosen

    return _make_live("approve", store, reason, choose)


def reject(output: str, wanted: str | None = None, reason: str = "") -> tuple[Manifest, bool]:
    """Removes a held-back or rolled-back version unless it is pinned or in use; also returns whether it was removed.

    Raises: OutputError: the version is not held back. DatasetError: the version does not exist.
    """
    store = open_existing(output)
    rejected: list[Manifest] = []

    def edit(latest: Latest | None) -> Latest:
        rejected.append(_held_back(store, latest, wanted))
        return marked(there(latest), [rejected[-1].version])

    with recorded(output, "reject", reason) as changes:
        latest = compare_and_swap(store, edit)
        version = rejected[-1].version
        changes["version"] = version if version in latest.removing else None
        changes["removed"] = remove_marked(output).removed
        is_removed = not store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}")
        if not is_removed:  # in use
            changes.clear()
    return rejected[-1], is_removed


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


@dataclass(frozen=True)
class Materialized:
    """The outcome of `materialize`."""

    manifest: Manifest
    files: int  # the number of copied files (on a disk, linked); 0 for a version that was already whole
    copied_bytes: int


def materialize(output: str, wanted: str = LIVE, reason: str = "") -> Materialized:
    """Copies a version's shards from earlier versions' folders into its own; if killed, the next call continues.

    Changes only the manifest (the shards' `file`, `index` and `version`, the indexes in `files`, and
    `provenance.materialized`) and the Croissant description. Records, their order, digests and the version's name stay.
    Current readers still use the earlier folders, which a prune keeps for its grace.

    Raises:
        DatasetError: the version (`listing.find`) does not exist, or a shard is missing.
        OutputError: the output cannot be read or written.
    """
    store, version = open_existing(output), find(output, wanted).version
    name = f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"
    with recorded(output, "materialize", reason) as changes, held(output, version):
        while True:
            content = store.read_tagged(name)
            if content is None:
                raise DatasetError(f"the version {version} was removed from {output}")
            manifest = Manifest.from_json(parse_json(content.data))
            if manifest.adopted:
                remedy = "`recordmill export` or a build with `source: {format: adopted}` makes a dataset of its own"
                raise DatasetError(f"{version} names adopted files, which are never copied or changed: {remedy}")
            moves = list(_moves(manifest))
            if not moves:
                return Materialized(manifest, 0, 0)
            copied = _copy_all(store, version, moves)
            try:
                whole = _described(store, _whole(store, manifest, moves))
                store.write_if(name, whole.to_text().encode(), content.tag)
            except Conflict:  # another process did the same
                continue
            files = sum(len(own.paths) for _, _, _, own in moves)
            changes |= {"version": version, "files": files, "copied_bytes": copied}
            return Materialized(whole, files, copied)


def _moves(manifest: Manifest) -> Iterator[_Move]:
    """Yields for each shard in an earlier version's folder: split, number, and the shard before and after the move."""
    own = {shard.file for shard in manifest.shards if shard.version is None}
    for name, split in manifest.splits.items():
        for number, shard in enumerate(split.shards):
            if shard.version is not None:
                moved = renamed(shard, manifest.name, name, number, len(split.shards))
                if moved.file in own:
                    raise OutputError(f"{manifest.version} already has a file {moved.file}: build a whole version")
                yield name, number, shard, moved


def _copy_all(store: Store, version: str, moves: Sequence[_Move]) -> int:
    """Copies missing files into a version's folder; returns the number of copied bytes."""
    folder, copies = f"{VERSIONS_FOLDER}/{version}", dict[str, tuple[str, int]]()
    for _, _, shard, own in moves:
        copies |= dict(zip(own.paths, output_sizes(shard, version).items(), strict=True))
    before = store.sizes(folder)

    def copy(new: str) -> int:
        old, size = copies[new]
        if before.get(f"{folder}/{new}") == size:
            return 0
        return store.copy(old, store, f"{folder}/{new}", size).bytes

    with ThreadPoolExecutor(UPLOADS) as threads:
        copied = sum(threads.map(copy, copies))
    after = store.sizes(folder)
    for new, (old, size) in copies.items():
        if after.get(f"{folder}/{new}") != size:
            raise DatasetError(f"{old} is missing or has a wrong size: run `recordmill verify`")
    return copied


def _described(store: Store, manifest: Manifest) -> Manifest:
    """Rewrites the Croissant description, which names the shards' paths, if the version has one.

    The manifest with its digest is written next: after a kill in between, they disagree until the next call.
    Raises: Conflict: another process wrote it.
    """
    if CROISSANT not in manifest.files:
        return manifest
    name, data = f"{VERSIONS_FOLDER}/{manifest.version}/{CROISSANT}", croissant(manifest)
    before = store.read_tagged(name)
    store.write_if(name, data, before.tag if before else None)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return replace(manifest, files={**manifest.files, CROISSANT: entry})


def _whole(store: Store, manifest: Manifest, moves: Sequence[_Move]) -> Manifest:
    """Returns the manifest with all files in the version's folder."""
    shards, files = {name: list(split.shards) for name, split in manifest.splits.items()}, dict(manifest.files)
    for split, number, _, own in moves:
        for path in own.paths[1:]:
            data = store.read(f"{VERSIONS_FOLDER}/{manifest.version}/{path}")
            if data is None:
                raise DatasetError(f"{path} was removed by another process: run the same command again")
            files[path] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        shards[split][number] = own
    splits = {name: replace(split, shards=tuple(shards[name])) for name, split in manifest.splits.items()}
    made_whole = {"at": now(), "from": sorted(name for _, _, shard, _ in moves for name in inner_paths(shard))}
    provenance = {**manifest.provenance, MATERIALIZED: made_whole}
    return replace(manifest, splits=splits, files=dict(sorted(files.items())), provenance=provenance)
