"""Finds that a build came to the bytes of the live version, which then stays: no reader needs another of the same."""

from contextlib import suppress
from typing import Any

from recordmill.pipeline.build.input_table import INPUTS_FILE
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.facts.sidecars import SIDECARS
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.stores.open_store import open_store

GRAPHS = ("saved_model.pb", "fingerprint.pb")
"""Files whose bytes are not compared: TensorFlow numbers the functions of a graph by the process' earlier ones."""


def same_as_live(output: str, manifest: Manifest) -> Manifest | None:
    """Gives the live version's manifest if an assembled version holds the same; None if it does not."""
    with suppress(UserError):  # a damaged version is no reason to publish none
        live = publishing.live_manifest(output)
        if live is not None and _content(live) == _content(manifest) and publishing.is_whole(open_store(output), live):
            return live
    return None


def _content(manifest: Manifest) -> dict[str, Any]:
    """Gives the digests of shards and files, what the manifest says of the data, and what its graphs follow from."""
    return {
        "described": (manifest.name, manifest.label, manifest.features, manifest.statistics, manifest.duplicates),
        "rows": (manifest.rows, manifest.rejects),
        "splits": {
            name: ([(shard.span, shard.records, shard.sha256) for shard in split.shards], split.label_counts)
            for name, split in manifest.splits.items()
        },
        "files": {
            path: entry["sha256"]
            for path, entry in manifest.files.items()
            if path not in {INPUTS_FILE, *SIDECARS} and not path.endswith(GRAPHS)
        },
        "graph": [manifest.provenance.get(what) for what in ("packages", "user_code")]
        + [manifest.spec.get(what) for what in ("features", "preprocessing")],
    }
