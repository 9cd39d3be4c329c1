"""`recordmill versions forget`: a version without some rows, at once, and a list that every later build honours.

The list comes first: from then on every build leaves these rows out, and a build that is at work is refused as it
publishes. After its end the live version is published again without them. Only the shards that hold them are written
anew, and the files that show rows or counts. What was learned of all rows (statistics, vocabularies, the graph,
summaries, profile, duplicates) stays as it was, and `provenance.forgotten.learned_of` names the version that it was
learned of.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from recordmill.pipeline.dataset.file_names import REJECTED, REPORT, inner_paths, shard_names, span_file
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Manifest, Shard, Span, Split, version_folder
from recordmill.pipeline.dataset.paths import attempt_name, locate, path_within
from recordmill.pipeline.dataset.placement import digest
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.facts.sidecars import SIDECARS, with_sidecars
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.rows import (
    Rejected,
    StoredRow,
    copy_without,
    find_digests,
    is_sorted,
    key_digest,
    open_records,
    without_rejects,
)
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.build_folders import RUN, building_folder, remove_run
from recordmill.pipeline.versions.files import KeptFiles, inventory
from recordmill.pipeline.versions.forgotten import (
    FORGOTTEN,
    LEARNED_OF,
    Forgotten,
    add_forgotten,
    read_forgotten,
    source_key_of,
)
from recordmill.pipeline.versions.history import Entry, recorded
from recordmill.pipeline.versions.latest import latest_of
from recordmill.pipeline.versions.leases import Holder, Lease
from recordmill.pipeline.versions.listing import held, open_existing
from recordmill.pipeline.versions.prune import remove_superseded
from recordmill.pipeline.versions.shared_files import MATERIALIZED
from recordmill.pipeline.versions.stores.base import OutputError, Store
from recordmill.pipeline.versions.stores.open_store import open_location
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.stored import Ragged, stored_features


class PackedError(UserError):
    """Records hold several rows each, so a row cannot be taken out of them; the keys are on the list."""


@dataclass(frozen=True)
class Forgot:
    """The outcome of `forget`."""

    manifest: Manifest
    """The live version, which holds none of the keys."""
    is_new: bool
    """Whether it was published by this call."""
    rows: int = 0
    """The records that the version before held of forgotten keys."""
    rejects: int = 0
    """The rejected rows of forgotten keys that it listed."""
    unknown: tuple[bytes, ...] = ()
    """The given keys of which the version before held neither."""
    held_by: dict[str, int] = field(default_factory=dict)
    """Other versions that still hold forgotten rows, with their records; -1 where that cannot be known."""
    broken: tuple[str, ...] = ()
    """Versions whose manifest cannot be read, which may hold such rows; no prune removes them."""


def forget(
    output: str, keys: Collection[bytes] = (), on_wait: Callable[[Holder], None] = lambda holder: None, reason: str = ""
) -> Forgot:
    """Takes rows out of the live version, and keeps them out of later ones.

    Without keys it takes out of the live version what is on the list, as after a rollback. It waits for the process
    that builds, which it gives to `on_wait`. The history has the reason, and no keys.

    Raises:
        PackedError: the records hold several rows each; a build leaves the rows out.
        DatasetError: a file of the live version is damaged.
        OutputError: nothing is live, so nothing is written; or the output cannot be written, or changed meanwhile.
    """
    store = open_existing(output)
    if latest_of(store) is None:
        raise OutputError(f"nothing is live in {output}, so that no row can be forgotten: nothing was written")
    with recorded(output, "forget", reason) as changes:
        before = len(read_forgotten(store).keys)
        changes["keys"] = len(add_forgotten(store, keys).keys) - before
        with leases.hold(store, leases.BUILD, on_wait) as lease:
            return _forget(store, Base.read(output), lease, sorted(set(keys)), changes)


def versions_with(output: str, gone: Forgotten, but: Collection[str] = (), only: str | None = None) -> dict[str, int]:
    """Counts the forgotten records in each version that has any, or `only` one; -1: of packed texts, or damaged."""
    store, counts = open_existing(output), dict[str, int]()
    for manifest in publishing.published(store):
        if manifest.version in but or only not in (None, manifest.version):
            continue
        if not gone.keys or gone.are_left_out_of(manifest):
            continue
        folder = version_folder(open_location(output), manifest.version)
        try:
            rows = sum(1 for _ in find_digests(folder, manifest, gone.digests)) if is_sorted(manifest) else -1
            if rows or without_rejects(folder, manifest, gone).removed:
                counts[manifest.version] = rows
        except (DatasetError, OSError):
            counts[manifest.version] = -1
    return counts


def _forget(store: Store, base: Base, lease: Lease, keys: Sequence[bytes], changes: Entry) -> Forgot:
    output, live, gone = base.output, base.live, base.forgotten
    if live is None:
        why = f"the live version is damaged: {base.fault}" if base.fault else f"nothing is live in {output}"
        raise OutputError(f"{why}: the keys are on the list, and later builds leave them out")
    with held(output, live.version):
        if not base.holds_forgotten_rows:
            return _with_others(Forgot(live, is_new=False), output, gone)
        if not is_sorted(live):
            raise PackedError(
                f"the records of {live.version} hold several rows each, which cannot be taken apart: the keys are on "
                "the list, so run `recordmill build`, which leaves the rows out, and then "
                f"`recordmill versions prune {output} --purge`"
            )
        rows = list(find_digests(base.folder, live, gone.digests))
        rejects = without_rejects(base.folder, live, gone)
        manifest = _Removal(store, output, live, gone, rows, rejects).publish(base, lease)
        moved = {"version": manifest.version, "live_before": base.version, "live_after": manifest.version}
        changes |= {"records": len(rows), **moved}
    known = {key_digest(row.data) for row in rows} | rejects.digests
    unknown = tuple(key for key in keys if digest(key) not in known)
    remove_superseded(output)  # a version that waited may hold these rows
    return _with_others(Forgot(manifest, True, len(rows), rejects.removed, unknown), output, gone)


def _with_others(done: Forgot, output: str, gone: Forgotten) -> Forgot:
    """Names the other versions that hold forgotten rows, or may."""
    others = versions_with(output, gone, {done.manifest.version})
    return replace(done, held_by=others, broken=tuple(publishing.broken(open_existing(output))))


@dataclass(frozen=True)
class _Removal:
    """Publishes a version again without some rows."""

    store: Store
    output: str
    base: Manifest
    gone: Forgotten
    rows: Sequence[StoredRow]
    rejects: Rejected

    def publish(self, base: Base, lease: Lease) -> Manifest:
        """Assembles the version and makes it live, whatever the gate found of the one before: no rows are new."""
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
        kept = KeptFiles(self.output, self.base, str(assembled), version)
        splits = {name: self._split(kept, name) for name in self.base.splits}
        indexes = (shard.index for shard in self.base.shards)
        stale = [span_file(span, name) for span in self._touched for name in (REPORT, REJECTED)]
        anew = {*indexes, *SIDECARS, *self.rejects.files, *stale}
        kept.files([path for path in self.base.files if path not in anew])
        for path, data in self.rejects.files.items():
            path_within(assembled, path).write_bytes(data)
        own = [shard.file for split in splits.values() for shard in split.shards if shard.version is None]
        manifest = replace(
            self.base,
            version=version,
            build_key=key,
            gate={**self.base.gate, "breaches": []} if self.base.gate else {},
            splits=splits,
            rows=_with_forgotten(self.base.rows, len(self.rows), self.rejects.removed),
            sources=self._sources(),
            spans={name: self._span(name, span) for name, span in self.base.spans.items()},
            rejects=self.rejects.entry,
            provenance=self._provenance(),
            files=inventory(str(assembled), own, kept.entries),
        )
        return with_sidecars(manifest, assembled, self.output)

    def _split(self, kept: KeptFiles, name: str) -> Split:
        """Writes the shards of a split that hold rows to remove, and keeps the others."""
        split, shards, labels = self.base.splits[name], list[Shard](), Counter[int]()
        removed = defaultdict[str, list[int]](list)
        for row in self.rows:
            if row.split == name:
                removed[row.file].append(row.record)
        for number, shard in enumerate(split.shards):
            file, index = shard_names(self.base.name, name, number, len(split.shards))
            if (path := inner_paths(shard)[0]) not in removed:
                shards.append(kept.shard(shard, file, index))
                continue
            folder = str(version_folder(open_location(self.output), self.base.version))
            whole = np.zeros(1, np.int64)  # read in one request
            with open_records(folder, shard, whole) as records, ShardWriter(file, index, kept.made.create) as writer:
                labels.update(_labels(self.base, copy_without(records, writer, removed[path])))
            shards.append(Shard(file, writer.bytes, writer.records, writer.sha256, index, shard.span))
            kept.entries[index] = writer.index_entry()
        counts = split.label_counts
        left = None if counts is None else tuple(count - labels[id_] for id_, count in enumerate(counts))
        return replace(split, shards=tuple(shards), label_counts=left)

    @cached_property
    def _touched(self) -> set[str]:
        """The spans that held forgotten rows: their reports are of other records, so the next build reads them."""
        return {row.shard.span for row in self.rows if row.shard.span is not None} | self.rejects.spans

    def _span(self, name: str, span: Span) -> Span:
        if name not in self._touched:
            return span
        written = sum(row.shard.span == name for row in self.rows)
        rows = _with_forgotten(span.rows, written, self.rejects.by_span[name])
        return replace(span, key=self.gone.rows_key(span.key), rows=rows, members={})

    def _sources(self) -> tuple[dict[str, Any], ...]:
        """Returns the counts of the sources; where there are several, it is not known whose the rows were."""
        if len(self.base.sources) != 1:
            return self.base.sources
        (source,) = self.base.sources
        return (_with_forgotten(source, len(self.rows), self.rejects.removed),)

    def _provenance(self) -> dict[str, Any]:
        before = self.base.provenance.get(FORGOTTEN) or {}
        source_key = source_key_of(self.base)
        entry = self.gone.entry(source_key, before.get(LEARNED_OF, self.base.version))
        kept = {name: value for name, value in self.base.provenance.items() if name != MATERIALIZED}
        return {**kept, "source_key": self.gone.rows_key(source_key), FORGOTTEN: entry}


def _labels(manifest: Manifest, records: Sequence[bytes]) -> Iterator[int]:
    """Yields the label's ids in some records, where the manifest counts them."""
    label = manifest.label
    stored = {} if label is None else stored_features(read_descriptions({label: manifest.features[label]}))
    if label is not None and stored[label].dtype == "int64":
        column = parse(records, {label: stored[label]})[label]
        yield from np.asarray(column.values if isinstance(column, Ragged) else column).ravel().tolist()


def _with_forgotten(counts: Mapping[str, Any], written: int, rejected: int) -> dict[str, Any]:
    """Moves rows from those written and rejected to those forgotten."""
    if not counts:
        return dict(counts)
    moved = {name: counts.get(name, 0) - less for name, less in (("written", written), ("rejected", rejected))}
    return {**counts, **moved, "forgotten": counts.get("forgotten", 0) + written + rejected}
