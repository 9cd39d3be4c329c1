"""Changes between two versions, for people and as JSON: rows, ids, counts, figures of values, manifests.

Rows are compared by their keys: added, removed, changed, and moved between splits. Shards with the same digest and
split in both versions are skipped. Of every other record, only the key is parsed; the content is compared by length
and by the CRC-32C stored in TFRecord.
"""

import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.compare.comparison import compare
from recordmill.pipeline.compare.figures import Figure
from recordmill.pipeline.compare.versions import ComparedVersion, IdChanges, compare_ids, first_few, ids_of
from recordmill.pipeline.dataset.file_names import check_content
from recordmill.pipeline.dataset.manifest import DatasetError, Manifest, Shard
from recordmill.pipeline.dataset.placement import hash_keys
from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES
from recordmill.pipeline.dataset.version import DatasetVersion, parts_to_parse
from recordmill.pipeline.reader import parsing, remote, wire
from recordmill.pipeline.reader.local_shards import AdoptedFile, ShardFile, kept_numbers, place_key
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.kinds import read_description
from recordmill.transforms.base.stored import KEY, RowError

TOGETHER = 2048  # records parsed at once
EXAMPLES = 5  # keys shown
EXAMINED = 1_000  # changed rows with compared features
Ints = npt.NDArray[np.int64]
SHOWN = 20  # lines per section
OTHERS = ("features", "statistics", "spec", "packages")
Change = tuple[Any, Any]  # a value before and after; None if missing
Changes = dict[str, Change]  # changed values by path in the manifest, such as `image.mean.0`


@dataclass(frozen=True)
class RowChanges:
    """Counts of different rows, with some keys."""

    added: int = 0
    removed: int = 0
    changed: int = 0  # same key, other content
    moved: int = 0  # same key, other split; changed or not
    unchanged: int = 0  # same key, content and split, including skipped shards
    examples: dict[str, list[str]] = field(default_factory=dict)  # keys by `added`, `removed`, …
    features: dict[str, int] = field(default_factory=dict)  # changed rows of the first 1,000, by feature


class _RowsOfVersion(NamedTuple):
    keys: npt.NDArray[np.uint64]  # uint64 [rows, 2]: two hashes of each key
    contents: npt.NDArray[np.uint64]  # each record's CRC-32C and length; the sum of a row's windows
    splits: Ints  # each row's split, numbered among the splits of both versions
    records: Ints  # each row's first record in the shards
    shards: Sequence[Shard]  # the rows' shards, in order


def compare_rows(before: DatasetVersion, after: DatasetVersion) -> RowChanges:
    """Compares all rows, a row's windows as one; packed texts by record. Raises: DatasetError: a shard is damaged."""
    splits, shared = list(dict.fromkeys([*before.splits, *after.splits])), _digests(before) & _digests(after)
    old, new = _read(before, splits, shared), _read(after, splits, shared)
    in_old, in_new = _pairs(old, new)
    is_changed = old.contents[in_old] != new.contents[in_new]
    is_moved = old.splits[in_old] != new.splits[in_new]
    added = np.setdiff1d(np.arange(len(new.keys)), in_new, assume_unique=True)
    removed = np.setdiff1d(np.arange(len(old.keys)), in_old, assume_unique=True)
    changed, moved = np.flatnonzero(is_changed), np.flatnonzero(is_moved)
    shown = [rows[:EXAMPLES] for rows in (added, in_new[changed], in_new[moved])]
    records = _records_of(after, new, np.concatenate([*shown, in_new[changed[:EXAMINED]]]))
    earlier = _records_of(before, old, np.concatenate([removed[:EXAMPLES], in_old[changed[:EXAMINED]]]))
    examined = zip(in_old[changed[:EXAMINED]].tolist(), in_new[changed[:EXAMINED]].tolist(), strict=True)
    unread = sum(split.source_rows or split.records for split in after.manifest.splits.values()) - len(new.keys)
    unchanged = unread + int((~is_changed & ~is_moved).sum())
    examples = {"added": _keys(records, shown[0]), "removed": _keys(earlier, removed[:EXAMPLES])}
    examples |= {"changed": _keys(records, shown[1]), "moved": _keys(records, shown[2])}
    windowed = next((name for name, description in after.features.items() if description.get("window")), None)
    pairs = ((earlier[row][1], records[other][1]) for row, other in examined)
    counts = len(added), len(removed), len(changed), len(moved), unchanged
    return RowChanges(*counts, examples, _features(pairs, windowed))


def bytes_to_read(before: DatasetVersion, after: DatasetVersion) -> int:
    """Counts the bytes opened by `compare_rows`: shards of only one version."""
    shared = _digests(before) & _digests(after)
    return sum(shard.bytes for dataset in (before, after) for _, shard in _unshared(dataset, shared))


def _shards(dataset: DatasetVersion) -> Iterator[tuple[str, Shard]]:
    return ((name, shard) for name, split in dataset.manifest.splits.items() for shard in split.shards)


def _digests(dataset: DatasetVersion) -> Counter[tuple[str, str]]:
    """Counts shards by split and digest; two spans may hold equal shards."""
    return Counter((name, dataset.manifest.content_of(shard)) for name, shard in _shards(dataset))


def _unshared(dataset: DatasetVersion, shared: Counter[tuple[str, str]]) -> Iterator[tuple[str, Shard]]:
    """Yields all but the shared shards; of one repeated more often than in the other version, the later copies."""
    left = shared.copy()
    for name, shard in _shards(dataset):
        content = dataset.manifest.content_of(shard)
        if left[name, content]:
            left[name, content] -= 1
        else:
            yield name, shard


def _read(dataset: DatasetVersion, splits: Sequence[str], shared: Counter[tuple[str, str]]) -> _RowsOfVersion:
    chosen = list(_unshared(dataset, shared))
    keys, contents = [np.zeros((0, 2), np.uint64)], [np.zeros(0, np.uint64)]
    for _, shard in chosen:
        with _opened(dataset, shard) as opened:
            for start in range(0, len(opened.starts), TOGETHER):
                keys.append(np.stack(hash_keys(_keys_of(dataset.manifest, opened, start, start + TOGETHER))[:2], 1))
            data, ends = opened.data, opened.ends
            if isinstance(data, AdoptedFile):
                data, _, ends = data.gather(ends - FOOTER_BYTES, ends) if len(ends) else (b"", ends, ends)
            places = ends[:, np.newaxis] + np.arange(-FOOTER_BYTES, 0)
            footers = np.frombuffer(data, np.uint8)[places].copy().view("<u4").ravel()
            lengths = (opened.ends - opened.starts).astype(np.uint64)
            contents.append(footers.astype(np.uint64) << np.uint64(32) | lengths & np.uint64(0xFFFFFFFF))
    of_shard = np.repeat(np.arange(len(chosen)), [shard.records for _, shard in chosen])
    of_split = np.array([splits.index(name) for name, _ in chosen], np.int64)[of_shard]
    hashed, firsts = np.concatenate(keys), np.arange(len(of_shard))
    if any(split.source_rows is not None for split in dataset.manifest.splits.values()):
        # A row's windows are neighbours.
        is_first = (hashed[1:] != hashed[:-1]).any(1) | (np.diff(of_shard) != 0)
        firsts = np.flatnonzero(np.append(True, is_first)[: len(of_shard)])
    summed = np.add.reduceat(np.concatenate(contents), firsts) if len(firsts) else np.zeros(0, np.uint64)
    return _RowsOfVersion(hashed[firsts], summed, of_split[firsts], firsts, [shard for _, shard in chosen])


class _Opened(NamedTuple):
    data: Any  # a memoryview, or an AdoptedFile
    starts: Ints  # the byte of each record's header
    ends: Ints  # the byte after each record
    keys: Sequence[bytes] | None  # of adopted records that do not hold them

    def records(self, first: int, end: int) -> list[memoryview]:
        bounds = zip(self.starts[first:end].tolist(), self.ends[first:end].tolist(), strict=True)
        return [memoryview(self.data[start + HEADER_BYTES : stop - FOOTER_BYTES]) for start, stop in bounds]


@contextmanager
def _opened(dataset: DatasetVersion, shard: Shard) -> Iterator[_Opened]:
    try:
        (files, path), (indexes, index), *_ = remote.VersionFiles(dataset.folder).located(shard)
        described = ShardFile.of(str(dataset.folder), shard)
        offsets = np.frombuffer(indexes.read(index, described.sizes()[1][1] + 1), "<u8").astype(np.int64)
        with files.open(path) as (file, size):
            is_rising = bool((np.diff(offsets) >= HEADER_BYTES + FOOTER_BYTES).all())
            is_whole = len(offsets) == described.indexed + 1 and described.ends_at(int(offsets[0]), int(offsets[-1]))
            if not is_whole or size != shard.bytes or not is_rising:
                raise DatasetError("the file and its index are not what the manifest says")
            is_local = bool(size) and isinstance(files.folder, Path)
            data: Any = None
            if is_local and shard.root is not None:
                data = AdoptedFile(described)
            else:  # of a map, keys touch few pages
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if is_local else file.read(size))
                check_content(described.file, size, shard.sample, lambda start, length: data[start : start + length])
            numbers = np.arange(shard.records)
            if shard.kept is not None:
                bits = remote.VersionFiles(dataset.folder).read(shard.kept, described.kept_size + 1)
                numbers = kept_numbers(described, bits)
            is_held = bool(parts_to_parse(dataset.manifest, {}))
            places = None if is_held else [place_key(described, number) for number in numbers.tolist()]
            yield _Opened(data, offsets[:-1][numbers], offsets[1:][numbers], places)
    except (DatasetError, ValueError) as error:
        raise DatasetError(f"{dataset.folder / shard.file}: {error}: run `recordmill verify`") from None


def _keys_of(manifest: Manifest, opened: _Opened, first: int, end: int) -> list[bytes]:
    if opened.keys is not None:
        return list(opened.keys[first:end])
    try:
        return [bytes(key) for key in parsing.parse(opened.records(first, end), parts_to_parse(manifest, {}))[KEY]]
    except RowError as error:
        raise DatasetError(f"record {first + error.row}: {error.message}") from None


def _pairs(old: _RowsOfVersion, new: _RowsOfVersion) -> tuple[Ints, Ints]:
    """Returns the numbers of the rows in both; pairs repeated keys in order."""
    keys = np.concatenate([old.keys, new.keys])
    is_new = np.arange(len(keys)) >= len(old.keys)
    order = np.lexsort((np.concatenate([old.splits, new.splits]), is_new, keys[:, 1], keys[:, 0]))
    keys, is_new = keys[order], is_new[order]
    starts = np.concatenate([[True], (keys[1:] != keys[:-1]).any(1)])[: len(keys)]
    group = np.cumsum(starts) - 1
    firsts = np.flatnonzero(starts)
    olds = np.bincount(group, ~is_new, len(firsts)).astype(np.int64)
    rank = np.arange(len(keys)) - firsts[group] - np.where(is_new, olds[group], 0)
    news = np.bincount(group, is_new, len(firsts)).astype(np.int64)
    is_paired = rank < np.minimum(olds, news)[group]
    return order[is_paired & ~is_new], order[is_paired & is_new] - len(old.keys)


def _records_of(dataset: DatasetVersion, rows: _RowsOfVersion, chosen: Ints) -> dict[int, tuple[bytes, bytes]]:
    """Reads the keys and the first records of some rows, by row number; opens each shard once."""
    found: dict[int, tuple[bytes, bytes]] = {}
    starts = np.cumsum([0, *(shard.records for shard in rows.shards)])
    shards = np.searchsorted(starts, rows.records[chosen], side="right") - 1
    for number in np.unique(shards).tolist():
        with _opened(dataset, rows.shards[number]) as opened:
            for row in chosen[shards == number].tolist():
                record = int(rows.records[row] - starts[number])
                (key,) = _keys_of(dataset.manifest, opened, record, record + 1)
                found[row] = key, bytes(opened.records(record, record + 1)[0])
    return found


def _keys(records: Mapping[int, tuple[bytes, bytes]], chosen: Ints) -> list[str]:
    return [records[row][0].decode(errors="replace") for row in chosen.tolist()]


def _features(pairs: Iterable[tuple[bytes, bytes]], windowed: str | None) -> dict[str, int]:
    """Counts by feature the pairs of records that differ in it; equal first windows differ in a later one's ids."""
    counts: Counter[str] = Counter()
    try:
        for before, after in pairs:
            keys = dict.fromkeys([*wire.names_of(before), *wire.names_of(after)])
            names = {name: name.decode(errors="replace") for name in keys}
            old, new = wire.scan(before, names), wire.scan(after, names)
            differing = [shown for name, shown in names.items() if old.get(name) != new.get(name)]
            counts.update(differing or filter(None, [windowed]))
    except wire.Malformed as error:
        raise DatasetError(f"a record is damaged ({error}): run `recordmill verify`") from None
    return dict(counts.most_common())


@dataclass(frozen=True)
class NameChanges:
    """Changes of a feature's classes or vocabulary."""

    gained: int
    lost: int
    moved: int  # names with changed ids
    names: dict[str, list[str]] = field(default_factory=dict)  # of classes, by `gained`, `lost`, `moved`


@dataclass(frozen=True)
class Diff:
    """All differences between two versions."""

    before: str
    after: str
    rows: RowChanges | None  # None if not compared
    splits: Changes  # by split: rows of windows, records, bytes, shards, and records by class
    names: dict[str, NameChanges]  # changed classes and vocabularies, by feature
    counts: Changes  # rows read, written, rejected, left out
    rejects: Changes  # rejects by reason
    statistics: Changes
    features: Changes  # descriptions of features
    spec: Changes
    packages: Changes
    values: list[Figure] = field(default_factory=list)  # of changed values, each rule's largest first

    def to_json(self) -> dict[str, Any]:
        """Returns everything as JSON: a change is [before, after]."""
        return asdict(self) | {"values": [figure.to_json() for figure in self.values]}

    def short_lines(self) -> Iterator[str]:
        """Yields lines on rows, names and counts; for the rest, only the number of changes."""
        yield from self._content_lines()
        for path, change in (self.counts | self.rejects).items():
            yield f"{path}: {_shown(change)}"
        differing = [f"{len(getattr(self, name)):,} of {name}" for name in OTHERS if getattr(self, name)]
        if differing:
            yield f"values that differ: {', '.join(differing)}"

    def lines(self) -> Iterator[str]:
        """Yields everything in lines for people, up to 20 per section."""
        yield f"{self.before} → {self.after}"
        yield from self._content_lines()
        for name in ("splits", "counts", "rejects", "values", *OTHERS):
            section = getattr(self, name)
            lines = [str(each) if name == "values" else f"{each}: {_shown(section[each])}" for each in section]
            if lines:
                yield f"{name}:"
            yield from (f"  {line}" for line in lines[:SHOWN])
            if len(lines) > SHOWN:
                yield f"  and {len(lines) - SHOWN:,} more: --json gives all"

    def _content_lines(self) -> Iterator[str]:
        """Yields lines on rows and names."""
        if (rows := self.rows) is not None:
            counted = [f"{getattr(rows, of):,} {of}{first_few(rows.examples.get(of, ()))}" for of in rows.examples]
            yield f"rows: {', '.join([*counted, f'{rows.unchanged:,} unchanged'])}"
            if rows.features:
                differing = (f"{name} ({count:,})" for name, count in rows.features.items())
                yield f"changed rows differ in {', '.join(differing)}"
        for name, names in self.names.items():
            words = [f"{getattr(names, of):,} {of}{first_few(names.names.get(of, ()))}" for of in IdChanges._fields]
            yield f"{name}: {', '.join(words)}"


def diff(before: DatasetVersion, after: DatasetVersion, *, rows: bool = True, values: bool = True) -> Diff:
    """Compares manifests and vocabularies; with `rows` records, with `values` profiles. Raises: DatasetError."""
    old, new, figures = before.manifest, after.manifest, list[Figure]()
    if values:
        compared = compare(*(ComparedVersion.read(each.folder, each.manifest) for each in (before, after)))
        others = ("schema_changes", "ids_moved")  # shown in other sections: `features`, and names
        shown = [each for each in compared.figures if each.value and each.feature and each.rule not in others]
        figures = sorted(shown, key=lambda figure: (figure.rule, -figure.value))
    return Diff(
        old.version,
        new.version,
        compare_rows(before, after) if rows else None,
        changes(_splits(before), _splits(after)),
        _name_changes(before, after),
        changes(old.rows, new.rows),
        changes(*(each.rejects.get("by_reason", {}) for each in (old, new))),
        changes(old.statistics, new.statistics),
        changes(dict(old.features), dict(new.features)),
        changes(old.spec, new.spec),
        changes(old.provenance.get("packages", {}), new.provenance.get("packages", {})),
        figures,
    )


def changes(before: Any, after: Any) -> Changes:
    """Returns the changed leaves of two JSON values, by path.

    >>> changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}, "d": [True]})
    {'a.b': (1, 3), 'd.0': (None, True)}
    """
    old, new = dict(_leaves(before)), dict(_leaves(after))
    paths = dict.fromkeys([*old, *new])
    return {path: (old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path)}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping | list | tuple):
        yield path, value
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for name, inner in items:
        yield from _leaves(inner, f"{path}.{name}" if path else str(name))


def _name_changes(before: DatasetVersion, after: DatasetVersion) -> dict[str, NameChanges]:
    """Compares classes and vocabularies of common features; leaves out equal ones."""
    compared = {}
    for name in (name for name in after.features if name in before.features):
        description = read_description(after.features[name])
        old = ids_of(before.folder, read_description(before.features[name]), name)
        new = ids_of(after.folder, description, name)
        if old != new:
            changed = compare_ids(old, new)
            names = changed._asdict() if description.ids and description.ids.are_classes else {}
            compared[name] = NameChanges(len(changed.gained), len(changed.lost), len(changed.moved), names)
    return compared


def _splits(dataset: DatasetVersion) -> dict[str, Any]:
    figures, names = dict[str, Any](), list[str]()
    with suppress(DatasetError):
        names = dataset.classes
    for name, split in dataset.manifest.splits.items():
        counts = split.label_counts or ()
        labels = names if len(names) == len(counts) else map(str, range(len(counts)))
        figures[name] = {"rows": split.source_rows, "records": split.records, "bytes": split.bytes}
        figures[name] |= {"shards": len(split.shards), "labels": dict(zip(labels, counts, strict=True))}
    return figures


def _shown(change: Change) -> str:
    values = ("none" if each is None else f"{each:,}" if type(each) is int else cut(each) for each in change)
    return " → ".join(values)
