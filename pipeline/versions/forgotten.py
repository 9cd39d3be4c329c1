"""The forgotten keys of an output: `forgotten.json`, written by `recordmill versions forget` and honoured by builds.

Each is the digest that places its row (`pipeline.dataset.placement`): a forgotten row is found in any version without
reading all of it, and the list contains no keys. Whoever has the list can confirm a guess.

An adopted file may get another name, and its name another file. So the list has adopted records by their features
(`wire.content_of`), and by number in a file of this SHA-256 instead of this name.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.manifest import Json, Manifest
from recordmill.pipeline.dataset.placement import Hashes, digest
from recordmill.pipeline.json_values import check_format, parse_json
from recordmill.pipeline.versions.latest import now, swap
from recordmill.pipeline.versions.stores.base import Content, OutputError, Store

FORGOTTEN_FILE = "forgotten.json"
FORMAT = 1
FORGOTTEN, LEARNED_OF = "forgotten", "learned_of"
"""The entry of a manifest's provenance on keys left out, and one name in it."""


@dataclass(frozen=True)
class Forgotten:
    """The digests of forgotten keys, each 48 hexadecimal digits, with times in UTC."""

    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def digests(self) -> list[bytes]:
        """The digests, 24 bytes each."""
        return [bytes.fromhex(key) for key in self.keys]

    @cached_property
    def sha256(self) -> str:
        """The digest of the list, without the times, in hex; empty for an empty list."""
        return hashlib.sha256("\n".join(sorted(self.keys)).encode()).hexdigest() if self.keys else ""

    @cached_property
    def _known(self) -> frozenset[bytes]:
        return frozenset(self.digests)

    @cached_property
    def _positions(self) -> Hashes:
        numbers = np.frombuffer(b"".join(self.digests), ">u8").reshape(-1, 3)
        return numbers[:, 1].astype(np.uint64)

    def holds(self, key: bytes) -> bool:
        """Whether a key was forgotten."""
        return digest(key) in self._known

    def near(self, positions: Hashes) -> npt.NDArray[np.int64]:
        """Finds the few keys that may be forgotten, by position hash: int64 [keys found], increasing."""
        return np.flatnonzero(np.isin(positions, self._positions))

    def are_left_out_of(self, manifest: Manifest) -> bool:
        """Whether a version was made without the keys of this list."""
        entry = manifest.provenance.get(FORGOTTEN) or {}
        return str(entry.get("keys_sha256", "")) == self.sha256

    def rows_key(self, key: str) -> str:
        """Makes the key of a build without these rows from the key of one with them."""
        return hashlib.sha256(f"{key}\nforgotten {self.sha256}".encode()).hexdigest() if self.keys else key

    def entry(self, source_key: str, learned_of: str | None = None) -> Json:
        """Returns a manifest's entry, with the source key of all rows, and the version of the statistics, if older."""
        entry = {"keys": len(self.keys), "keys_sha256": self.sha256, "source_key": source_key}
        return entry | ({LEARNED_OF: learned_of} if learned_of else {})

    def renamed(self, files: Iterable[tuple[str, str, int]], *, keep: bool = False) -> "Forgotten":
        """Lists records `old:number` as `new:number`, given (old, new, records) of files; with `keep` as both."""
        keys = dict(self.keys)
        for old, new, records in files if keys else ():
            for record in range(records):
                if (before := digest(f"{old}:{record}".encode()).hex()) in keys:
                    keys[digest(f"{new}:{record}".encode()).hex()] = keys[before] if keep else keys.pop(before)
        return Forgotten(keys)

    def named_in(self, manifest: Manifest) -> "Forgotten":
        """Adds the keys that adopted records of the list have in a version."""
        return self.renamed(((sha256, name, records) for name, sha256, records in places(manifest)), keep=True)

    def to_text(self) -> str:
        """Formats the list for its file."""
        return json.dumps({"format": FORMAT, "keys": dict(sorted(self.keys.items()))}, indent=1) + "\n"


def places(manifest: Manifest | None) -> set[tuple[str, str, int]]:
    """Returns name, SHA-256 and records of each adopted file that gives its records their keys."""
    shards = manifest.shards if manifest and manifest.adopted and "key" not in manifest.adopted else ()
    return {(shard.file, shard.sha256, shard.indexed) for shard in shards}


def source_key_of(manifest: Manifest) -> str:
    """Returns the source key of a version with all rows, forgotten ones included."""
    entry = manifest.provenance.get(FORGOTTEN) or {}
    return str(entry.get("source_key", manifest.source_key))


def read_forgotten(store: Store) -> Forgotten:
    """Reads the list of an output, perhaps empty. Raises: OutputError if it is broken."""
    return _parse_forgotten(store, store.read_tagged(FORGOTTEN_FILE))


def add_forgotten(store: Store, keys: Collection[bytes], files: Collection[tuple[str, str, int]] = ()) -> Forgotten:
    """Adds keys to the list, `renamed` by files, and returns it. Raises: OutputError: it is broken or not writable."""
    lists = list[Forgotten]()

    def text(content: Content | None) -> bytes | None:
        before = _parse_forgotten(store, content)
        added = dict.fromkeys((digest(key).hex() for key in keys), now())
        lists.append(Forgotten({**added, **before.keys}).renamed(files))
        return None if lists[-1].keys == before.keys else lists[-1].to_text().encode()

    swap(store, FORGOTTEN_FILE, text)
    return lists[-1]


def _parse_forgotten(store: Store, content: Content | None) -> Forgotten:
    if content is None:
        return Forgotten()
    try:
        parsed = parse_json(content.data)
        check_format(parsed, FORMAT)
        keys = {key: str(time) for key, time in parsed["keys"].items() if len(bytes.fromhex(key)) == 24}
        if len(keys) != len(parsed["keys"]):
            raise ValueError("a digest has another length than 24 bytes")
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a DatasetError is a ValueError
        # No build may ignore the list.
        raise OutputError(f"{store.location / FORGOTTEN_FILE} is broken ({error}): restore it from a copy") from None
    return Forgotten(keys)
