"""The place of a record: split, position in the order of all records, and shard, by its key's hash alone.

One keyed blake2b digest gives three independent 64-bit numbers: splitting, ordering and sampling depend neither on each
other nor on the machine, the run or the order of the input. A group is one shard of one split; groups are numbered
across splits; with spans, span by span, and a split's shards are those of the first span, then of the second.

>>> days = {"monday": {"train": 2, "test": 1}, "tuesday": {"train": 1, "test": 1}}
>>> layout = Layout.of_spans({"train": 9, "test": 1}, days)
>>> [layout.shard_of_group(group) for group in range(layout.groups)]
[('train', 0), ('train', 1), ('test', 0), ('train', 2), ('test', 1)]
"""

import codecs
import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
PERSON = b"recordmill.v1"  # changing it moves every record of every dataset
SYNONYMS = {
    "train": ("training",),
    "validation": ("valid", "val", "dev", "eval", "publictest"),
    "test": ("testing", "privatetest"),
}
SPLITS = {word: split for split, words in SYNONYMS.items() for word in (split, *words)}  # the split by its usual names
_unpack = struct.Struct(">3Q").unpack


class KeyHash(NamedTuple):
    """The numbers of a key, each uniform in [0, 2**64)."""

    split: int
    position: int
    sample: int


def hash_key(key: bytes) -> KeyHash:
    """Hashes a key of any length (blake2b, RFC 7693, 24 bytes)."""
    return KeyHash(*_unpack(digest(key)))


def hash_keys(keys: list[bytes]) -> tuple[Hashes, Hashes, Hashes]:
    """Returns the split, position and sample hashes of keys, each uint64 of shape [keys]."""
    numbers = np.frombuffer(b"".join(map(digest, keys)), ">u8").astype(np.uint64).reshape(-1, 3)
    return numbers[:, 0], numbers[:, 1], numbers[:, 2]


def as_key(key: str | bytes) -> bytes:
    """Returns a key as records hold it; a string may have surrogates for invalid UTF-8. Raises: DatasetError."""
    if not isinstance(key, str | bytes):
        raise DatasetError(f"a key is a string or bytes, got {cut(repr(key))}")
    return key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape")


def read_keys(file: Path) -> list[bytes]:
    """Reads a file of keys, one a line, without empty lines and the mark that Windows' programs begin it with."""
    return [line for line in file.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines() if line]


def digest(key: bytes) -> bytes:
    """Returns 24 bytes: the three numbers of `hash_key`, big-endian."""
    return hashlib.blake2b(key, digest_size=24, person=PERSON).digest()


def content_digest(content: bytes) -> bytes:
    """Returns the key of a row identified by its content: 16 bytes of blake2b, as 32 hex digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


def join_key(values: Iterable[str]) -> bytes:
    """Joins columns' values to a unique key: one's UTF-8; of several each behind its length, `3:cat1:7`."""
    parts = [value.encode() for value in values]
    if len(parts) == 1:
        return parts[0]
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def split_bounds(weights: Mapping[str, float]) -> list[int]:
    """Returns the upper bounds of the splits' hash ranges, in the given order; the last is 2**64.

    A key is in the first split with a bound greater than its split hash.
    Raises: ValueError: without weights, or a weight is negative or rounds to 0, or the sum is 0 or beyond 1e300.
    """
    if not weights or min(weights.values()) < 0 or not 0 < sum(weights.values()) < 1e300:
        raise ValueError(f"splits need weights of 0 or more, below 1e300, with a sum above 0, got {dict(weights)}")
    shares = [round(weight * 1_000_000) for weight in weights.values()]  # integers: exact on every machine
    for (name, weight), share in zip(weights.items(), shares, strict=True):
        if weight and share * 1_000_000 < max(1, sum(shares) - share):
            raise ValueError(f"the share {weight:g} of '{name}' rounds to 0: give at least 0.000001, 1 of a million")
    return [(cumulated << 64) // sum(shares) for cumulated in accumulate(shares)]


def shard_of(positions: Hashes | int, shards: Numbers | int) -> Numbers:
    """Returns the shards of position hashes: equal ranges, so the records' order does not depend on `shards`.

    Computes `position * shards >> 64` in halves of 32 bits, for fewer than 2**32 shards.

    >>> shard_of(np.array([0, 2**62, 2**64 - 1], np.uint64), 4)
    array([0, 1, 3])
    """
    positions, counts = np.asarray(positions, np.uint64), np.asarray(shards).astype(np.uint64)
    low = (positions & np.uint64(0xFFFFFFFF)) * counts >> np.uint64(32)
    return ((positions >> np.uint64(32)) * counts + low >> np.uint64(32)).astype(np.int64)


def shard_count(bytes_: int, target: int) -> int:
    """Returns the power of two, at least 1, that makes shards of `bytes_` in total at most `target` bytes each."""
    return 1 << max(0, -(-bytes_ // target) - 1).bit_length()


@dataclass(frozen=True)
class Layout:
    """The splits of a dataset with their shares and numbers of shards."""

    weights: Mapping[str, float]
    shards: Mapping[str, int]  # the number of shards of each split, over all spans
    spans: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The number of shards of each split in each span, in order; empty without spans."""

    @classmethod
    def of_spans(cls, weights: Mapping[str, float], spans: Mapping[str, Mapping[str, int]]) -> Self:
        """Makes the layout of spans."""
        return cls(weights, {split: sum(counts[split] for counts in spans.values()) for split in weights}, spans)

    @cached_property
    def splits(self) -> list[str]:
        """The names of the splits, in order."""
        return list(self.weights)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.spans or [""])}

    @cached_property
    def _counts(self) -> Numbers:
        """The number of shards, [spans, splits]; one row without spans."""
        each = self.spans.values() or [self.shards]
        return np.array([[counts[split] for split in self.splits] for counts in each], np.int64)

    @cached_property
    def _first_group(self) -> Numbers:
        """The first group of each split in each span, flat, and the number of groups."""
        return np.concatenate([[0], np.cumsum(self._counts)])

    @cached_property
    def _first_shard(self) -> Numbers:
        """The first shard's number of each split in each span, [spans, splits]."""
        return np.cumsum(self._counts, axis=0) - self._counts

    @property
    def groups(self) -> int:
        """The number of shards of all splits."""
        return int(self._first_group[-1])

    def split_of(self, split_hashes: Hashes) -> Numbers:
        """Returns the keys' splits, as positions in `splits`."""
        bounds = np.array([bound for bound in split_bounds(self.weights) if bound < 1 << 64], np.uint64)
        return np.searchsorted(bounds, split_hashes, side="right").astype(np.int64)

    def group_of(self, splits: Numbers, positions: Hashes, span: str | None = None) -> Numbers:
        """Returns the groups of one span's records, by their splits' indexes and position hashes."""
        row = 0 if span is None else self._rows[span]
        first = self._first_group[row * len(self.splits) :]
        return first[splits] + shard_of(positions, self._counts[row][splits])

    def shard_of_group(self, group: int) -> tuple[str, int]:
        """Returns a group's split, and its shard's number there."""
        span, split = self._cell(group)
        number = group - int(self._first_group[span * len(self.splits) + split]) + int(self._first_shard[span, split])
        return self.splits[split], number

    def span_of_group(self, group: int) -> str | None:
        """Returns the span of a group; None without spans."""
        return list(self.spans)[self._cell(group)[0]] if self.spans else None

    def groups_of_span(self, span: str) -> range:
        """Returns the groups of a span, split by split; without spans of "", all."""
        row, splits = self._rows[span], len(self.splits)
        return range(int(self._first_group[row * splits]), int(self._first_group[(row + 1) * splits]))

    def group(self, split: str, shard: int) -> int:
        """Returns the group of a split's shard."""
        column = self.splits.index(split)
        span = int(np.searchsorted(self._first_shard[:, column], shard, side="right")) - 1
        first = int(self._first_group[span * len(self.splits) + column])
        return first + shard - int(self._first_shard[span, column])

    def _cell(self, group: int) -> tuple[int, int]:
        return divmod(int(np.searchsorted(self._first_group, group, side="right")) - 1, len(self.splits))


def strata_of(split_hashes: Hashes, classes: Sequence[str], bounds: Mapping[str, Sequence[int]]) -> Numbers:
    """Returns the keys' splits, as positions, by bounds of each class (stratified); any split for another class."""
    pairs = zip(classes, split_hashes.tolist(), strict=True)
    return np.array([bisect_right(bounds.get(name, ()), hash_) for name, hash_ in pairs], np.int64)
