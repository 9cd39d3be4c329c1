"""Whether a version's parts agree: the manifest's sums, what TensorFlow Datasets is told, vocabularies, rejects.

Most of this follows from the digests; but a digest says only that a file is as it was written.

>>> check_agreement(files, manifest).problems  # doctest: +SKIP
[]
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest
from recordmill.pipeline.verify.files import VersionFiles
from recordmill.pipeline.verify.findings import Findings
from recordmill.transforms.contract.stored import stored_features

DATASET_INFO, TFDS_FEATURES = "dataset_info.json", "features.json"


def check_agreement(files: VersionFiles, manifest: Manifest) -> Findings:
    """Compares what stands in several places."""
    found = Findings()
    for said in (_rows(manifest), _rejected(manifest), _labels(manifest)):
        _tell(found, MANIFEST_FILE, said)
    for path, compare in _files(manifest):
        _tell(found, path, _compared(files, path, compare, manifest))
    return found


Compare: TypeAlias = Callable[[bytes, Manifest], Iterator[str]]
"""Takes a file's content; gives what is wrong with it."""


def _compared(files: VersionFiles, path: str, compare: Compare, manifest: Manifest) -> Iterator[str]:
    yield from compare(files.read(path), manifest)


def _tell(found: Findings, path: str, said: Iterator[str]) -> None:
    """Tells what a check says; of what is not even of the right form, just that."""
    try:
        for message in said:
            found.tell(path, message)
    except DatasetError as error:
        found.tell(path, str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # no JSON, or another one
        found.tell(path, f"the file is not what Recordmill writes ({type(error).__name__}: {error})")


def _rows(manifest: Manifest) -> Iterator[str]:
    """The rows of all sources: read = written + rejected + duplicates, and every row that is written is a record."""
    for name, counts in [("the rows", manifest.rows), *((f"source {s.get('path')}", s) for s in manifest.sources)]:
        accounted = sum(counts.get(what, 0) for what in ("written", "rejected", "duplicates"))
        if counts and counts.get("read") != accounted:
            yield f"{name}: {counts.get('read')} were read, {accounted} are written, rejected or duplicates"
    stored = sum(split.records if split.documents is None else split.documents for split in manifest.splits.values())
    if manifest.rows and manifest.rows.get("written") != stored:
        yield f"{manifest.rows.get('written')} rows were written, the splits hold {stored}"
    for what, count in manifest.rows.items():
        by_source = sum(source.get(what, 0) for source in manifest.sources)
        if manifest.sources and count != by_source:
            yield f"the sources have {by_source} rows {what}, the manifest says {count}"


def _rejected(manifest: Manifest) -> Iterator[str]:
    for what, count in {
        "by reason": sum(manifest.rejects.get("by_reason", {}).values()),
        "in files": sum(file["records"] for file in manifest.rejects.get("files", [])),
    }.items():
        if manifest.rows and count != manifest.rows.get("rejected", 0):
            yield f"{manifest.rows.get('rejected', 0)} rows were rejected, {what} there are {count}"


def _labels(manifest: Manifest) -> Iterator[str]:
    one_each = manifest.label is not None and manifest.features[manifest.label]["kind"] == "category"
    for name, split in manifest.splits.items():
        if one_each and split.label_counts and sum(split.label_counts) != split.records:
            yield f"the split '{name}' has {sum(split.label_counts)} labels and {split.records} records"


def _files(manifest: Manifest) -> Iterator[tuple[str, Compare]]:
    """The files whose content says again what the manifest does, each with what compares it."""
    names = manifest.files
    if DATASET_INFO in names:
        yield DATASET_INFO, _tfds_splits
        yield TFDS_FEATURES, _tfds_features
    for path in sorted({one["vocabulary"] for one in manifest.features.values() if "vocabulary" in one}):
        yield path, partial(_vocabulary, path=path)
    for file in manifest.rejects.get("files", []):
        yield file["file"], partial(_lines, expected=file["records"])


def _tfds_splits(data: bytes, manifest: Manifest) -> Iterator[str]:
    told = {split["name"]: (split["shardLengths"], split["numBytes"]) for split in json.loads(data)["splits"]}
    for name, split in manifest.splits.items():
        expected = ([str(shard.records) for shard in split.shards], str(split.bytes))
        if split.records and told.get(name) != expected:
            yield f"the split '{name}' has other shards or bytes than in {MANIFEST_FILE}"


def _tfds_features(data: bytes, manifest: Manifest) -> Iterator[str]:
    told = set(json.loads(data)["featuresDict"]["features"])
    if odd := told ^ stored_features(manifest.features, with_key=True).keys():
        yield f"the features are not those of {MANIFEST_FILE}, by {', '.join(map(repr, sorted(odd)[:5]))}"


def _vocabulary(data: bytes, manifest: Manifest, *, path: str) -> Iterator[str]:
    words = data.count(b"\n")
    for name, one in manifest.features.items():
        if one.get("vocabulary") == path and words + one.get("first_id", 0) != one["vocabulary_size"]:
            yield (
                f"{words:,} words, for '{name}' with {one['vocabulary_size']:,} ids, "
                f"of which {one.get('first_id', 0):,} are no words"
            )


def _lines(data: bytes, _: Manifest, *, expected: int) -> Iterator[str]:
    if (lines := data.count(b"\n")) != expected:
        yield f"{lines:,} rejects, expected {expected:,}"
