"""The stored record of a key: found by halving, since the records of a shard rise by (hash, key).

>>> StoredRows(folder, manifest).find(b"cats/1.jpg")  # doctest: +SKIP
StoredRow(split='train', place=Place(file=…, record=12, offset=3456), data=b'…')
"""

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recordmill.pipeline.dataset.key_hash import hash_key, shard_of
from recordmill.pipeline.dataset.manifest import Manifest, Shard
from recordmill.pipeline.reader.parsing.examples import parse
from recordmill.pipeline.reader.records.random_access import Records, ShardFile
from recordmill.transforms.contract.stored import KEY, Stored


class StoredRow(NamedTuple):
    """A record, and where it lies."""

    file: str
    """Its shard, in the version's folder."""
    record: int
    """Its number in the shard, from 0."""
    offset: int
    """Its byte offset there."""
    data: bytes


class StoredRows:
    """The records of a version, by key; not of packed texts, whose records hold many rows."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest

    def find(self, key: bytes) -> list[StoredRow]:
        """Gives the records of a key: none, one, or one of each split that has it.

        Raises:
            RowError, DatasetError: a record or an index that was looked at is damaged.
        """
        return [row for split in self._manifest.splits for row in self._in_split(split, key)]

    def _in_split(self, split: str, key: bytes) -> Iterator[StoredRow]:
        shards = self._manifest.splits[split].shards
        shard = shards[shard_of(hash_key(key).position, len(shards))]
        with Records([self._shard_file(shard)]) as records:

            def place(record: int) -> tuple[int, bytes]:
                found = _key(records.read(np.array([record]))[0])
                return hash_key(found).position, found

            wanted = (hash_key(key).position, key)
            record = bisect_left(range(len(records)), wanted, key=place)
            if record < len(records) and place(record) == wanted:
                data = bytes(records.read(np.array([record]))[0])
                yield StoredRow(shard.file, record, int(records.where(record).offset), data)

    def _shard_file(self, shard: Shard) -> ShardFile:
        file, index = (str(self._folder / path) for path in (shard.file, shard.index))
        return ShardFile(file, index, shard.records, shard.bytes, shard.sha256)


def _key(record: bytes | memoryview) -> bytes:
    return bytes(parse([record], {KEY: Stored("bytes")})[KEY][0])  # type: ignore[arg-type]
