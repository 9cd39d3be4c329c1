"""Checks one shard in one reading of its file: its bytes, its records, their content, and its index.

>>> check_shard(files, manifest, "train", 0)[0].problems  # doctest: +SKIP
[]
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from recordmill.pipeline.dataset.file_names import inner_paths
from recordmill.pipeline.dataset.manifest import DatasetError, Manifest, Shard
from recordmill.pipeline.reader.version_files import VersionFiles
from recordmill.pipeline.verify.frames import FrameWalk, Offsets
from recordmill.pipeline.verify.records import RecordChecks
from recordmill.pipeline.verify.report import Findings
from recordmill.pipeline.verify.version_files import check_digest

ShardNumber: TypeAlias = tuple[str, int]
"""A split, and the number of a shard in it, from 0."""
Checked: TypeAlias = tuple[Findings, Counter[int]]
"""The findings in a shard, and the number of its records by label id."""


def shard_numbers(manifest: Manifest) -> list[ShardNumber]:
    """Lists all shards of a version."""
    return [(name, number) for name, split in manifest.splits.items() for number in range(len(split.shards))]


def check_shards(files: VersionFiles, manifest: Manifest, shards: Sequence[ShardNumber]) -> list[Checked]:
    """Checks some shards of a version."""
    return [check_shard(files, manifest, split, number) for split, number in shards]


def check_shard(files: VersionFiles, manifest: Manifest, split: str, number: int) -> Checked:
    """Checks one shard."""
    shard = manifest.splits[split].shards[number]
    findings, (name, _) = Findings(), inner_paths(shard)

    def report(record: int, offset: int, message: str) -> None:
        findings.add(name, message, record, offset)

    checks = RecordChecks(manifest, split, number, report)
    index = _read_index(files, manifest, shard, findings)
    try:
        lying, path, _ = files.located(shard)
        with lying.open(path) as (file, size):
            walk = FrameWalk(file, size, index if _can_lead(index, shard) else None, report)
            for batch in walk.batches():
                checks.check(batch)
    except DatasetError as error:
        findings.add(name, str(error))
    else:
        _compare(findings, shard, walk, size)
        _compare_index(findings, shard, walk, index)
        findings.checked.update(files=1, shards=1, bytes=size, records=len(walk.offsets) - 1)
    findings.problems.sort(key=lambda problem: -1 if problem.record is None else problem.record)
    return findings, Counter(dict(enumerate(checks.label_counts.tolist())))


def _can_lead(index: Offsets | None, shard: Shard) -> bool:
    """Whether an index rises from 0 to the file's size, so that it can lead past damage."""
    if index is None or (int(index[0]), int(index[-1])) != (0, shard.bytes):
        return False
    return bool((index[1:] > index[:-1]).all())


def _read_index(files: VersionFiles, manifest: Manifest, shard: Shard, findings: Findings) -> Offsets | None:
    """Reads the index; None if it is missing or of another number of records."""
    try:
        lying, _, path = files.located(shard)
        data = lying.read(path)
        if len(data) == 8 * (shard.records + 1):
            return np.frombuffer(data, "<u8")
        message = f"the file holds {len(data):,} bytes, expected {8 * (shard.records + 1):,}"
    except DatasetError as error:
        message = str(error)
    if shard.version or shard.index not in manifest.files:  # else the comparison with its entry reports it
        findings.add(inner_paths(shard)[1], message)
    return None


def _compare(findings: Findings, shard: Shard, walk: FrameWalk, size: int) -> None:
    name = inner_paths(shard)[0]
    if size != shard.bytes:
        findings.add(name, f"the file holds {size:,} bytes, expected {shard.bytes:,}")
    check_digest(findings, name, walk.sha256, shard.sha256)
    records = len(walk.offsets) - 1
    if records != shard.records and walk.is_whole:
        findings.add(name, f"the file holds {records:,} records, expected {shard.records:,}")


def _compare_index(findings: Findings, shard: Shard, walk: FrameWalk, index: Offsets | None) -> None:
    """Compares the index with the offsets of the records, if they are all known."""
    if index is None or not walk.is_whole:
        return
    offsets = np.frombuffer(walk.offsets, np.uint64)
    shorter = min(len(offsets), len(index))
    for record in np.flatnonzero(offsets[:shorter] != index[:shorter]).tolist():
        subject = "the file ends" if record == len(offsets) - 1 else f"record {record} begins"
        message = f"{subject} at byte {offsets[record]:,}, the index says {index[record]:,}"
        findings.add(inner_paths(shard)[1], message, record, 8 * record)


def index_of(files: VersionFiles, shard: Shard) -> bytes:
    """Makes the index of an undamaged shard from its records."""
    lying, path, _ = files.located(shard)
    with lying.open(path) as (file, size):
        walk = FrameWalk(file, size, None, lambda record, offset, message: None)
        for _ in walk.batches():
            continue
    return np.frombuffer(walk.offsets, np.uint64).astype("<u8").tobytes()
