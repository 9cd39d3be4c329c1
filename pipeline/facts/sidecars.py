"""The files of a version that are for people and other tools, written when all else is there but the manifest.

No reader of Recordmill opens them. The manifest lists them with their digests, as any other file of a version, so that
`verify` checks them. `forget` writes them anew, because they may show rows that are to go.

>>> manifest = with_sidecars(manifest, Path("out/.building/4f1c9a2e/run-1/version"), "out")  # doctest: +SKIP
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from recordmill.pipeline.dataset.catalogues import CROISSANT, DATASET_INFO, croissant, dataset_info
from recordmill.pipeline.dataset.manifest import Location, Manifest, version_folder
from recordmill.pipeline.dataset.paths import Remote
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.facts.card import CARD, card
from recordmill.pipeline.versions.stores.open_store import open_location

MOST_WORD_BYTES = 64 << 20
"""The words of a larger vocabulary are left to `recordmill report`: a build's driver should not hold them."""
Sidecar = Callable[[Location, Manifest], bytes]
"""Makes a file of a version, from the folder that its shards and its other files are read from, and its manifest.

The bytes follow from both: no clock, no path, none of `version`, `sequence` and `gate`, which publishing decides.
"""


def _report(folder: Location, manifest: Manifest) -> bytes:
    """Makes the page for people. Nothing of it raises: a build of hours does not end for its page."""
    try:
        from recordmill.pipeline.facts.page import report_of  # loads Jinja and Arrow

        dataset = DatasetVersion(folder, replace(manifest, gate={}))
        return report_of(dataset, most_word_bytes=MOST_WORD_BYTES)
    except Exception as error:
        advice = "`recordmill report` makes it, where the extra `report` is installed"
        return f"<!doctype html><title>No report</title><p>No report: {type(error).__name__}. {advice}.</p>\n".encode()


SIDECARS: Mapping[str, Sidecar] = {
    DATASET_INFO: lambda _, manifest: dataset_info(manifest),
    "report.html": _report,
    CROISSANT: lambda _, manifest: croissant(manifest),
    CARD: card,
}
"""The files by name, in the order in which they are written."""


def with_sidecars(manifest: Manifest, assembled: Path, output: str) -> Manifest:
    """Writes the sidecars of a version that is being assembled, and lists them in its manifest.

    Args:
        manifest: the version's, with the entries of all other files.
        assembled: the local folder of the files that are not in the output yet.
        output: the dataset's output; in a bucket, shards are there already.

    Raises:
        DatasetError: a shard or a file that a sidecar shows is damaged.
        OSError: a file cannot be written.
    """
    folder = _folder(manifest, assembled, output)
    entries = {}
    for name, sidecar in SIDECARS.items():
        data = sidecar(folder, manifest)
        (assembled / name).write_bytes(data)
        entries[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return replace(manifest, files=dict(sorted({**manifest.files, **entries}.items())))


def _folder(manifest: Manifest, assembled: Path, output: str) -> Location:
    stored = version_folder(open_location(output), manifest.version)
    return assembled if isinstance(stored, Path) else _Uploading(assembled, stored)


@dataclass(frozen=True)
class _Uploading:
    """A folder or a file of a version in a bucket, as `paths.Remote`: some files are only on this machine yet."""

    local: Path
    stored: Remote

    def __str__(self) -> str:
        return str(self.stored)

    def __truediv__(self, inner: str) -> "_Uploading":
        """Returns a file or a folder in this one."""
        return _Uploading(self.local / inner, self.stored / inner)

    def is_file(self) -> bool:
        """Whether it is a file, here or in the bucket."""
        return self.local.is_file() or self.stored.is_file()

    def is_dir(self) -> bool:
        """Whether it is a folder, here or in the bucket."""
        return self.local.is_dir() or self.stored.is_dir()

    def read_bytes(self, most: int | None = None) -> bytes:
        """Returns a file's first bytes, at most `most`. Raises: as the store."""
        if self.local.is_file():
            with open(self.local, "rb") as file:
                return file.read(-1 if most is None else most)
        return self.stored.read_bytes(most)
