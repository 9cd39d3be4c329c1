"""One shard: its bytes, its records, what they hold, and its index, in one reading of the file.

>>> check_shard(files, manifest, "train", 0).problems  # doctest: +SKIP
[]
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from recordmill.pipeline.dataset.manifest import DatasetError, Manifest, Shard
from recordmill.pipeline.verify.files import VersionFiles, check_digest
from recordmill.pipeline.verify.findings import Findings
from recordmill.pipeline.verify.frames import FrameWalk, Offsets
from recordmill.pipeline.verify.records import Contents

Place: TypeAlias = tuple[str, int]
"""A split, and the number of a shard in it, from 0."""
Checked: TypeAlias = tuple[Findings, Counter[int]]
"""What was found, and how often each label id occurs."""


def check_shards(files: VersionFiles, manifest: Manifest, places: Sequence[Place]) -> list[Checked]:
    """Checks some shards of a version."""
    return [check_shard(files, manifest, split, number) for split, number in places]


def check_shard(files: VersionFiles, manifest: Manifest, split: str, number: int) -> Checked:
    """Checks one shard."""
    shard = manifest.splits[split].shards[number]
    found = Findings()

    def tell(record: int, offset: int, what: str) -> None:
        found.tell(shard.file, what, record, offset)

    contents = Contents(manifest, split, number, tell)
    index = _read_index(files, manifest, shard, found)
    try:
        file, size = files.open(shard.file)
        with file:
            walk = FrameWalk(file, size, index if _can_lead(index, shard) else None, tell)
            for batch in walk.batches():
                contents.check(batch)
    except DatasetError as error:
        found.tell(shard.file, str(error))
    except OSError as error:
        found.tell(shard.file, f"the file cannot be read: {error.strerror or error}")
    else:
        _compare(found, shard, walk, size)
        _compare_index(found, shard, walk, index)
        found.checked.update(files=1, shards=1, bytes=size, records=len(walk.offsets) - 1)
    found.problems.sort(key=lambda problem: -1 if problem.record is None else problem.record)
    return found, Counter(dict(enumerate(contents.label_counts.tolist())))


def _can_lead(index: Offsets | None, shard: Shard) -> bool:
    """Whether an index can say where to go on behind damage: from 0 to the file's bytes, always rising."""
    if index is None or (int(index[0]), int(index[-1])) != (0, shard.bytes):
        return False
    return bool((index[1:] > index[:-1]).all())


def _read_index(files: VersionFiles, manifest: Manifest, shard: Shard, found: Findings) -> Offsets | None:
    """The index, if it is one of as many records."""
    try:
        data = files.read(shard.index)
        if len(data) == 8 * (shard.records + 1):
            return np.frombuffer(data, "<u8")
        message = f"the file holds {len(data):,} bytes, expected {8 * (shard.records + 1):,}"
    except DatasetError as error:
        message = str(error)
    if shard.index not in manifest.files:  # else it is told when the file is compared with its entry
        found.tell(shard.index, message)
    return None


def _compare(found: Findings, shard: Shard, walk: FrameWalk, size: int) -> None:
    if size != shard.bytes:
        found.tell(shard.file, f"the file holds {size:,} bytes, expected {shard.bytes:,}")
    check_digest(found, shard.file, walk.sha256, shard.sha256)
    records = len(walk.offsets) - 1
    if records != shard.records and walk.is_whole:
        found.tell(shard.file, f"the file holds {records:,} records, expected {shard.records:,}")


def _compare_index(found: Findings, shard: Shard, walk: FrameWalk, index: Offsets | None) -> None:
    """Compares the index with where the records are, as far as they tell."""
    if index is None or not walk.is_whole:
        return
    true = np.frombuffer(walk.offsets, np.uint64)
    shorter = min(len(true), len(index))
    for record in np.flatnonzero(true[:shorter] != index[:shorter]).tolist():
        what = "the file ends" if record == len(true) - 1 else f"record {record} begins"
        found.tell(
            shard.index, f"{what} at byte {true[record]:,}, the index says {index[record]:,}", record, 8 * record
        )


def index_of(files: VersionFiles, shard: Shard) -> bytes:
    """Gives what the index of a shard must hold, by the shard's own records; the shard must be whole."""
    file, size = files.open(shard.file)
    with file:
        walk = FrameWalk(file, size, None, lambda record, at, what: None)
        for _ in walk.batches():
            continue
    return np.frombuffer(walk.offsets, np.uint64).astype("<u8").tobytes()
