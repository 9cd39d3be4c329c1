"""The state of an output as work on its next version begins: read once, and compared once as that one is published.

>>> base = Base.read("out/emoji")  # doctest: +SKIP
>>> base.live.version              # doctest: +SKIP
'20261120T120000Z-4f1c9a2e'
"""

from dataclasses import dataclass, field

from recordmill.pipeline.dataset.manifest import (
    DatasetError,
    Latest,
    Location,
    Manifest,
    read_manifest,
    version_folder,
)
from recordmill.pipeline.versions import forgotten, latest_file
from recordmill.pipeline.versions.forgotten import Forgotten
from recordmill.pipeline.versions.stores.base import OutputError, UnsettledOutputError
from recordmill.pipeline.versions.stores.open_store import open_location, open_store


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
        """Reads what an output holds now.

        Args:
            output: a dataset's.
            name: the name of that dataset; None for any.

        Raises:
            OutputError: `LATEST` or the list of forgotten keys is broken, the output cannot be read, or it holds a
                dataset of another name.
        """
        store = open_store(output)
        latest, live, fault = latest_file.read(store), None, ""
        if latest is not None:
            try:
                live = read_manifest(version_folder(store.location, latest.version))
            except DatasetError as error:
                fault = str(error)
        if live is not None and name not in (None, live.name):
            raise OutputError(
                f"the output {store.url} holds the dataset '{live.name}', and the spec's name is '{name}': use another"
            )
        return cls(output, latest, live, fault, forgotten.load(store))

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

    def check(self, latest: Latest | None) -> None:
        """Checks that an output still holds this.

        Args:
            latest: its `LATEST` as it is now.

        Raises:
            UnsettledOutputError: another version is live, or more keys are forgotten.
        """
        if (latest and latest.version) != self.version:
            raise UnsettledOutputError(
                f"another version of {self.output} became live meanwhile: run the same command again"
            )
        if forgotten.load(open_store(self.output)).sha256 != self.forgotten.sha256:
            raise UnsettledOutputError(f"keys were forgotten in {self.output} meanwhile: run the same command again")
