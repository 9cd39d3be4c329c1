"""The state of an output: `LATEST`, its forgotten keys, and a snapshot of both for the next version.

`LATEST` is replaced by compare-and-swap: read, decide, write if nobody wrote meanwhile, else retry.

The forgotten keys stand in `forgotten.json`, written by `recordmill versions forget` and honoured by builds. Each is
the digest that places its row (`pipeline.dataset.placement`): a forgotten row is found in any version without reading
all of it, and the list contains no keys. Whoever has the list can confirm a guess. An adopted file may get another
name, and its name another file. So the list has adopted records by their features (`wire.content_of`), and by number
in a file of this SHA-256 instead of this name.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset import manifest as datasets
from recordmill.pipeline.dataset.file_names import output_sizes, span_of_file
from recordmill.pipeline.dataset.manifest import LATEST_FILE, VERSIONS_FOLDER, Json, Latest, Manifest, version_folder
from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.dataset.placement import Hashes, digest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import NewerFormatError, check_format, parse_json
from recordmill.pipeline.versions.stores.base import Conflict, Content, OutputError, Store, UnsettledOutputError
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.open_store import open_location, open_store

TRIES, PAUSE_SECONDS = 50, 0.2
FORGOTTEN_FILE = "forgotten.json"
FORMAT = 1
FORGOTTEN, LEARNED_OF = "forgotten", "learned_of"
"""The entry of a manifest's provenance on keys left out, and one name in it."""


def latest_of(store: Store) -> Latest | None:
    """Reads `LATEST`, if a version is published. Raises: OutputError: it is broken or not readable."""
    return _parse_latest(store, store.read_tagged(LATEST_FILE), mend=False)


def swap(store: Store, name: str, edit: Callable[[Content | None], bytes | None]) -> None:
    """Replaces an object by `edit(content)` (None: missing, or no change), with retries. Raises: OutputError."""
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
    """Replaces `LATEST` as `swap`, by `edit(latest)`; `mend` takes a broken one as missing. Raises: OutputError."""
    edited = list[Latest]()

    def text(content: Content | None) -> bytes | None:
        latest = _parse_latest(store, content, mend)
        edited.append(edit(latest))
        return None if edited[-1] == latest else edited[-1].to_text().encode()

    swap(store, LATEST_FILE, text)
    return edited[-1]


def now() -> str:
    """Formats the present time, in UTC, as in `LATEST`."""
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


def rolls_back(output: str) -> str:
    """Names the command that mends an output with a damaged `LATEST` or live version."""
    return f"`recordmill versions rollback {output} VERSION` makes a version live"


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
        return np.frombuffer(b"".join(self.digests), ">u8").reshape(-1, 3)[:, 1].astype(np.uint64)

    def holds(self, key: bytes) -> bool:
        """Whether a key was forgotten."""
        return digest(key) in self._known

    def near(self, positions: Hashes) -> npt.NDArray[np.int64]:
        """Finds the few keys that may be forgotten, by position hash: int64 [keys found], increasing."""
        return np.flatnonzero(np.isin(positions, self._positions))

    def are_left_out_of(self, manifest: Manifest) -> bool:
        """Whether a version was made without the keys of this list."""
        return str((manifest.provenance.get(FORGOTTEN) or {}).get("keys_sha256", "")) == self.sha256

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
    return str((manifest.provenance.get(FORGOTTEN) or {}).get("source_key", manifest.source_key))


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


def awaits_approval(latest: Latest | None, manifest: Manifest) -> bool:
    """Whether a version needs approval: the gate held it back, or a person rolled back its inputs."""
    was_live = {latest.version, *latest.retired} if latest else set()
    held = bool(manifest.gate.get("breaches")) and manifest.version not in was_live
    return held or is_rolled_back(latest, manifest)


def is_held_back(latest: Latest | None, manifest: Manifest) -> bool:
    """Whether a version awaits approval and was never live."""
    return awaits_approval(latest, manifest) and not (latest and manifest.version in latest.retired)


def is_rolled_back(latest: Latest | None, manifest: Manifest) -> bool:
    """Whether a person rolled back a version of these inputs or rows, and made none live since."""
    if latest is None or latest.version == manifest.version:
        return False
    return not _marks(manifest).isdisjoint(latest.rolled_back)


def rolled_back(latest: Latest | None, chosen: Manifest, left: Iterable[Manifest] = ()) -> tuple[str, ...]:
    """Returns the marks of rolled back versions: earlier ones and those of newer `left`, except the chosen's."""
    marks = {*latest.rolled_back} if latest else set()
    newer = (_marks(each) for each in left if each.sequence > chosen.sequence)
    return tuple(sorted(marks.union(*newer) - _marks(chosen)))


def _marks(manifest: Manifest) -> set[str]:
    """Returns a version's marks for rollbacks: its source key and, because files may be touched, its shards' digest."""
    shards = "".join(map(manifest.content_of, manifest.shards))
    return {source_key_of(manifest), hashlib.sha256(shards.encode()).hexdigest()}


def missing_files(store: Store, manifest: Manifest, staged: str | None = None) -> dict[str, str | None]:
    """Maps missing or mis-sized files of a version, `staged` in a folder or shown, to their spans (None: no span)."""
    own = f"{VERSIONS_FOLDER}/{manifest.version}"
    files = {f"{own}/{path}": (entry["bytes"], span_of_file(path)) for path, entry in manifest.files.items()}
    for shard in manifest.shards:
        files |= {name: (size, shard.span) for name, size in output_sizes(shard, manifest.version).items()}
    sizes = store.sizes(VERSIONS_FOLDER if any(shard.version for shard in manifest.shards) else own)
    if staged is not None:
        sizes |= {f"{own}/{path}": size for path, size in LocalStore(staged).sizes().items()}
    return {name: span for name, (size, span) in files.items() if sizes.get(name) != size}


@dataclass(frozen=True)
class Base:
    """A snapshot of an output: the live version and the forgotten keys."""

    output: str
    latest: Latest | None = None
    live: Manifest | None = None  # if readable
    fault: str = ""  # of an unreadable manifest
    forgotten: Forgotten = field(default_factory=Forgotten)

    @classmethod
    def read(cls, output: str, name: str | None = None, *, is_adopted: bool | None = None) -> "Base":
        """Reads an output of the dataset `name`, adopted or built; None: any. Raises: OutputError: broken, another."""
        store = open_store(output)
        latest, live, fault = latest_of(store), None, ""
        if latest is not None:
            try:
                live = datasets.read_manifest(version_folder(store.location, latest.version))
            except DatasetError as error:
                fault = str(error)
        if live is not None and name not in (None, live.name):
            holds = f"the output {store.url} holds the dataset '{live.name}'"
            raise OutputError(f"{holds}, and the spec's name is '{name}': use another")
        if live is not None and is_adopted not in (None, bool(live.adopted)):
            held, other = ("a built dataset", "adopted files")[:: -1 if live.adopted else 1]
            raise OutputError(f"the output {output} holds {held}: give another for {other}")
        return cls(output, latest, live, fault, read_forgotten(store))

    @property
    def version(self) -> str | None:
        """The name of the live version, if any."""
        return self.latest.version if self.latest else None

    @property
    def folder(self) -> Location:
        """The folder of the live version, which must exist."""
        return self.folder_of(self.version or "")

    def folder_of(self, version: str) -> Location:
        """Returns the folder of a version."""
        return version_folder(open_location(self.output), version)

    @property
    def holds_forgotten_rows(self) -> bool:
        """Whether keys were forgotten after the live version was made."""
        return self.live is not None and not self.forgotten.are_left_out_of(self.live)

    @cached_property
    def missing(self) -> dict[str, str | None]:
        """The `missing_files` of the live version."""
        return missing_files(open_store(self.output), self.live) if self.live else {}

    def is_current(self) -> bool:
        """Whether the output is unchanged. Raises: OutputError, as `read`."""
        store = open_store(self.output)
        return latest_of(store) == self.latest and read_forgotten(store).sha256 == self.forgotten.sha256

    def check(self, latest: Latest | None) -> None:
        """Checks that the output, with its present `latest`, is unchanged. Raises: UnsettledOutputError."""
        if (latest and latest.version) != self.version:
            raise UnsettledOutputError(f"another version of {self.output} became live: run the same command again")
        if read_forgotten(open_store(self.output)).sha256 != self.forgotten.sha256:
            raise UnsettledOutputError(f"keys were forgotten in {self.output} meanwhile: run the same command again")
