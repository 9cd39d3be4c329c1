"""Finds the records of a key without reading everything: the records of a shard rise by their keys' hashes.

>>> find_records(Path("out/emoji/versions/20261120T120000Z-4f1c9a2e"), manifest, b"cats/17.jpg")  # doctest: +SKIP
[StoredRow(split='train', shard=Shard(…), record=17, position=2017, offset=1_234_567, data=b'…')]
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

import numpy as np

from recordmill.pipeline.dataset.key_hash import KeyHash, digest, hash_key, shard_of
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest, Shard
from recordmill.pipeline.dataset.shard_paths import inner_paths, shard_paths
from recordmill.pipeline.reader.parsing.examples import parse
from recordmill.pipeline.reader.records.random_access import Numbers, Records, ShardFile
from recordmill.transforms.contract.ragged import RowError
from recordmill.transforms.contract.stored import KEY, stored_features

KEY_ALONE = stored_features({}, with_key=True)


class StoredRow(NamedTuple):
    """A record, and its place in the version."""

    split: str
    shard: Shard
    record: int
    """Its number in the shard, from 0."""
    position: int
    """Its number in the split, from 0: the order in which `evaluation_input` gives the records."""
    offset: int
    """Its byte offset in the shard."""
    data: bytes

    @property
    def file(self) -> str:
        """The path of its shard, as `verify` names it."""
        return inner_paths(self.shard)[0]


class Run(NamedTuple):
    """The shards of one split whose records rise together: of one span, or of all rows where there are no spans."""

    split: str
    shards: Sequence[Shard]
    first: int
    """The number in the split of the first shard's first record."""


def is_sorted(manifest: Manifest) -> bool:
    """Whether each row is a record of its own, in the order of the hashes: not so for packed texts."""
    return all(split.documents is None for split in manifest.splits.values())


def find_records(folder: Location, manifest: Manifest, key: bytes) -> list[StoredRow]:
    """Finds the records of a key, at most one in each split and span, by binary search.

    Packed texts, whose records hold many rows, have no such order.

    Raises:
        DatasetError: a record or an index that was looked at is damaged.
    """
    return list(find_digests(folder, manifest, [digest(key)]))


def find_digests(folder: Location, manifest: Manifest, digests: Iterable[bytes]) -> Iterator[StoredRow]:
    """Finds the records of keys by the keys' digests (`key_hash.digest`), as `find_records`."""
    wanted = sorted(digests, key=_position)
    for run in runs(manifest):
        shards = shard_of(np.array([_position(each) for each in wanted], np.uint64), len(run.shards))
        first = run.first
        for number, shard in enumerate(run.shards):
            here = [each for each, its in zip(wanted, shards.tolist(), strict=True) if its == number]
            if here and shard.records:
                with open_records(str(folder), shard) as records:
                    for record in find_in(records, here):
                        (data,) = map(bytes, records.read(np.array([record])))
                        place = records.where(record).offset
                        yield StoredRow(run.split, shard, record, first + record, int(place), data)
            first += shard.records


def runs(manifest: Manifest) -> Iterator[Run]:
    """Gives the runs of shards of a version, split by split."""
    for name, split in manifest.splits.items():
        first = 0
        for _, group in groupby(split.shards, key=lambda shard: shard.span):
            shards = list(group)
            yield Run(name, shards, first)
            first += sum(shard.records for shard in shards)


def open_records(folder: str, shard: Shard, blocks: Numbers | None = None) -> Records:
    """Opens a shard that the manifest in a folder lists; `blocks` as `Records`. Raises: DatasetError."""
    file = ShardFile(*shard_paths(folder, shard).full, shard.records, shard.bytes, shard.sha256)
    return Records([file], blocks)


def find_in(records: Records, digests: Sequence[bytes]) -> list[int]:
    """Gives the numbers of the records of one shard whose keys have some digests, rising.

    Raises:
        DatasetError: a record that was looked at is damaged, or the shard or its index is.
    """
    numbers = []
    for wanted in sorted(digests, key=_position):
        record = bisect_left(range(len(records)), _position(wanted), key=lambda at: key_at(records, at)[0].position)
        while record < len(records):  # two keys of one position lie side by side
            hashed, key = key_at(records, record)
            if hashed.position != _position(wanted):
                break
            if digest(key) == wanted:
                numbers.append(record)
            record += 1
    return numbers


def key_digest(record: bytes) -> bytes:
    """Gives the digest of a record's key. Raises: RowError: it is no record."""
    return digest(bytes(parse([record], KEY_ALONE)[KEY][0]))


def key_at(records: Records, record: int) -> tuple[KeyHash, bytes]:
    """Reads a record's key, with its hashes. Raises: DatasetError: the record is damaged, or the shard is."""
    with naming_damage(records, record):
        (data,) = records.read(np.array([record]))
        key = bytes(parse([data], KEY_ALONE)[KEY][0])
    return hash_key(key), key


@contextmanager
def naming_damage(records: Records, first: int = 0) -> Iterator[None]:
    """Names the shard and the record where one of those that are read, from number `first` on, is damaged.

    Raises:
        DatasetError: it is.
    """
    try:
        yield
    except RowError as error:
        raise DatasetError(f"{records.where(first + error.row)}: {error.message}; run `recordmill verify`") from None


def _position(key_digest: bytes) -> int:
    return int.from_bytes(key_digest[8:16], "big")
