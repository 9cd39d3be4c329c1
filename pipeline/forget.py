"""`recordmill versions forget`: removes rows from the live version, and lists them for all later builds.

The list is written first: from then on every build skips these rows, and a running build is refused when it publishes.
After its end the live version is published without the rows. Only the shards with them, and files that show rows or
counts, are rewritten. What all rows taught (statistics, vocabularies, the graph, summaries, profile, duplicates) stays
unchanged; `provenance.forgotten.learned_of` names its version.
"""

import hashlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from recordmill.pipeline.dataset.file_names import REJECTED, REPORT, allow, inner_paths, renamed, shard_file, span_file
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Manifest, Shard, Span, Split, version_folder
from recordmill.pipeline.dataset.manifest_parts import PackFile
from recordmill.pipeline.dataset.paths import attempt_name, locate, path_within, read_checked
from recordmill.pipeline.dataset.placement import as_key, digest
from recordmill.pipeline.dataset.tfrecord import FRAME_BYTES, PackIndex, ShardWriter
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.facts.sidecars import SIDECARS, with_sidecars
from recordmill.pipeline.json_values import check_types
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.wire import content_of
from recordmill.pipeline.rows import (
    Rejected,
    StoredRow,
    copy_without,
    find_digests,
    has_keys,
    open_records,
    without_rejects,
)
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.base import (
    FORGOTTEN,
    LEARNED_OF,
    Base,
    Forgotten,
    add_forgotten,
    latest_of,
    places,
    source_key_of,
)
from recordmill.pipeline.versions.build_folders import RUN, building_folder, remove_run
from recordmill.pipeline.versions.files import KeptFiles, inventory
from recordmill.pipeline.versions.history import Entry, recorded
from recordmill.pipeline.versions.leases import Lease, OnWait
from recordmill.pipeline.versions.listing import held, open_existing
from recordmill.pipeline.versions.prune import remove_superseded
from recordmill.pipeline.versions.stores.base import OutputError, Store
from recordmill.pipeline.versions.stores.open_store import open_location
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import Ragged, stored_features

Keys: TypeAlias = str | bytes | Collection[str | bytes]


class PackedError(UserError):
    """Records hold several rows each, so rows cannot be removed; the keys are on the list."""


@dataclass(frozen=True)
class Forgot:
    """The outcome of `forget`."""

    manifest: Manifest  # the live version, without the keys
    is_new: bool  # whether this call published it
    rows: int = 0  # the removed records
    rejects: int = 0  # the removed rejects
    unknown: tuple[bytes, ...] = ()  # the given keys with neither
    held_by: dict[str, int] = field(default_factory=dict)
    """Other versions with forgotten rows, and their number of such records; -1 if unknown."""
    broken: tuple[str, ...] = ()  # versions with unreadable manifests, which may hold such rows; prunes keep them


def forget(output: str | Path, keys: Keys = (), on_wait: OnWait = lambda _: None, reason: str = "") -> Forgot:
    """Removes rows from the live version, and keeps them out of later ones: `forget("out/emoji", "cats/17.jpg")`.

    Takes a key or several; without keys, removes the listed rows, which a rollback may have brought back. Waits for a
    running build, passed to `on_wait`. The history records the reason but not the keys. Raises: PackedError: the
    records hold several rows each; the next build skips the rows. DatasetError: a file of the live version is damaged.
    OutputError: the output has no live version (then the list is unchanged), cannot be written, or changed.
    """
    check_types(locals(), forget.__annotations__)
    several = [keys] if isinstance(keys, str | bytes) else keys
    given = {*map(as_key, several)}
    store = open_existing(output := str(output))
    if latest_of(store) is None:
        raise OutputError(f"{output} has no live version to forget rows of: the list was not written")
    with recorded(output, "forget", reason) as changes:
        base = Base.read(output)
        listed = add_forgotten(store, given, places(base.live))
        changes["keys"] = len(listed.keys) - len(base.forgotten.keys)
        with leases.hold(store, leases.BUILD, on_wait) as lease:
            return _forget(store, Base.read(output), lease, sorted(given), changes)


def versions_with(output: str, gone: Forgotten, but: Collection[str] = (), only: str | None = None) -> dict[str, int]:
    """Counts the forgotten records of each version with any, or of `only` one; -1 for packed texts or damage."""
    store, counts = open_existing(output), dict[str, int]()
    for manifest in publishing.published(store):
        if manifest.version in but or only not in (None, manifest.version):
            continue
        if not gone.keys or gone.are_left_out_of(manifest):
            continue
        folder = version_folder(open_location(output), manifest.version)
        try:
            allowed = allow(manifest, folder)
            named = gone.named_in(manifest)
            rows = sum(1 for _ in find_digests(folder, allowed, named.digests)) if has_keys(manifest) else -1
            if rows or without_rejects(folder, manifest, named).removed:
                counts[manifest.version] = rows
        except (DatasetError, OSError):
            counts[manifest.version] = -1
    return counts


def _forget(store: Store, base: Base, lease: Lease, keys: Sequence[bytes], changes: Entry) -> Forgot:
    output, live, gone = base.output, base.live, base.forgotten
    if live is None:
        why = f"the live version is damaged: {base.fault}" if base.fault else f"{output} has no live version"
        raise OutputError(f"{why}: the keys are on the list, and later builds skip them")
    with held(output, live.version):
        if not base.holds_forgotten_rows:
            return _with_others(Forgot(live, is_new=False), output, gone)
        if not has_keys(live):
            prune = f"`recordmill versions prune {output} --purge`"
            remedy = f"run `recordmill build`, which skips the rows, and then {prune}"
            several = f"the records of {live.version} hold several rows each, which cannot be separated"
            raise PackedError(f"{several}: the keys are on the list; {remedy}")
        named = gone.named_in(live)
        rows = list(find_digests(base.folder, allow(live, base.folder), named.digests))
        rejects = without_rejects(base.folder, live, named)
        if live.adopted:
            gone = add_forgotten(store, [content_of(row.data) for row in rows])
            base = replace(base, forgotten=gone)
        manifest = _Removal(store, output, live, gone, rows, rejects).publish(base, lease)
        moved = {"version": manifest.version, "live_before": base.version, "live_after": manifest.version}
        changes |= {"records": len(rows), **moved}
    known = {digest(row.key) for row in rows} | rejects.digests
    unknown = tuple(key for key in keys if digest(key) not in known)
    remove_superseded(output)  # a version that waited may hold these rows
    return _with_others(Forgot(manifest, True, len(rows), rejects.removed, unknown), output, gone)


def _with_others(done: Forgot, output: str, gone: Forgotten) -> Forgot:
    """Adds the other versions with forgotten rows, certain or possible."""
    others = versions_with(output, gone, {done.manifest.version})
    return replace(done, held_by=others, broken=tuple(publishing.broken(open_existing(output))))


@dataclass(frozen=True)
class _Removal:
    """Republishes a version without some rows."""

    store: Store
    output: str
    base: Manifest
    gone: Forgotten
    rows: Sequence[StoredRow]
    rejects: Rejected

    @property
    def folder(self) -> str:
        return str(version_folder(open_location(self.output), self.base.version))

    def publish(self, base: Base, lease: Lease) -> Manifest:
        """Assembles the version and makes it live without the gate: it has no new rows."""
        key = self.gone.rows_key(self.base.build_key)
        run = Path(locate(building_folder(self.output), key[:16]), f"{RUN}{uuid.uuid4().hex[:12]}")
        try:
            manifest = self._assemble(run / "version", publishing.version_name(key), key)
            return publishing.publish(base, str(run / "version"), manifest, lease, live=True)
        finally:
            remove_run(run)

    def _assemble(self, assembled: Path, version: str, key: str) -> Manifest:
        assembled.mkdir(parents=True)
        self.store.claim(f"{VERSIONS_FOLDER}/{version}", attempt_name(key[:16]).encode())
        base, kept = self.base, KeptFiles(self.output, self.base, str(assembled), version)
        splits = {name: self._split(kept, name) for name in base.splits}
        indexes = (path for shard in base.shards if shard.root is None for path in shard.paths[1:])
        stale = [span_file(span, name) for span in self._touched for name in (REPORT, REJECTED)]
        rewritten = {*indexes, *SIDECARS, *self.rejects.files, *stale, *kept.entries}
        kept.files([path for path in base.files if path not in rewritten])
        for path, data in self.rejects.files.items():
            path_within(assembled, path).write_bytes(data)
        own = [shard.file for split in splits.values() for shard in split.shards if shard.version is None]
        lost, sources, source_key = self._count(self.rows), base.sources, source_key_of(base)
        if len(sources) == 1:  # else the rows' origins are unknown
            sources = (_with_forgotten(sources[0], lost, self.rejects.removed),)
        learned_of = (base.provenance.get(FORGOTTEN) or {}).get(LEARNED_OF, base.version)
        provenance = {"source_key": self.gone.rows_key(source_key), FORGOTTEN: self.gone.entry(source_key, learned_of)}
        manifest = replace(
            base,
            version=version,
            build_key=key,
            gate={**base.gate, "breaches": []} if base.gate else {},
            splits=splits,
            rows=_with_forgotten(base.rows, lost, self.rejects.removed),
            sources=sources,
            spans={name: self._span(name, span) for name, span in base.spans.items()},
            rejects=self.rejects.entry,
            provenance={**base.provenance, **provenance},
            files=inventory(str(assembled), own, kept.entries),
        )
        return with_sidecars(manifest, assembled, self.output)

    def _split(self, kept: KeptFiles, name: str) -> Split:
        """Rewrites a split's shards with rows to remove, and keeps the others."""
        split, shards, labels = self.base.splits[name], list[Shard](), Counter[int]()
        removed = defaultdict[str, list[int]](list)
        for row in self.rows:
            if row.split == name:
                removed[inner_paths(row.shard)[0]].append(row.record)
        for number, shard in enumerate(split.shards):
            own = renamed(shard, self.base.name, name, number, len(split.shards))
            if (path := inner_paths(shard)[0]) not in removed:
                shards.append(shard if shard.root else kept.shard(shard, own))
                continue
            if shard.root is not None:
                rows = [row for row in self.rows if row.split == name and inner_paths(row.shard)[0] == path]
                shards.append(self._without(kept, name, number, shard, rows))
                labels.update(_labels(self.base, [row.data for row in rows]))
                continue
            whole, create = np.zeros(1, np.int64), kept.made.create  # one block, read in one request
            with open_records(self.folder, shard, whole) as records, ShardWriter(own.file, own.index, create) as writer:
                data = copy_without(records, writer, removed[path])
            labels.update(_labels(self.base, data))
            packs = self._packs(kept, shard, own, removed[path], data)
            figures = writer.bytes, writer.records, writer.sha256
            shards.append(Shard(own.file, *figures, own.index, shard.span, packs=packs))
            kept.entries[own.index] = writer.index_entry()
        counts = split.label_counts
        left = None if counts is None else tuple(count - labels[id_] for id_, count in enumerate(counts))
        gone = self._count(row for row in self.rows if row.split == name)
        counted = None if split.source_rows is None else split.source_rows - gone
        return replace(split, shards=tuple(shards), label_counts=left, source_rows=counted)

    def _count(self, records: Iterable[StoredRow]) -> int:
        """Counts the rows of records: those of one key in a shard are windows of a row."""
        if all(split.source_rows is None for split in self.base.splits.values()):
            return sum(1 for _ in records)
        return len({(row.split, inner_paths(row.shard)[0], row.key) for row in records})

    def _packs(
        self, kept: KeptFiles, shard: Shard, own: Shard, removed: Sequence[int], data: Sequence[bytes]
    ) -> tuple[PackFile, ...]:
        """Leaves records out of a shard's packed rows, which keep their other records."""
        folder = version_folder(open_location(self.output), shard.version or self.base.version)
        packs, stored = list[PackFile](), stored_features(read_descriptions(self.base.features))
        for pack, before, named in zip(self.base.packs, shard.packs, own.packs, strict=False):
            index = PackIndex.of_bytes(read_checked(folder, before.file, before.sha256), before)
            index = index.without(removed, shard.records)
            ids: Any = parse(data, {pack.features[0]: stored[pack.features[0]]})[pack.features[0]]
            cut, empty = pack.lost(ids.lengths())
            made = index.describe(before.length, named.file, before.cut - cut, before.empty - empty)
            kept.made.write(made.file, index.to_bytes())
            kept.entries[made.file] = {"bytes": made.bytes, "sha256": made.sha256}
            packs.append(made)
        return tuple(packs)

    def _without(self, kept: KeptFiles, split: str, number: int, shard: Shard, rows: Sequence[StoredRow]) -> Shard:
        """Leaves records of an adopted file out of its split."""
        left = np.delete(np.arange(shard.records), [row.record for row in rows])
        with open_records(self.folder, rows[0].shard) as records:
            bits, size = records.bits_of(left), int(records.sizes(left).sum()) + len(left) * FRAME_BYTES
        path = shard_file(self.base.name, split, "kept", number, len(self.base.splits[split].shards))
        kept.made.write(path, bits)
        kept.entries[path] = {"bytes": len(bits), "sha256": hashlib.sha256(bits).hexdigest()}
        return replace(shard, records=len(left), kept=path, kept_bytes=size)

    @cached_property
    def _touched(self) -> set[str]:
        """The spans with forgotten rows: their reports are outdated, so the next build reads the spans."""
        return {row.shard.span for row in self.rows if row.shard.span is not None} | {*self.rejects.by_span}

    def _span(self, name: str, span: Span) -> Span:
        if name not in self._touched:
            return span
        written = self._count(row for row in self.rows if row.shard.span == name)
        rows = _with_forgotten(span.rows, written, self.rejects.by_span[name])
        return replace(span, key=self.gone.rows_key(span.key), rows=rows, members={})


def _labels(manifest: Manifest, records: Sequence[bytes]) -> Iterator[int]:
    """Yields the records' label ids if the manifest counts them."""
    label = manifest.label
    stored = {} if label is None else stored_features(read_descriptions({label: manifest.features[label]}))
    if label is not None and stored[label].dtype == "int64":
        column = parse(records, {label: stored[label]})[label]
        yield from np.asarray(column.values if isinstance(column, Ragged) else column).ravel().tolist()


def _with_forgotten(counts: Mapping[str, Any], written: int, rejected: int) -> dict[str, Any]:
    """Counts written and rejected rows as forgotten."""
    if not counts:
        return dict(counts)
    moved = {name: counts.get(name, 0) - less for name, less in (("written", written), ("rejected", rejected))}
    return {**counts, **moved, "forgotten": counts.get("forgotten", 0) + written + rejected}
