"""Checks that a version's parts agree: the manifest's sums, TensorFlow Datasets' files, vocabularies, rejects.

Digests do not imply this: a digest only says that a file is as it was written.

>>> check_agreement(files, manifest).problems  # doctest: +SKIP
[]
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest
from recordmill.pipeline.exchange.catalogues import DATASET_INFO
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.reader.version_files import VersionFiles
from recordmill.pipeline.verify.report import Findings
from recordmill.pipeline.versions.forgotten import ENTRY as FORGOTTEN
from recordmill.pipeline.versions.forgotten import LEARNED_OF
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.stored import stored_features

TFDS_FEATURES = "features.json"
Check: TypeAlias = Callable[[], Iterator[str]]
"""Yields a message for each disagreement."""


def check_agreement(files: VersionFiles, manifest: Manifest) -> Findings:
    """Compares the values that stand in several places."""
    findings = Findings()
    for path, check in _checks(files, manifest):
        try:
            for message in check():
                findings.add(path, message)
        except DatasetError as error:
            findings.add(path, str(error))
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # not JSON, or of another form
            findings.add(path, f"the file is not what Recordmill writes ({type(error).__name__}: {error})")
    return findings


def _checks(files: VersionFiles, manifest: Manifest) -> Iterator[tuple[str, Check]]:
    """Lists the checks, each with the file that it is about."""
    for in_manifest in (_rows, _rejected, _labels):
        yield MANIFEST_FILE, partial(in_manifest, manifest)
    if DATASET_INFO in manifest.files:
        yield DATASET_INFO, lambda: _tfds_splits(files.read(DATASET_INFO), manifest)
    if TFDS_FEATURES in manifest.files:
        yield TFDS_FEATURES, lambda: _tfds_features(files.read(TFDS_FEATURES), manifest)
    for path in sorted({feature["vocabulary"] for feature in manifest.features.values() if "vocabulary" in feature}):
        yield path, partial(_vocabulary, files, path, manifest)
    for file in manifest.rejects.get("files", []):
        yield file["file"], partial(_reject_lines, files, file["file"], file.get("records", 0))


def _rows(manifest: Manifest) -> Iterator[str]:
    """Read = written + rejected + duplicates + forgotten, by source and in sum; every written row is in a record."""
    for name, counts in [("the rows", manifest.rows), *((f"source {s.get('path')}", s) for s in manifest.sources)]:
        accounted = sum(counts.get(fate, 0) for fate in ("written", "rejected", "duplicates", "forgotten"))
        if counts and counts.get("read") != accounted:
            yield f"{name}: {counts.get('read')} were read, {accounted} are written, rejected, duplicates or forgotten"
    stored = sum(split.records if split.documents is None else split.documents for split in manifest.splits.values())
    if manifest.rows and manifest.rows.get("written") != stored:
        yield f"{manifest.rows.get('written')} rows were written, the splits hold {stored}"
    for fate, count in manifest.rows.items():
        by_source = sum(source.get(fate, 0) for source in manifest.sources)
        # Of several sources nobody knows whose the rows were that `recordmill versions forget` took out of a version.
        is_known = len(manifest.sources) == 1 or LEARNED_OF not in manifest.provenance.get(FORGOTTEN, {})
        if manifest.sources and is_known and count != by_source:
            yield f"the sources have {by_source} rows {fate}, the manifest says {count}"


def _rejected(manifest: Manifest) -> Iterator[str]:
    rejects, rejected = manifest.rejects, manifest.rows.get("rejected", 0)
    by_reason = sum(rejects.get("by_reason", {}).values())
    in_files = sum(file.get("records", 0) for file in rejects.get("files", []))
    for place, count in (("by reason", by_reason), ("in files", in_files)):
        if manifest.rows and count != rejected:
            yield f"{rejected} rows were rejected, {place} there are {count}"


def _labels(manifest: Manifest) -> Iterator[str]:
    one_each = manifest.label is not None and manifest.features[manifest.label]["kind"] == "category"
    for name, split in manifest.splits.items():
        if one_each and split.label_counts and sum(split.label_counts) != split.records:
            yield f"the split '{name}' has {sum(split.label_counts)} labels and {split.records} records"


def _tfds_splits(data: bytes, manifest: Manifest) -> Iterator[str]:
    splits = {split["name"]: (split["shardLengths"], split["numBytes"]) for split in parse_json(data)["splits"]}
    for name, split in manifest.splits.items():
        expected = ([str(shard.records) for shard in split.shards], str(split.bytes))
        if split.records and splits.get(name) != expected:
            yield f"the split '{name}' has other shards or bytes than in {MANIFEST_FILE}"


def _tfds_features(data: bytes, manifest: Manifest) -> Iterator[str]:
    names = set(parse_json(data)["featuresDict"]["features"])
    if odd := names ^ stored_features(read_descriptions(manifest.features), with_key=True).keys():
        yield f"the features are not those of {MANIFEST_FILE}: {', '.join(map(repr, sorted(odd)[:5]))}"


def _vocabulary(files: VersionFiles, path: str, manifest: Manifest) -> Iterator[str]:
    words = files.read(path).count(b"\n")
    for name, feature in manifest.features.items():
        first, size = feature.get("first_id", 0), feature.get("vocabulary_size")
        if feature.get("vocabulary") == path and words + first != size:
            yield f"{words:,} words, for '{name}' with {size:,} ids, of which {first:,} are no words"


def _reject_lines(files: VersionFiles, path: str, expected: int) -> Iterator[str]:
    if (lines := files.read(path).count(b"\n")) != expected:
        yield f"{lines:,} rejects, expected {expected:,}"
