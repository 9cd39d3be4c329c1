"""Checks the files of a version: all that the manifest lists are there, with their bytes and digests, and no others.

>>> files = VersionFiles(Path("out/emoji/versions/20261120T120000Z-4f1c9a2e"))  # doctest: +SKIP
>>> check_file(files, "dataset_info.json", 312, "9f86d0…").problems             # doctest: +SKIP
[]
"""

import hashlib

from recordmill.pipeline.dataset.file_names import inner_paths
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest, Shard
from recordmill.pipeline.reader.version_files import VersionFiles
from recordmill.pipeline.verify.report import Findings


def check_file(files: VersionFiles, path: str, bytes_: int, sha256: str) -> Findings:
    """Reads a file and compares its size and digest."""
    findings = Findings()
    try:
        with files.open(path) as (file, size):
            if size != bytes_:
                findings.add(path, f"the file holds {size:,} bytes, expected {bytes_:,}")
            else:
                check_digest(findings, path, hashlib.file_digest(file, "sha256").hexdigest(), sha256)
            findings.checked.update(files=1, bytes=size)
    except DatasetError as error:
        findings.add(path, str(error))
    return findings


def check_shard_file(files: VersionFiles, shard: Shard) -> Findings:
    """Reads a shard and compares its size and digest."""
    try:
        lying, path, _ = files.located(shard)
    except DatasetError as error:
        findings = Findings()
        findings.add(inner_paths(shard)[0], str(error))
        return findings
    return check_file(lying, path, shard.bytes, shard.sha256)


def check_digest(findings: Findings, path: str, digest: str, expected: str) -> None:
    """Compares two digests in hex."""
    if digest != expected:
        findings.add(path, f"the SHA-256 is {digest}, expected {expected}")


def listed_files(manifest: Manifest) -> dict[str, tuple[int, str]]:
    """The bytes and SHA-256 of the files beside the shards; a manifest of Recordmill 0.1.0 describes only rejects."""
    entries = manifest.files or {file["file"]: file for file in manifest.rejects.get("files", [])}
    return {path: (entry.get("bytes", 0), entry.get("sha256", "")) for path, entry in entries.items()}


def stray_files(files: VersionFiles, manifest: Manifest) -> list[str]:
    """The files that the manifest does not list; unknown, so empty, for a manifest of Recordmill 0.1.0."""
    if not manifest.files:
        return []
    shards = (shard.file for split in manifest.splits.values() for shard in split.shards if shard.version is None)
    known = {MANIFEST_FILE, *manifest.files, *shards}
    return [path for path in files.listing() if path not in known]
