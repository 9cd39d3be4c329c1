"""The state of an output: `LATEST`, the keys that must not come back, and a snapshot of both for the next version.

`LATEST` is replaced by compare-and-swap: read, decide, write if nobody wrote meanwhile, else again. The keys are in
`forgotten.json`, which `recordmill versions forget` writes and builds honour: each as the digest by which rows are
placed (`pipeline.dataset.placement`), so a forgotten row is found in any version without reading all, and the list
names nobody. Who has the list can still confirm a guess.

>>> compare_and_swap(open_store("out"), lambda latest: moved(latest, "20261120T120000Z-4f1c9a2e", 7))  # doctest: +SKIP
>>> add_forgotten(open_store("out"), [b"cats/17.jpg"]).holds(b"cats/17.jpg")  # doctest: +SKIP
True
>>> Base.read("out").live.version  # doctest: +SKIP
'20261120T120000Z-4f1c9a2e'
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.file_names import inner_sizes, span_of_file
from recordmill.pipeline.dataset.manifest import (
    LATEST_FILE,
    VERSIONS_FOLDER,
    DatasetError,
    Json,
    Latest,
    Location,
    Manifest,
    read_manifest,
    version_folder,
)
from recordmill.pipeline.dataset.placement import Hashes, digest
from recordmill.pipeline.json_values import NewerFormatError, check_format, parse_json
from recordmill.pipeline.versions.stores.base import Conflict, Content, OutputError, Store, UnsettledOutputError
from recordmill.pipeline.versions.stores.open_store import open_location, open_store

TRIES, PAUSE_SECONDS = 50, 0.2
FORGOTTEN_FILE = "forgotten.json"
FORMAT = 1  # of the list of forgotten keys
FORGOTTEN, LEARNED_OF = "forgotten", "learned_of"
"""The entry of a manifest's provenance on the list that the version's rows are without."""


def latest_of(store: Store) -> Latest | None:
    """Reads `LATEST`; None if nothing is published. Raises: OutputError: it is broken, or the store cannot be read."""
    return _parse_latest(store, store.read_tagged(LATEST_FILE), mend=False)


def swap(store: Store, name: str, edit: Callable[[Content | None], bytes | None]) -> None:
    """Replaces an object atomically by what `edit` makes of it, None where it is not there; None leaves it.

    `edit` is called again if another process wrote first.

    Raises:
        UnsettledOutputError: others replace it again and again. OutputError: it cannot be read or written.
    """
    with store.locked():
        for _ in range(TRIES):
            content = store.read_tagged(name)
            data = edit(content)
            if data is None:
                return
            with suppress(Conflict):
                store.write_if(name, data, content.tag if content else None)
                return
            time.sleep(PAUSE_SECONDS)
    raise UnsettledOutputError(f"other processes keep changing {store.location / name}: run the same command again")


def compare_and_swap(store: Store, edit: Callable[[Latest | None], Latest], *, mend: bool = False) -> Latest:
    """Replaces `LATEST` atomically by what `edit` makes of it.

    `edit` takes the pointer, None if nothing is published, and returns the new one. It is called again if another
    process wrote first. With `mend`, a broken `LATEST` counts as missing.

    Raises:
        OutputError: it is broken, cannot be written, or others replace it again and again.
    """
    edited = list[Latest]()

    def text(content: Content | None) -> bytes | None:
        latest = _parse_latest(store, content, mend)
        edited.append(edit(latest))
        return None if edited[-1] == latest else edited[-1].to_text().encode()

    swap(store, LATEST_FILE, text)
    return edited[-1]


def moved(latest: Latest | None, version: str, sequence: int) -> Latest:
    """Points `LATEST` to another version, and notes when the previous one stopped being live.

    Raises:
        OutputError: the version is being deleted.
    """
    if latest is None:
        return Latest(version, sequence)
    if version in latest.removing:
        raise UnsettledOutputError(f"the version {version} is being deleted: choose another, or build again")
    retired = latest.retired if latest.version == version else {**latest.retired, latest.version: now()}
    retired = {name: time for name, time in retired.items() if name != version}
    same = latest.same if latest.version == version else ()
    return replace(latest, version=version, sequence=sequence, retired=retired, same=same)


def awaits_approval(latest: Latest | None, manifest: Manifest) -> bool:
    """Whether only a person makes a version live: the gate held it back, or a person rolled back its inputs."""
    was_live = {latest.version, *latest.retired} if latest else set()
    held = bool(manifest.gate.get("breaches")) and manifest.version not in was_live
    return held or is_rolled_back(latest, manifest)


def is_held_back(latest: Latest | None, manifest: Manifest) -> bool:
    """Whether a version awaits approval, and was never live."""
    return awaits_approval(latest, manifest) and not (latest and manifest.version in latest.retired)


def is_rolled_back(latest: Latest | None, manifest: Manifest) -> bool:
    """Whether a person rolled back a version of these inputs or rows, and made none of them live since."""
    if latest is None or latest.version == manifest.version:
        return False
    return not _marks(manifest).isdisjoint(latest.rolled_back)


def rolled_back(latest: Latest | None, chosen: Manifest, left: Iterable[Manifest] = ()) -> tuple[str, ...]:
    """Returns the marks of what is rolled back: those so far, and of newer versions that are left; not the chosen's."""
    marks = {*latest.rolled_back} if latest else set()
    newer = (_marks(each) for each in left if each.sequence > chosen.sequence and not each.trial)
    return tuple(sorted(marks.union(*newer) - _marks(chosen)))


def _marks(manifest: Manifest) -> set[str]:
    """Returns what a rollback remembers of a version: its source key and, as files may be touched, its shards."""
    shards = "".join(shard.sha256 for shard in manifest.shards)
    return {source_key_of(manifest), hashlib.sha256(shards.encode()).hexdigest()}


def now() -> str:
    """Formats this machine's time, in UTC, as `LATEST` holds it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _parse_latest(store: Store, content: Content | None, mend: bool) -> Latest | None:
    if content is None:
        return None
    try:
        return Latest.from_json(parse_json(content.data))
    except DatasetError as error:
        if mend and not isinstance(error, NewerFormatError):
            return None
        raise OutputError(f"{store.location / LATEST_FILE} is broken ({error}): {rolls_back(store.url)}") from None


@dataclass(frozen=True)
class Forgotten:
    """The digests of forgotten keys, 24 bytes each as 48 hexadecimal digits, with the times in UTC."""

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
        """Finds the few keys that may be forgotten by their position hashes: int64 [keys found], increasing."""
        return np.flatnonzero(np.isin(positions, self._positions))

    def are_left_out_of(self, manifest: Manifest) -> bool:
        """Whether a version was made without all keys of this list."""
        entry = manifest.provenance.get(FORGOTTEN) or {}
        return str(entry.get("keys_sha256", "")) == self.sha256

    def rows_key(self, key: str) -> str:
        """Makes the key of a build or version that leaves these rows out of the key of one that does not."""
        return hashlib.sha256(f"{key}\nforgotten {self.sha256}".encode()).hexdigest() if self.keys else key

    def entry(self, source_key: str, learned_of: str | None = None) -> Json:
        """Describes the list in a manifest's provenance, with the source key of a build that leaves nothing out.

        `learned_of` is the version that the statistics are of, where these rows were taken out later.
        """
        entry = {"keys": len(self.keys), "keys_sha256": self.sha256, "source_key": source_key}
        return entry | ({LEARNED_OF: learned_of} if learned_of else {})

    def to_text(self) -> str:
        """Formats the list as its file holds it."""
        return json.dumps({"format": FORMAT, "keys": dict(sorted(self.keys.items()))}, indent=1) + "\n"


def check_forgotten(store: Store, version: str) -> None:
    """Refuses to make a version live that was built before some keys were forgotten.

    Raises:
        UnsettledOutputError: it was. OutputError: the list is broken. DatasetError: the manifest is.
    """
    forgotten = read_forgotten(store)
    if forgotten.keys and not forgotten.are_left_out_of(read_manifest(version_folder(store.location, version))):
        raise UnsettledOutputError(f"keys were forgotten in {store.url} since {version} was built: build again")


def source_key_of(manifest: Manifest) -> str:
    """Returns the source key that a version would have if nothing had been forgotten."""
    entry = manifest.provenance.get(FORGOTTEN) or {}
    return str(entry.get("source_key", manifest.source_key))


def read_forgotten(store: Store) -> Forgotten:
    """Reads the list of an output; an empty one where nothing was forgotten. Raises: OutputError if it is broken."""
    return _parse_forgotten(store, store.read_tagged(FORGOTTEN_FILE))


def add_forgotten(store: Store, keys: Collection[bytes]) -> Forgotten:
    """Adds keys to the list, and returns all of it. Raises: OutputError if it is broken or cannot be written."""
    lists = list[Forgotten]()

    def text(content: Content | None) -> bytes | None:
        before = _parse_forgotten(store, content)
        lists.append(Forgotten({**dict.fromkeys((digest(key).hex() for key in keys), now()), **before.keys}))
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
        # Nobody may build as if nothing had been forgotten.
        raise OutputError(f"{store.location / FORGOTTEN_FILE} is broken ({error}): restore it from a copy") from None
    return Forgotten(keys)


def missing_files(store: Store, manifest: Manifest) -> dict[str, str | None]:
    """Maps the files of a version that are not there with their sizes to their spans; None for those of no span."""
    own = f"{VERSIONS_FOLDER}/{manifest.version}"
    files = {f"{own}/{path}": (entry["bytes"], span_of_file(path)) for path, entry in manifest.files.items()}
    for shard in manifest.shards:
        folder = own if shard.version is None else VERSIONS_FOLDER
        for path, size in inner_sizes(shard).items():
            if path != shard.index or path in manifest.files:
                files[f"{folder}/{path}"] = size, shard.span
    sizes = store.sizes(VERSIONS_FOLDER if any(shard.version for shard in manifest.shards) else own)
    return {name: span for name, (size, span) in files.items() if sizes.get(name) != size}


def rolls_back(output: str) -> str:
    """Says which command mends an output whose `LATEST` or live version is damaged."""
    return f"`recordmill versions rollback {output} VERSION` makes a version live"


@dataclass(frozen=True)
class Base:
    """A snapshot of an output: the version that is live, and the keys that must not come back."""

    output: str
    latest: Latest | None = None
    live: Manifest | None = None
    """The manifest of the live version; None where nothing is live, or it cannot be read."""
    fault: str = ""
    """Why the manifest of the live version cannot be read."""
    forgotten: Forgotten = field(default_factory=Forgotten)

    @classmethod
    def read(cls, output: str, name: str | None = None) -> "Base":
        """Reads what an output holds now, of the dataset of a name, or of any.

        Raises:
            OutputError: `LATEST` or the list of forgotten keys is broken, the output cannot be read, or it holds a
                dataset of another name.
        """
        store = open_store(output)
        latest, live, fault = latest_of(store), None, ""
        if latest is not None:
            try:
                live = read_manifest(version_folder(store.location, latest.version))
            except DatasetError as error:
                fault = str(error)
        if live is not None and name not in (None, live.name):
            raise OutputError(
                f"the output {store.url} holds the dataset '{live.name}', and the spec's name is '{name}': use another"
            )
        return cls(output, latest, live, fault, read_forgotten(store))

    @property
    def version(self) -> str | None:
        """The name of the live version; None where nothing is live."""
        return self.latest.version if self.latest else None

    @property
    def folder(self) -> Location:
        """The folder of the live version, which there must be."""
        return version_folder(open_location(self.output), self.version or "")

    @property
    def holds_forgotten_rows(self) -> bool:
        """Whether the live version was made before some keys were forgotten."""
        return self.live is not None and not self.forgotten.are_left_out_of(self.live)

    @cached_property
    def missing(self) -> dict[str, str | None]:
        """The `missing_files` of the live version."""
        return missing_files(open_store(self.output), self.live) if self.live else {}

    def is_current(self) -> bool:
        """Whether the output still holds this. Raises: OutputError, as `read`."""
        store = open_store(self.output)
        return latest_of(store) == self.latest and read_forgotten(store).sha256 == self.forgotten.sha256

    def check(self, latest: Latest | None) -> None:
        """Checks that an output, whose `LATEST` is given, still holds this.

        Raises:
            UnsettledOutputError: another version is live, or more keys are forgotten.
        """
        if (latest and latest.version) != self.version:
            raise UnsettledOutputError(
                f"another version of {self.output} became live meanwhile: run the same command again"
            )
        if read_forgotten(open_store(self.output)).sha256 != self.forgotten.sha256:
            raise UnsettledOutputError(f"keys were forgotten in {self.output} meanwhile: run the same command again")
