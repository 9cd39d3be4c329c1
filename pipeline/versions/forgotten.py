"""The keys that must not come back: a list in the output. `recordmill versions forget` writes it, builds honour it.

    OUT/forgotten.json

A key stands there as the digest by which rows are placed (`pipeline.dataset.placement`), so a row that was forgotten is
found in any version without reading all, and the list names nobody. Who has the list can still confirm a guess.

>>> forgotten = add(open_store("out"), [b"cats/17.jpg"])  # doctest: +SKIP
>>> forgotten.holds(b"cats/17.jpg")  # doctest: +SKIP
True
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.manifest import Json, Manifest, read_manifest, version_folder
from recordmill.pipeline.dataset.placement import Hashes, digest
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.versions.latest_file import TRIES, now
from recordmill.pipeline.versions.stores.base import Conflict, OutputError, Store, UnsettledOutputError

FILE = "forgotten.json"
FORMAT = 1
ENTRY, LEARNED_OF = "forgotten", "learned_of"
"""The entry of a manifest's provenance on the list that the version's rows are without."""


@dataclass(frozen=True)
class Forgotten:
    """The digests of forgotten keys, 24 bytes each as 48 hexadecimal digits, with the times in UTC."""

    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def digests(self) -> list[bytes]:
        """The digests."""
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
        """Finds the few keys that may be forgotten by their position hashes: int64 [keys found], increasing."""
        return np.flatnonzero(np.isin(positions, self._positions))

    def are_left_out_of(self, manifest: Manifest) -> bool:
        """Whether a version was made without all keys of this list."""
        entry = manifest.provenance.get(ENTRY) or {}
        return str(entry.get("keys_sha256", "")) == self.sha256

    def rows_key(self, key: str) -> str:
        """Makes the key of a build or version that leaves these rows out of the key of one that does not."""
        return hashlib.sha256(f"{key}\nforgotten {self.sha256}".encode()).hexdigest() if self.keys else key

    def entry(self, source_key: str, learned_of: str | None = None) -> Json:
        """Describes the list in a manifest's provenance.

        Args:
            source_key: the source key of a build that leaves nothing out.
            learned_of: the version that the statistics are of, where these rows were taken out later.
        """
        entry = {"keys": len(self.keys), "keys_sha256": self.sha256, "source_key": source_key}
        return entry | ({LEARNED_OF: learned_of} if learned_of else {})

    def to_text(self) -> str:
        """Returns the list's text."""
        return json.dumps({"format": FORMAT, "keys": dict(sorted(self.keys.items()))}, indent=1) + "\n"


def check(store: Store, version: str) -> None:
    """Refuses to make a version live that was built before some keys were forgotten.

    Raises:
        UnsettledOutputError: it was. OutputError: the list is broken. DatasetError: the manifest is.
    """
    gone = load(store)
    if gone.keys and not gone.are_left_out_of(read_manifest(version_folder(store.location, version))):
        raise UnsettledOutputError(f"keys were forgotten in {store.url} since {version} was built: build again")


def source_key_of(manifest: Manifest) -> str:
    """Returns the source key that a version would have if nothing had been forgotten."""
    entry = manifest.provenance.get(ENTRY) or {}
    return str(entry.get("source_key", manifest.source_key))


def load(store: Store) -> Forgotten:
    """Reads the list of an output; an empty one where nothing was forgotten. Raises: OutputError if it is broken."""
    content = store.read(FILE)
    return Forgotten() if content is None else _parse(store, content)


def add(store: Store, keys: Collection[bytes]) -> Forgotten:
    """Adds keys to the list; gives all of it. Raises: OutputError if it is broken or cannot be written."""
    for _ in range(TRIES):
        content = store.read_tagged(FILE)
        before = Forgotten() if content is None else _parse(store, content.data)
        time = now()
        after = Forgotten({**{digest(key).hex(): time for key in keys}, **before.keys})
        if after.keys == before.keys:
            return before
        try:
            store.write_if(FILE, after.to_text().encode(), content.tag if content else None)
        except Conflict:
            continue
        return after
    raise OutputError(f"other processes keep changing {store.location / FILE}: run the same command again")


def _parse(store: Store, data: bytes) -> Forgotten:
    try:
        parsed = parse_json(data)
        keys = {key: str(time) for key, time in parsed["keys"].items() if len(bytes.fromhex(key)) == 24}
        if parsed["format"] != FORMAT or len(keys) != len(parsed["keys"]):
            raise ValueError(f"format {parsed['format']}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a DatasetError is a ValueError
        # Nobody may build as if nothing had been forgotten.
        raise OutputError(f"{store.location / FILE} is broken ({error}): restore it from a copy") from None
    return Forgotten(keys)
