"""The stable hash of a record's key: its split, its place in the order of all records, its shard.

Three independent 64-bit numbers are cut from one keyed blake2b digest, so that splitting, ordering and sampling never
depend on one another, nor on the machine, the run or the order of the input.

>>> hash_key(b"cats/1.jpg").split == hash_key(b"cats/1.jpg").split
True
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
PERSON = b"recordmill.v1"  # changing it moves every record of every dataset
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
    """The split, position and sample hashes of keys, each uint64 of shape [keys]."""
    numbers = np.frombuffer(b"".join(map(digest, keys)), ">u8").astype(np.uint64).reshape(-1, 3)
    return numbers[:, 0], numbers[:, 1], numbers[:, 2]


def digest(key: bytes) -> bytes:
    """The 24 bytes that `hash_key` reads as three big-endian numbers: split, position, sample."""
    return hashlib.blake2b(key, digest_size=24, person=PERSON).digest()


def content_digest(content: bytes) -> bytes:
    """The key of a row that is known by its content alone: 16 bytes of blake2b, as 32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


def join_key(values: Iterable[str]) -> bytes:
    """Makes one key of several columns' values; different values never give the same key.

    A single value is its own UTF-8. Of several, each is prefixed by its length in bytes: `3:cat1:7`.
    """
    parts = [value.encode() for value in values]
    if len(parts) == 1:
        return parts[0]
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def split_bounds(weights: Mapping[str, float]) -> list[int]:
    """The upper bounds of the splits' hash ranges, in the order given.

    A key is in the first split whose bound is greater than its split hash. The last bound is 2**64.

    Raises:
        ValueError: no weights, a negative one, or a sum of 0.
    """
    if not weights or min(weights.values()) < 0 or not any(weights.values()):
        raise ValueError(f"splits need weights of 0 or more with a sum above 0, got {dict(weights)}")
    shares = [round(weight * 1_000_000) for weight in weights.values()]  # integers: exact on every machine
    total = sum(shares)
    if not total:
        raise ValueError(f"the splits' weights are too small: {dict(weights)}")
    return [(cumulated << 64) // total for cumulated in accumulate(shares)]


def shard_of(positions: Hashes | int, shards: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """The shards of position hashes: equal ranges, so that any number of shards, one after another, is one order.

    That is `position * shards >> 64`, computed in halves of 32 bits; there are fewer than 2**32 shards.

    >>> shard_of(np.array([0, 2**62, 2**64 - 1], np.uint64), 4)
    array([0, 1, 3])
    """
    positions, counts = np.asarray(positions, np.uint64), np.asarray(shards).astype(np.uint64)
    low = (positions & np.uint64(0xFFFFFFFF)) * counts >> np.uint64(32)
    return ((positions >> np.uint64(32)) * counts + low >> np.uint64(32)).astype(np.int64)


def shard_count(bytes_: int, target: int) -> int:
    """The power of two that brings shards of `bytes_` in all to `target` bytes or a little less; at least 1."""
    return 1 << max(0, -(-bytes_ // target) - 1).bit_length()
