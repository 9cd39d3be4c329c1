"""Makes a version whole: copies the shards that lie in earlier versions' folders into its own.

>>> materialize("s3://bucket/out/emoji").copied_bytes  # doctest: +SKIP
104857600
"""

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from recordmill.pipeline.dataset.catalogues import CROISSANT, croissant
from recordmill.pipeline.dataset.file_names import index_name, inner_paths, shard_name
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, DatasetError, Manifest, Shard
from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.versions import latest_file
from recordmill.pipeline.versions.kept_files import link_or_copy
from recordmill.pipeline.versions.listing import LIVE, find, held, open_existing
from recordmill.pipeline.versions.references import MATERIALIZED
from recordmill.pipeline.versions.stores.base import Conflict, OutputError, Store
from recordmill.pipeline.versions.stores.bucket import UPLOADS, BucketStore


@dataclass(frozen=True)
class Materialized:
    """The outcome of `materialize`."""

    manifest: Manifest
    files: int
    """The number of files that were copied, or linked on a disk; 0 for a version that was whole."""
    copied_bytes: int


def materialize(output: str, wanted: str = LIVE) -> Materialized:
    """Makes a version whole; killed anywhere, the same call goes on.

    Only its manifest changes, and the description that names paths: the shards' `file`, `index` and `version`, the
    indexes in `files`, and `provenance.materialized`. Records, their order, digests and the version's name stay. Who
    has the version open reads on from the earlier folders, which a prune keeps for its grace.

    Args:
        output: the dataset's output.
        wanted: the version, as `listing.find` takes it.

    Raises:
        DatasetError: there is no such version, or a file that it needs is missing.
        OutputError: the output cannot be read or written.
    """
    store = open_existing(output)
    version = find(output, wanted).version
    name = f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"
    with held(output, version):
        while True:
            content = store.read_tagged(name)
            if content is None:
                raise DatasetError(f"the version {version} was removed from {output}")
            manifest = Manifest.from_json(parse_json(content.data))
            copies = dict(_copies(manifest))
            if not copies:
                return Materialized(manifest, 0, 0)
            copied = _copy_all(store, version, copies)
            whole = _whole(store, manifest)
            try:
                whole = _described(store, whole)
                store.write_if(name, whole.to_text().encode(), content.tag)
            except Conflict:  # another process made it whole
                continue
            return Materialized(whole, len(copies), copied)


def _copies(manifest: Manifest) -> Iterator[tuple[str, tuple[str, int]]]:
    """Returns the files to copy: the new name in the version's folder, the name in `versions`, and the bytes."""
    own = {shard.file for split in manifest.splits.values() for shard in split.shards if shard.version is None}
    for name, split in manifest.splits.items():
        for number, shard in enumerate(split.shards):
            if shard.version is None:
                continue
            file, index = _names(manifest, name, number)
            if file in own:
                raise OutputError(f"{manifest.version} has a file {file} of its own: build again to make it whole")
            for new, old, size in zip((file, index), inner_paths(shard), _sizes(shard), strict=True):
                yield new, (old, size)


def _names(manifest: Manifest, split: str, number: int) -> tuple[str, str]:
    count = len(manifest.splits[split].shards)
    shard, index = (name(manifest.name, split, number, count) for name in (shard_name, index_name))
    return shard, index


def _sizes(shard: Shard) -> tuple[int, int]:
    return shard.bytes, 8 * (shard.records + 1)


def _copy_all(store: Store, version: str, copies: Mapping[str, tuple[str, int]]) -> int:
    """Brings files into a version's folder, except for those that an earlier call brought; gives the bytes copied."""
    folder = f"{VERSIONS_FOLDER}/{version}"
    there = store.sizes(folder)

    def copy(new: str) -> int:
        old, size = copies[new]
        if there.get(f"{folder}/{new}") == size:
            return 0
        if isinstance(store, BucketStore):
            store.copy(f"{VERSIONS_FOLDER}/{old}", f"{folder}/{new}")
            return size
        target = path_within(store.url, f"{folder}/{new}")
        return link_or_copy(f"{store.url}/{VERSIONS_FOLDER}", old, str(target), size).copied_bytes

    with ThreadPoolExecutor(UPLOADS) as threads:
        copied = sum(threads.map(copy, copies))
    now = store.sizes(folder)
    for new, (old, size) in copies.items():
        if now.get(f"{folder}/{new}") != size:
            raise DatasetError(f"{VERSIONS_FOLDER}/{old} is missing or not of its size: run `recordmill verify`")
    return copied


def _described(store: Store, manifest: Manifest) -> Manifest:
    """Writes the description that names the shards' paths anew, where the version has it.

    The manifest, which lists its digest, is written next: killed in between, it is of another digest until the same
    call has gone on.

    Raises:
        Conflict: another process wrote it.
    """
    if CROISSANT not in manifest.files:
        return manifest
    name, data = f"{VERSIONS_FOLDER}/{manifest.version}/{CROISSANT}", croissant(manifest)
    before = store.read_tagged(name)
    store.write_if(name, data, before.tag if before else None)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return replace(manifest, files={**manifest.files, CROISSANT: entry})


def _whole(store: Store, manifest: Manifest) -> Manifest:
    """Returns the manifest of a version all of whose files are in its folder."""
    splits, files, shared = {}, dict(manifest.files), list[Shard]()
    for name, split in manifest.splits.items():
        shards = list(split.shards)
        for number, shard in enumerate(shards):
            if shard.version is None:
                continue
            file, index = _names(manifest, name, number)
            data = store.read(f"{VERSIONS_FOLDER}/{manifest.version}/{index}")
            if data is None:
                raise DatasetError(f"{index} was removed meanwhile: run the same command again")
            files[index] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            shared.append(shard)
            shards[number] = replace(shard, file=file, index=index, version=None)
        splits[name] = replace(split, shards=tuple(shards))
    made_whole = {"at": latest_file.now(), "from": sorted(name for shard in shared for name in inner_paths(shard))}
    provenance = {**manifest.provenance, MATERIALIZED: made_whole}
    return replace(manifest, splits=splits, files=dict(sorted(files.items())), provenance=provenance)
