"""Checks the files of a version: their bytes and digests, its graphs, and their agreement with each other.

A digest only proves that a file is unchanged. A SavedModel is a program: its digest shows that it is the published one,
and a list of allowed operations limits even a malicious one. Both checks read the bytes, before TensorFlow loads them.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recordmill.dataset import open_dataset
from recordmill.pipeline.dataset.catalogues import DATASET_INFO
from recordmill.pipeline.dataset.file_names import shown_paths
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest, Shard
from recordmill.pipeline.dataset.paths import ADVICE
from recordmill.pipeline.graphs import MODEL_FILE, Checked, UnsafeGraphError, check_model
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.reader.remote import RemotePath, VersionFiles
from recordmill.pipeline.verify.report import Findings
from recordmill.pipeline.versions.forgotten import FORGOTTEN, LEARNED_OF
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.stored import stored_features

GRAPHS = ("transform_fn", "serving")
TFDS_FEATURES = "features.json"


def check_file(files: VersionFiles, path: str, bytes_: int, sha256: str, name: str = "") -> Findings:
    """Reads a file and compares its size and digest; findings call it by its path, or by `name`."""
    findings, name = Findings(), name or path
    try:
        with files.open(path) as (file, size):
            if size != bytes_:
                findings.add(name, f"the file holds {size:,} bytes, expected {bytes_:,}")
            else:
                check_digest(findings, name, hashlib.file_digest(file, "sha256").hexdigest(), sha256)
            findings.checked.update(files=1, bytes=size)
    except DatasetError as error:
        findings.add(name, str(error))
    return findings


def check_shard_file(files: VersionFiles, shard: Shard) -> Findings:
    """Reads a shard and compares its size and digest."""
    findings, name = Findings(), shown_paths(shard)[0]
    try:
        (folder, path), *_ = files.located(shard)
        return check_file(folder, path, shard.bytes, shard.sha256, name)
    except DatasetError as error:
        findings.add(name, str(error))
    return findings


def check_digest(findings: Findings, path: str, digest: str, expected: str) -> None:
    """Compares two digests in hex."""
    if digest != expected:
        findings.add(path, f"the SHA-256 is {digest}, expected {expected}")


def check_graph(files: VersionFiles, manifest: Manifest, graph: str) -> Findings:
    """Checks the files and the operations of a graph, `transform_fn` or `serving`."""
    findings, folder = Findings(), f"{graph}/"
    listed = {path: entry for path, entry in manifest.files.items() if path.startswith(folder)}
    findings.merge(*(check_file(files, path, entry["bytes"], entry["sha256"]) for path, entry in listed.items()))
    for path in files.listing():
        if path.startswith(f"{folder}saved_model.") and path != folder + MODEL_FILE:
            findings.add(path, "TensorFlow might load it instead")
        elif path.startswith(folder) and path not in listed:
            findings.add(path, "the manifest does not list this file")
    findings.merge(check_operations(files, graph))
    return findings


def check_operations(files: VersionFiles, graph: str) -> Findings:
    """Checks a graph's operations, and that its tables read only its own files."""
    findings, path = Findings(), f"{graph}/{MODEL_FILE}"
    try:
        checked = check_model(files.read(path))
    except DatasetError as error:
        checked = Checked((str(error),))
    for problem in checked.problems:
        findings.add(path, problem)
    if checked.operations:
        findings.checked.update(operations=checked.operations)
    return findings


def refuse(findings: Findings) -> None:
    """Raises: UnsafeGraphError: there are problems."""
    if findings.problems:
        more = findings.counts.total() - 1
        others = f", and {more} more problem{'s' * (more > 1)}" if more else ""
        raise UnsafeGraphError(f"the graph is not loaded: {findings.problems[0]}{others}: {ADVICE}")


def serving_model(path: str | Path, version: str | None = None) -> str:
    """Checks a dataset's serving model, and returns its folder for `tf.saved_model.load`.

    Args:
        path: the dataset's folder, or a version's, on this machine.
        version: a version's name; by default the live one.

    Raises:
        UnsafeGraphError: it differs from the manifest, or holds operations not allowed in a published graph.
        DatasetError: the version does not exist, or is at a URL.
    """
    dataset = open_dataset(path, version)
    if dataset.manifest.adopted:
        raise DatasetError(f"{path} names adopted files, which have no serving model: only a build makes one")
    if isinstance(dataset.folder, RemotePath):
        raise DatasetError(f"{path} is a URL: copy the version to this machine (it could change after the check)")
    refuse(check_graph(VersionFiles(dataset.folder), dataset.manifest, "serving"))
    return str(dataset.folder / "serving")


def check_agreement(files: VersionFiles, manifest: Manifest) -> Findings:
    """Compares values written in several places."""
    findings = Findings()
    with _adding_errors(findings, MANIFEST_FILE):
        for message in _counts_agree(manifest):
            findings.add(MANIFEST_FILE, message)
    if DATASET_INFO in manifest.files:
        with _adding_errors(findings, DATASET_INFO):
            listed = parse_json(files.read(DATASET_INFO))["splits"]
            splits = {split["name"]: (split["shardLengths"], split["numBytes"]) for split in listed}
            for name, split in manifest.splits.items():
                expected = ([str(shard.records) for shard in split.shards], str(split.bytes))
                if split.records and splits.get(name) != expected:
                    differ = f"the shards or bytes of the split '{name}' differ from {MANIFEST_FILE}"
                    findings.add(DATASET_INFO, differ)
    if TFDS_FEATURES in manifest.files:
        with _adding_errors(findings, TFDS_FEATURES):
            names = set(parse_json(files.read(TFDS_FEATURES))["featuresDict"]["features"])
            if odd := names ^ stored_features(read_descriptions(manifest.features), with_key=True).keys():
                shown = ", ".join(map(repr, sorted(odd)[:5]))
                findings.add(TFDS_FEATURES, f"the features differ from {MANIFEST_FILE}: {shown}")
    for path in sorted({feature["vocabulary"] for feature in manifest.features.values() if "vocabulary" in feature}):
        with _adding_errors(findings, path):
            words = files.read(path).count(b"\n")
            for name, feature in manifest.features.items():
                first, size = feature.get("first_id", 0), feature.get("vocabulary_size")
                if feature.get("vocabulary") == path and words + first != size:
                    ids = f"'{name}' has {size:,} ids, including {first:,} without words"
                    findings.add(path, f"{words:,} words, but {ids}")
    for file in manifest.rejects.get("files", []):
        with _adding_errors(findings, file["file"]):
            lines, expected = files.read(file["file"]).count(b"\n"), file.get("records", 0)
            if lines != expected:
                findings.add(file["file"], f"{lines:,} rejects, expected {expected:,}")
    return findings


@contextmanager
def _adding_errors(findings: Findings, path: str) -> Iterator[None]:
    try:
        yield
    except DatasetError as error:
        findings.add(path, str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # not JSON, or of another form
        findings.add(path, f"the content is invalid ({type(error).__name__}: {error})")


def _counts_agree(manifest: Manifest) -> Iterator[str]:
    """Read = written + rejected + duplicates + forgotten, by source and in total; all written rows are in records."""
    for name, counts in [("the rows", manifest.rows), *((f"source {s.get('path')}", s) for s in manifest.sources)]:
        accounted = sum(counts.get(fate, 0) for fate in ("written", "rejected", "duplicates", "forgotten"))
        if counts and counts.get("read") != accounted:
            yield f"{name}: {counts.get('read')} were read, {accounted} are written, rejected, duplicates or forgotten"
    stored = sum(split.rows for split in manifest.splits.values())
    if manifest.rows and manifest.rows.get("written") != stored:
        yield f"{manifest.rows.get('written')} rows were written, the splits hold {stored}"
    for fate, count in manifest.rows.items():
        by_source = sum(source.get(fate, 0) for source in manifest.sources)
        # `recordmill versions forget` cannot tell from which of several sources the removed rows came.
        is_known = len(manifest.sources) == 1 or LEARNED_OF not in manifest.provenance.get(FORGOTTEN, {})
        if manifest.sources and is_known and count != by_source:
            yield f"the sources have {by_source} rows {fate}, the manifest says {count}"
    rejects, rejected = manifest.rejects, manifest.rows.get("rejected", 0)
    by_reason = sum(rejects.get("by_reason", {}).values())
    in_files = sum(file.get("records", 0) for file in rejects.get("files", []))
    for place, count in (("by reason", by_reason), ("in files", in_files)):
        if manifest.rows and count != rejected:
            yield f"{rejected} rows were rejected, but the manifest counts {count} {place}"
    one_each = manifest.label is not None and manifest.features[manifest.label]["kind"] == "category"
    for name, split in manifest.splits.items():
        if one_each and split.label_counts and sum(split.label_counts) != split.records:
            yield f"the split '{name}' has {sum(split.label_counts)} labels and {split.records} records"
