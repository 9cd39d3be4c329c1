"""Versions that share shards: by a spec of days, or without a build, where each keeps some splits of its base."""

import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, Manifest, read_manifest
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.files import KeptFiles, inventory
from recordmill.pipeline.versions.leases import Lease
from recordmill.pipeline.versions.stores.open_store import is_local, open_bucket
from tests import published
from tests.publish import held_back, publish_assembled

DAYS_SPEC = """
name: days
source: {format: jsonl, path: "SOURCE/{YYYY}-{MM}-{DD}/*.jsonl"}
key: id
splits: {train: 80, test: 20}
analysis: ANALYSIS
gate: false
label: label
features: {text: {kind: text, vocabulary: 9}, number: {kind: number}, label: {kind: category}}
"""
NAMES = ["20261120T000000Z-aaaa0000", "20261121T000000Z-bbbb0000", "20261122T000000Z-cccc0000"]


def days_spec(source: str, analysis: str) -> str:
    return DAYS_SPEC.replace("SOURCE", source).replace("ANALYSIS", analysis)


def assembled(folder: Path, version: str) -> tuple[Path, Manifest]:
    """Writes a version that is whole, beside the output; gives its folder and its manifest."""
    made = published.write_version(folder / "made" / version)
    manifest = replace(read_manifest(made), version=version, build_key=version[-8:] * 8)
    (made / MANIFEST_FILE).unlink()
    return made, manifest


def publish(
    output: str,
    folder: Path,
    version: str,
    keep: Collection[str] = (),
    *,
    holds_back: bool = False,
    lease: Lease | None = None,
) -> Manifest:
    """Publishes a version that keeps some splits of the live one, and has its other shards itself."""
    made, manifest = assembled(folder, version)
    splits, known = dict(manifest.splits), {}
    if keep:
        base = Base.read(output).live
        assert base is not None
        kept = KeptFiles(output, base, str(made), version)
        for split in keep:
            for shard in manifest.splits[split].shards:
                (made / shard.file).unlink()
                (made / shard.index).unlink()
            pairs = zip(base.splits[split].shards, manifest.splits[split].shards, strict=True)
            named = ((old, replace(old, file=new.file, index=new.index, version=None)) for old, new in pairs)
            shards = tuple(kept.shard(old, own) for old, own in named)
            splits[split] = replace(manifest.splits[split], shards=shards)
        known = kept.entries
    own = [shard.file for split in splits.values() for shard in split.shards if shard.version is None]
    gate = held_back(output) if holds_back else {}
    manifest = replace(manifest, splits=splits, files=inventory(str(made), own, known), gate=gate)
    try:
        return publish_assembled(output, str(made), manifest, live=not holds_back, lease=lease)
    finally:
        shutil.rmtree(folder / "made")


def download(output: str, folder: Path) -> Path:
    """Copies an output in a bucket to a local folder."""
    assert not is_local(output)
    store = open_bucket(output)
    for name in store.sizes(""):
        content = store.read(name)
        assert content is not None
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
