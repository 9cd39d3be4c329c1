"""Publishes versions without a build, under the output's lease as a build does."""

from contextlib import nullcontext
from typing import Any

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.leases import BUILD, Lease, hold
from recordmill.pipeline.versions.stores.open_store import open_store

BREACH = {"rule": "rows_lost", "subject": "all", "figure": 0.5, "limit": 0.1, "detail": "10 → 5 rows"}


def publish_assembled(
    output: str, assembled: str, manifest: Manifest, *, live: bool = True, lease: Lease | None = None
) -> Manifest:
    """Publishes an assembled version, as the next one of what the output holds."""
    with hold(open_store(output), BUILD) if lease is None else nullcontext(lease) as held:
        return publishing.publish(Base.read(output), assembled, manifest, held, live=live)


def held_back(output: str) -> dict[str, Any]:
    """The entry `gate` of a manifest that the gate holds back from an output."""
    return {"live": publishing.live_version(output), "figures": {}, "breaches": [BREACH]}


def make_live(output: str, version: str) -> None:
    """Makes a version live by its name."""
    store = open_store(output)
    chosen = next(manifest for manifest in publishing.published(store) if manifest.version == version)
    publishing.make_live(store, lambda latest: chosen)
