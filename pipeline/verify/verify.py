"""`recordmill verify` without the sources: checks a version's files and shards in parallel.

A shard is checked in one pass over its file: bytes, records, their content, and the index.
"""

import hashlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.dataset import open_dataset
from recordmill.pipeline.dataset.file_names import shown_paths
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest, Shard, index_bytes
from recordmill.pipeline.dataset.placement import Layout, hash_keys, shard_of
from recordmill.pipeline.dataset.tfrecord import PackIndex
from recordmill.pipeline.dataset.version import parts_to_parse
from recordmill.pipeline.parallel import cores
from recordmill.pipeline.reader.local_shards import ShardFile, kept_numbers
from recordmill.pipeline.reader.parsing import SMALL, parse, walk
from recordmill.pipeline.reader.records import FrameBatch, FrameWalk, Offsets, ReportDamage
from recordmill.pipeline.reader.remote import VersionFiles
from recordmill.pipeline.reader.wire import Malformed, names_of
from recordmill.pipeline.verify import files as checks
from recordmill.pipeline.verify.files import Findings, Verification, shown
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import KEY, Column, Ragged, RowError, part_name
from recordmill.transforms.texts.text_stored import WINDOW_PARTS

MANY_BYTES = 256 << 20  # 256 MiB of shards take a second or more, as long as processes take to start
TURNS = 4  # portions of shards per process, to balance the load
TOGETHER = 2048  # records parsed at once
ShardNumber: TypeAlias = tuple[str, int]  # a split, and a shard's number there, from 0
CheckedShard: TypeAlias = tuple[Findings, Counter[int]]  # a shard's findings, and its number of records by label id
QUICK = "records, indexes, counts: `--quick` compares only sizes and digests"
NO_PARITY = "training = serving: give --spec dataset.yaml; its sources must be at their paths"


def verify(folder: str | Path, version: str | None = None, *, quick: bool = False) -> Verification:
    """Checks a version, by default the live one, of a dataset's folder or URL; `quick` compares sizes and digests.

    Raises: DatasetError: the version does not exist, its manifest is broken, or has a feature of an unknown kind.
    """
    started, dataset = time.monotonic(), open_dataset(folder, version)
    files, manifest, findings = VersionFiles(dataset.folder), dataset.manifest, Findings()
    read_descriptions(manifest.features)  # needed by all other checks, as is the layout
    try:
        if (layout := split_layout(manifest)) is not None:
            layout.split_of(np.zeros(0, np.uint64))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"the spec in dataset.json is broken ({error}): restore it from a copy") from None
    if not quick:
        _check_shards(files, manifest, findings)
    with ThreadPoolExecutor(cores()) as threads:  # reading and SHA-256 release the GIL
        if quick:
            findings.merge(*threads.map(partial(checks.check_shard_file, files), manifest.shards))
            findings.unchecked.append(QUICK)
            findings.checked.update(shards=len(manifest.shards))
        listed = ((path, entry["bytes"], entry["sha256"]) for path, entry in manifest.files.items())
        findings.merge(*threads.map(lambda file: checks.check_file(files, *file), listed))
        graphs = () if manifest.adopted else checks.GRAPHS
        findings.merge(*threads.map(partial(checks.check_operations, files), graphs))
    shards = (shard.file for shard in manifest.shards if shard.version is shard.root is None)
    for path in sorted({*files.listing()} - {MANIFEST_FILE, *manifest.files, *shards}):
        findings.add(path, "the manifest does not list this file")
    if not quick:
        findings.merge(checks.check_agreement(files, manifest))
    return Verification(manifest, str(dataset.folder), findings, time.monotonic() - started)


def _check_shards(files: VersionFiles, manifest: Manifest, findings: Findings) -> None:
    labels: dict[str, Counter[int]] = {name: Counter() for name in manifest.splits}
    shards = [(name, number) for name, split in manifest.splits.items() for number in range(len(split.shards))]
    for (split_name, _), (of_shard, counts) in zip(shards, _each_shard(files, manifest, shards), strict=True):
        findings.merge(of_shard)
        labels[split_name].update(counts)
    for name, split in manifest.splits.items():
        if any(shown_paths(shard)[0] in findings.counts for shard in split.shards):
            continue
        for label, expected in enumerate(split.label_counts or ()):
            if labels[name][label] != expected:
                counted = f"{labels[name][label]:,} records of '{name}' have the label {label}"
                findings.add(MANIFEST_FILE, f"{counted}, expected {expected:,}")
                break


def _each_shard(files: VersionFiles, manifest: Manifest, shards: Sequence[ShardNumber]) -> Iterator[CheckedShard]:
    """Checks the shards; large versions in several processes, because most checks hold the GIL."""
    workers = min(cores(), len(shards))
    if workers < 2 or manifest.bytes < MANY_BYTES:
        yield from check_shards(files, manifest, shards)
        return
    size = -(-len(shards) // (TURNS * workers))
    turns = [shards[start : start + size] for start in range(0, len(shards), size)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        try:
            for checked in pool.map(partial(check_shards, files, manifest), turns):
                yield from checked
        except BrokenExecutor:
            raise DatasetError("a worker process was killed, perhaps out of memory: try again") from None


def check_shards(files: VersionFiles, manifest: Manifest, shards: Sequence[ShardNumber]) -> list[CheckedShard]:
    """Checks some shards of a version."""
    return [check_shard(files, manifest, split, number) for split, number in shards]


def check_shard(files: VersionFiles, manifest: Manifest, split: str, number: int) -> CheckedShard:
    """Checks one shard."""
    shard = manifest.splits[split].shards[number]
    findings, (name, _) = Findings(), shown_paths(shard)
    kept = _kept(files, shard, findings)

    def report(record: int, offset: int, message: str) -> None:
        if kept is None or kept[record : record + 1].any():  # others were damaged when they were adopted
            findings.add(name, message, record, offset)

    checks = RecordChecks(manifest, split, number, report)
    index = _read_index(files, manifest, shard, findings)
    try:
        (folder, path), *_ = files.located(shard)
        with folder.open(path) as (file, size):
            leads = False  # whether the index leads past damage: it rises from 0 to the file's size
            if index is not None and index[0] == 0 and (index[-1] == shard.bytes or shard.root):
                leads = bool((index[1:] > index[:-1]).all())
            walk = FrameWalk(file, size, index if leads else None, report)
            for batch in walk.batches():
                known = None if kept is None else kept.take(batch.numbers, mode="clip")  # the file may have grown
                chosen = range(len(batch.numbers)) if known is None else np.flatnonzero(known).tolist()
                checks.check(batch.keep(chosen))
    except DatasetError as error:
        findings.add(name, str(error))
    else:
        _compare(findings, shard, walk, size, index)
        _check_packs(files, shard, findings)
        findings.checked.update(files=1, shards=1, bytes=size, records=shard.records)
    findings.problems.sort(key=lambda problem: -1 if problem.record is None else problem.record)
    return findings, Counter(dict(enumerate(checks.label_counts.tolist())))


def _kept(files: VersionFiles, shard: Shard, findings: Findings) -> npt.NDArray[np.bool_] | None:
    """Marks the records of an adopted file that belong to the split; None for a built shard."""
    if shard.root is None:
        return None
    kept = np.zeros(shard.indexed + 1, bool)  # the last for what follows the last record
    with checks.adding_errors(findings, shown_paths(shard)[0]):
        described = ShardFile.of(str(files.folder), shard)
        bits = files.read(shard.kept, described.kept_size + 1) if shard.kept else b""
        kept[kept_numbers(described, bits) if shard.kept else slice(shard.indexed)] = True
    return kept


def _read_index(files: VersionFiles, manifest: Manifest, shard: Shard, findings: Findings) -> Offsets | None:
    """Reads the index; None if it is missing or has a wrong number of records."""
    try:
        _, (folder, path), *_ = files.located(shard)
        data = folder.read(path)
        if len(data) == (expected := index_bytes(shard.indexed)):
            return np.frombuffer(data, "<u8")
        message = f"the file holds {len(data):,} bytes, expected {expected:,}"
    except DatasetError as error:
        message = str(error)
    if shard.version or shard.index not in manifest.files:  # else `check_file` reports it
        findings.add(shown_paths(shard)[1], message)
    return None


def _compare(findings: Findings, shard: Shard, walk: FrameWalk, size: int, index: Offsets | None) -> None:
    """Compares the file with the manifest, and the index with the records' offsets if all are known."""
    name, index_name = shown_paths(shard)
    if size != shard.bytes:
        findings.add(name, f"the file holds {size:,} bytes, expected {shard.bytes:,}")
    checks.check_digest(findings, name, walk.sha256, shard.sha256)
    records = len(walk.offsets) - 1
    if records != shard.indexed and walk.is_whole:
        findings.add(name, f"the file holds {records:,} records, expected {shard.indexed:,}")
    if index is None or not walk.is_whole:
        return
    offsets = np.frombuffer(walk.offsets, np.uint64)
    shorter = min(len(offsets), len(index))
    for record in np.flatnonzero(offsets[:shorter] != index[:shorter]).tolist():
        subject = "the file ends" if record == len(offsets) - 1 else f"record {record} begins"
        message = f"{subject} at byte {offsets[record]:,}, the index says {index[record]:,}"
        findings.add(index_name, message, record, 8 * record)


def _check_packs(files: VersionFiles, shard: Shard, findings: Findings) -> None:
    """Checks that packed rows are of the shard's records; `check_file` compares digests of the version's own files."""
    for pack, (folder, path) in zip(shard.packs, files.located(shard)[2:], strict=True):
        with checks.adding_errors(findings, path):
            data = folder.read(path)
            PackIndex.of_bytes(data, pack).take(np.arange(pack.rows), shard.records)
            if shard.version:
                checks.check_digest(findings, path, hashlib.sha256(data).hexdigest(), pack.sha256)


class RecordChecks:
    """Checks the records of one shard, batch by batch, in order; calls `report` with each fault."""

    def __init__(self, manifest: Manifest, split: str, shard: int, report: ReportDamage) -> None:
        self._split, self._report = split, report
        shards = manifest.splits[split].shards
        self._of_span = [number for number, each in enumerate(shards) if each.span == shards[shard].span]
        self._shard = self._of_span.index(shard)
        described = read_descriptions(manifest.features)
        self._features, self._is_adopted = parts_to_parse(manifest, described), bool(manifest.adopted)
        self._names = sorted(name.encode() for name in self._features)
        tables = {name: each.ids for name, each in described.items() if self._features[name].dtype == "int64"}
        self._ids = {name: ids.size for name, ids in tables.items() if ids and ids.ignored is None}
        self._others = {name: each for name, each in described.items() if type(each).fault is not Description.fault}
        texts = {name: text for name, each in described.items() if (text := each.as_text)}
        self._packed = any(text.packed for text in texts.values())
        self._layout = split_layout(manifest)
        self._window: tuple[str, str, int] | None = None
        for name, text in texts.items():
            if text.window:
                number, start = (part_name(name, part) for part in WINDOW_PARTS)
                self._window = number, start, text.window.stride
        self._last = (-1, b"", 0)
        counts = manifest.splits[split].label_counts
        self._label = None if counts is None or manifest.label not in self._ids else manifest.label
        self.label_counts: npt.NDArray[np.int64] = np.zeros(len(counts or ()), np.int64)

    def check(self, batch: FrameBatch) -> None:
        """Reports each record that is not an Example of the features, is misplaced, or holds an unknown id."""
        for start in range(0, len(batch.numbers), TOGETHER):
            part = batch.keep(range(start, min(start + TOGETHER, len(batch.numbers))))
            part, columns = self._parsed(part)
            if part.numbers:
                if not self._is_adopted:
                    self._check_keys(part, [bytes(key) for key in columns.pop(KEY)], columns)
                for name, size in self._ids.items():
                    self._check_ids(part, name, columns[name], size)
                for name, description in self._others.items():
                    for row, fault in enumerate(map(description.fault, columns[name])):
                        if fault:
                            self._report_row(part, row, f"feature '{name}' holds {fault}")
                if self._label in columns:
                    labels = _values(columns[self._label])
                    known = labels[(labels >= 0) & (labels < len(self.label_counts))]
                    self.label_counts += np.bincount(known, minlength=len(self.label_counts))

    def _parsed(self, batch: FrameBatch) -> tuple[FrameBatch, dict[str, Any]]:
        """Keeps records with the features' names, types and shapes; of small alike ones, looks only at one's names."""
        records = batch.records
        is_alike = sum(map(len, records)) <= SMALL * len(records) and records and walk(records, {}) is not None
        looked_at = records[:1] if is_alike else records
        with suppress(Malformed, RowError):  # reported below, record by record
            if self._is_adopted or all(sorted(names_of(record)) == self._names for record in looked_at):
                return batch, parse(records, self._features)
        faults = [self._fault(record) for record in records]
        for row, fault in enumerate(faults):
            if fault is not None:
                self._report_row(batch, row, fault)
        batch = batch.keep([row for row, fault in enumerate(faults) if fault is None])
        return batch, parse(batch.records, self._features)

    def _fault(self, record: bytes | memoryview) -> str | None:
        try:
            names = names_of(record)
            if self._is_adopted or sorted(names) == self._names:
                parse([record], self._features)
                return None
        except Malformed as error:
            return str(error)
        except RowError as error:
            return error.message
        odd = set(names) ^ set(self._names) or {name for name in names if names.count(name) > 1}
        return f"its features differ from the manifest's: {', '.join(shown(name) for name in sorted(odd)[:5])}"

    def _check_keys(self, batch: FrameBatch, keys: list[bytes], columns: Mapping[str, Any]) -> None:
        """Checks the records' places by their keys, and where windows' ids start."""
        splits, positions, _ = hash_keys(keys)
        windows = np.zeros(len(keys), np.int64)  # the records' numbers in their rows
        if self._window is not None:
            number, start, stride = self._window
            windows, starts = np.asarray(columns[number]), columns[start]
            for row in np.flatnonzero(starts != windows * stride).tolist():
                expected = f"window {windows[row]} starts at {windows[row] * stride}"
                self._report_row(batch, row, f"{expected}, '{start}' says {starts[row]}")
        if not self._packed:
            self._check_order(batch, keys, positions, windows)
        shards = shard_of(positions, len(self._of_span))
        for row in np.flatnonzero(shards != self._shard).tolist():
            place = f"shard {self._of_span[shards[row]]} of the split '{self._split}'"
            self._report_row(batch, row, f"its key {shown(keys[row])} belongs in {place}")
        if self._layout is not None:
            numbers, names = self._layout.split_of(splits), self._layout.splits
            for row in np.flatnonzero(numbers != names.index(self._split)).tolist():
                self._report_row(batch, row, f"its key {shown(keys[row])} belongs in the split '{names[numbers[row]]}'")

    def _check_order(
        self, batch: FrameBatch, keys: list[bytes], positions: npt.NDArray[np.uint64], windows: npt.NDArray[np.int64]
    ) -> None:
        """Checks that the records rise by (hash, key): equal keys are adjacent, and only a row's windows, in order."""
        last = self._last
        if int(positions[0]) > last[0] and (positions[1:] > positions[:-1]).all() and not windows.any():
            self._last = int(positions[-1]), keys[-1], 0
            return
        for row, this in enumerate(zip(positions.tolist(), keys, windows.tolist(), strict=True)):
            *place, window = this
            if window and this != (*last[:2], last[2] + 1):
                self._report_row(batch, row, f"its key {shown(keys[row])} lacks the window before {window}")
            elif not window and this <= (*last[:2], 0):
                fault = "is a duplicate in the shard" if place == [*last[:2]] else "belongs before the previous record"
                self._report_row(batch, row, f"its key {shown(keys[row])} {fault}")
            last = this
        self._last = last

    def _check_ids(self, batch: FrameBatch, name: str, column: Column, size: int) -> None:
        values = _values(column)
        wrong = np.flatnonzero((values < 0) | (values >= size))
        if not len(wrong):
            return
        rows = np.searchsorted(column.splits, wrong, side="right") - 1 if isinstance(column, Ragged) else wrong
        for id_, row in zip(values[wrong].tolist(), rows.tolist(), strict=True):
            self._report_row(batch, row, f"feature '{name}' holds the id {id_}, outside 0 to {size - 1}")

    def _report_row(self, batch: FrameBatch, row: int, message: str) -> None:
        self._report(batch.numbers[row], batch.offsets[row], message)


def split_layout(manifest: Manifest) -> Layout | None:
    """Returns the layout that maps a key's hash to its split; None if the split depends on something else."""
    spec: Mapping[str, Any] = manifest.spec
    by_key = not spec.get("split_by") and not any(source.get("split") for source in spec.get("source", ()))
    together = (spec.get("duplicates") or {}).get("action") == "same_split"
    if not by_key or together or spec.get("splits", {}).keys() != manifest.splits.keys():
        return None
    return Layout(spec["splits"], {name: len(split.shards) for name, split in manifest.splits.items()})


def _values(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.values if isinstance(column, Ragged) else column)
