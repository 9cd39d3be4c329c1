"""Single rows of published versions: finding them by their keys, and versions without some of them.

A shard is sorted by the hashes of its keys, so a key is found without reading everything. Rejected rows are lines of
JSON, each with the row's place, key and reason.
"""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from itertools import accumulate, groupby
from typing import Any, NamedTuple, TypedDict

import numpy as np

from recordmill.pipeline.dataset.counts import counted_as
from recordmill.pipeline.dataset.file_names import REJECTED, shown_paths, span_file
from recordmill.pipeline.dataset.manifest import Json, Manifest, Shard
from recordmill.pipeline.dataset.paths import Location, read_inner
from recordmill.pipeline.dataset.placement import KeyHash, as_key, digest, hash_key, shard_of
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.dataset.version import parts_to_parse
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count, parse_json, read_as
from recordmill.pipeline.reader.local_shards import ShardFile
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.records import Numbers, Records
from recordmill.pipeline.versions.base import Forgotten
from recordmill.transforms.base.stored import KEY, RowError, stored_features

KEY_ALONE = stored_features({}, with_key=True)


class StoredRow(NamedTuple):
    """A record and its place in the version."""

    split: str
    shard: Shard
    record: int  # its number in the shard, from 0
    position: int  # its number in the split, from 0, in the order of `evaluation_input`
    offset: int
    key: bytes
    data: bytes

    @property
    def file(self) -> str:
        """The path of the shard, as in `verify`."""
        return shown_paths(self.shard)[0]


class SortedShards(NamedTuple):
    """Shards sorted together: a split's shards, or those of one span in it."""

    split: str
    shards: Sequence[Shard]
    first: int  # the number of the first record in the split

    def placed(self) -> Iterator[tuple[Shard, int]]:
        """Yields the shards, each with the number of its first record in the split."""
        firsts = accumulate((shard.records for shard in self.shards), initial=self.first)
        yield from zip(self.shards, firsts, strict=False)


def has_keys(manifest: Manifest) -> bool:
    """Whether each record holds one row: not for packed texts."""
    return all(split.documents is None for split in manifest.splits.values())


def find_records(folder: Location, manifest: Manifest, *keys: str | bytes) -> list[StoredRow]:
    """Finds the records of keys, at most one row's in each split and span, by binary search: several of windows.

    A string may be a file name with surrogates for invalid UTF-8. Raises: DatasetError: a record or an index on the way
    is damaged, or the texts are packed, without an order by key.
    """
    if not has_keys(manifest):
        raise DatasetError(f"the records of {manifest.version} hold several rows (packed texts), not found by a key")
    return list(find_digests(folder, manifest, map(digest, map(as_key, keys))))


def find_digests(folder: Location, manifest: Manifest, digests: Iterable[bytes]) -> Iterator[StoredRow]:
    """Finds records by the digests of their keys (`placement.digest`), as `find_records`; adopted ones one by one."""
    wanted = sorted(digests, key=_position)
    find = partial(_scan, manifest) if manifest.adopted else _search
    for run in runs(manifest):
        shards = shard_of(np.array([_position(each) for each in wanted], np.uint64), len(run.shards)).tolist()
        for number, (shard, first) in enumerate(run.placed()):
            here = [each for each, its in zip(wanted, shards, strict=True) if its == number or manifest.adopted]
            if not here or not shard.records:
                continue
            blocks = np.arange(0, shard.records, KEYS_TOGETHER) if manifest.adopted else None
            with open_records(str(folder), shard, blocks) as records:
                for record, key in find(records, here):
                    (data,) = map(bytes, records.read(np.array([record])))
                    offset = int(records.where(record).offset)
                    yield StoredRow(run.split, shard, record, first + record, offset, key, data)


def _search(records: Records, digests: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the numbers and keys of records by their keys' digests, by binary search. Raises: DatasetError."""
    for wanted in digests:
        record = bisect_left(range(len(records)), _position(wanted), key=lambda at: key_at(records, at)[0].position)
        while record < len(records):  # keys of one position are neighbours
            hashed, key = key_at(records, record)
            if hashed.position != _position(wanted):
                break
            if digest(key) == wanted:
                yield record, key
            record += 1


def _scan(manifest: Manifest, records: Records, digests: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the numbers and keys of records by their keys' digests, in any order of keys. Raises: DatasetError."""
    wanted, held = set(digests), parts_to_parse(manifest, {})
    for start in range(0, len(records), KEYS_TOGETHER):
        numbers = np.arange(start, min(start + KEYS_TOGETHER, len(records)))
        with naming_damage(records, start):
            keys: Any = parse(records.read(numbers), held)[KEY] if held else records.keys(numbers)
        for record, key in zip(numbers.tolist(), map(bytes, keys), strict=True):
            if digest(key) in wanted:
                yield record, key


def runs(manifest: Manifest) -> Iterator[SortedShards]:
    """Yields a version's runs of shards, split by split."""
    for name, split in manifest.splits.items():
        first = 0
        for _, group in groupby(split.shards, key=lambda shard: shard.span):
            shards = list(group)
            yield SortedShards(name, shards, first)
            first += sum(shard.records for shard in shards)


def open_records(folder: str, shard: Shard, blocks: Numbers | None = None) -> Records:
    """Opens a shard of a version's folder; `blocks` as in `Records`. Raises: DatasetError."""
    return Records([ShardFile.of(folder, shard)], blocks)


def key_at(records: Records, record: int) -> tuple[KeyHash, bytes]:
    """Reads a record's key, with its hashes. Raises: DatasetError: the record or the shard is damaged."""
    with naming_damage(records, record):
        (data,) = records.read(np.array([record]))
        key = bytes(parse([data], KEY_ALONE)[KEY][0])
    return hash_key(key), key


@contextmanager
def naming_damage(records: Records, first: int = 0) -> Iterator[None]:
    """Names shard and record in the error for a damaged one; `first` is the number of row 0. Raises: DatasetError."""
    try:
        yield
    except RowError as error:
        raise DatasetError(f"{records.where(first + error.row)}: {error.message}; run `recordmill verify`") from None


def _position(key_digest: bytes) -> int:
    return int.from_bytes(key_digest[8:16], "big")


KEYS_TOGETHER = 4096  # keys read at once
TOGETHER_BYTES = 16 << 20  # 16 MiB of records at a time, or one larger record


def copy_without(records: Records, writer: ShardWriter, removed: Collection[int]) -> list[bytes]:
    """Copies one shard without the records `removed`, and returns their data; checks each CRC-32C.

    Raises: DatasetError: a record is damaged, or a file is missing or has another size. OSError: it cannot be written.
    """
    left_out, leave = list[bytes](), set(removed)
    with naming_damage(records):
        sizes = records.sizes(np.arange(len(records)))
    cuts = np.searchsorted(np.cumsum(sizes), np.arange(TOGETHER_BYTES, sizes.sum(), TOGETHER_BYTES))
    for part in np.split(np.arange(len(records)), np.unique(cuts)):
        with naming_damage(records, int(part[0])):
            data = [bytes(record) for record in records.read(part)]
        writer.write([record for number, record in zip(part.tolist(), data, strict=True) if number not in leave])
        left_out += [record for number, record in zip(part.tolist(), data, strict=True) if number in leave]
    return left_out


MOST_BYTES = 2 << 30  # 2 GiB: ten million rejects
MOST_LINE_BYTES = 1 << 20  # 1 MiB: a place, a key and a message


class RejectLine(TypedDict, total=False):
    """The fields read of a rejected row."""

    id: str | None
    column: str | None
    code: str
    message: str
    file: str | None
    line: Count | None


def rejects_of(folder: Location, manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yields a version's rejects. Raises: as `read_reject_lines`."""
    for file in manifest.rejects.get("files", []):
        yield from (reject for _, reject in read_reject_lines(folder, file["file"]))


def read_reject_lines(folder: Location, path: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yields rejects, raw and parsed. Raises: DatasetError: the file is unusable or over 2 GiB, a line over 1 MiB."""
    for number, line in enumerate(BytesIO(read_inner(folder, path, MOST_BYTES)), start=1):
        try:
            if len(line) > MOST_LINE_BYTES:
                raise DatasetError(f"it holds {len(line):,} bytes, and a reject at most {MOST_LINE_BYTES:,}")
            reject = parse_json(line)
            read_as(reject, RejectLine, "a reject")
        except DatasetError as error:
            raise DatasetError(f"{folder / path}, line {number:,}: {error}; run `recordmill verify`") from None
        yield line, reject


@dataclass
class Rejected:
    """A version's rejects without forgotten rows."""

    entry: Json  # the manifest's entry
    files: dict[str, bytes] = field(default_factory=dict)  # the changed files, by path
    digests: set[bytes] = field(default_factory=set)  # the digests of the removed keys
    removed: int = 0
    by_span: Counter[str] = field(default_factory=Counter)  # the number of removed rows, by span


def without_rejects(folder: Location, manifest: Manifest, gone: Forgotten) -> Rejected:
    """Removes forgotten rows from a version's rejects. Raises: DatasetError: a file is unreadable or broken."""
    known, reasons = set(gone.digests), Counter[str](manifest.rejects.get("by_reason", {}))
    result, listed = Rejected(dict(manifest.rejects)), list[Json]()
    for file in manifest.rejects.get("files", []):
        left = list[bytes]()
        for line, reject in read_reject_lines(folder, file["file"]):
            if (key := _key_digest(reject)) in known:
                result.digests.add(key)
                reasons[counted_as(str(reject.get("code")), str(reject.get("message")))] -= 1
            else:
                left.append(line)
        if len(left) < file.get("records", 0):
            data = b"".join(left)
            result.removed += file.get("records", 0) - len(left)
            result.files[file["file"]] = data
            digests = {"bytes": len(data), "records": len(left), "sha256": hashlib.sha256(data).hexdigest()}
            file = {**file, **digests}
        listed.append(file)
    for span in manifest.spans if result.removed else ():
        path = span_file(span, REJECTED)
        if path in manifest.files:
            count = sum(_key_digest(reject) in known for _, reject in read_reject_lines(folder, path))
            result.by_span.update({span: count} if count else {})
    if result.removed:
        result.entry |= {"by_reason": {reason: count for reason, count in reasons.items() if count}, "files": listed}
    return result


def _key_digest(reject: Json) -> bytes:
    """Returns the digest of a rejected row's key; empty without one."""
    id_ = reject.get("id")
    return b"" if id_ is None else digest(as_key(str(id_)))
