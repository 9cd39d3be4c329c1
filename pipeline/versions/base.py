"""A snapshot of an output for the next version, and the versions awaiting approval."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from recordmill.pipeline.dataset.file_names import output_sizes, span_of_file
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Latest, Manifest, read_manifest, version_folder
from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.versions.forgotten import Forgotten, read_forgotten, source_key_of
from recordmill.pipeline.versions.latest import latest_of
from recordmill.pipeline.versions.stores.base import OutputError, Store, UnsettledOutputError
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.open_store import open_location, open_store


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
        """Reads an output of the dataset `name`, adopted or built, or of any.

        Raises: OutputError: it is broken, or has another one.
        """
        store = open_store(output)
        latest, live, fault = latest_of(store), None, ""
        if latest is not None:
            try:
                live = read_manifest(version_folder(store.location, latest.version))
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
