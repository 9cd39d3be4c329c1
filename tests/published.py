"""A small version as a build publishes it, keys in their places, without a build and without TensorFlow.

Every rule that `recordmill verify` checks holds in it, so a test damages one thing. Its graph is a few nodes.
"""

import hashlib
import itertools
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recordmill.pipeline.dataset.file_names import shard_file
from recordmill.pipeline.dataset.manifest import (
    LATEST_FILE,
    MANIFEST_FILE,
    Latest,
    Manifest,
    Shard,
    Split,
    read_manifest,
    version_folder,
)
from recordmill.pipeline.dataset.placement import Layout, hash_key, hash_keys
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.versions.files import inventory

VERSION = "20261120T120000Z-4f1c9a2e"
LAYOUT = Layout({"train": 60.0, "test": 40.0}, {"train": 4, "test": 2})
WORDS = ("a", "tree", "über")
CLASSES = ("dark", "bright")
FEATURES: dict[str, dict[str, Any]] = {
    "label": {"kind": "category", "stored": "int64", "vocabulary": "transform_fn/assets/label.vocabulary.txt"}
    | {"vocabulary_size": 2, "unknown_id": None, "first_id": 0},
    "note": {"kind": "raw", "stored": "bytes"},
    "price": {"kind": "number", "stored": "float32", "normalize": "none"},
    "text": {"kind": "text", "stored": "int64", "length": "varying", "max_length": None}
    | {"vocabulary": "transform_fn/assets/text.vocabulary.txt", "vocabulary_size": 5}
    | {"padding_id": 0, "unknown_id": 1, "first_id": 2},
}
REJECTS = "rejects/rejected-00000-of-00001.jsonl"
OPERATIONS = ("Placeholder", "StringSplitV2", "LookupTableFindV2", "InitializeTableFromTextFileV2", "Identity")


def varint(value: int) -> bytes:
    low = bytes([value & 127 | 128 * (value > 127)])
    return low + (varint(value >> 7) if value > 127 else b"")


def field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that has a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(value: Any) -> bytes:
    if isinstance(value, bytes):
        return field(1, field(1, value))
    if isinstance(value, np.ndarray):
        return field(2, field(1, value.astype("<f4").tobytes()))
    if isinstance(value, float):
        return field(2, field(1, struct.pack("<f", value)))
    return field(3, field(1, b"".join(map(varint, value if isinstance(value, list) else [value]))))


def example(values: Mapping[str, Any]) -> bytes:
    named = sorted((name.encode(), feature(value)) for name, value in values.items())
    return field(1, b"".join(field(1, field(1, name) + field(2, content)) for name, content in named))


def row(number: int) -> dict[str, Any]:
    return {
        "key": b"row/%d" % number,
        "label": number % 2,
        "note": b"\xff note %d" % number * (number % 40),
        "price": number / 8,
        "text": [2 + (number + place) % len(WORDS) for place in range(number % 4)],
    }


def graph(operations: Sequence[str] = OPERATIONS) -> bytes:
    """A SavedModel of one meta graph: nodes in the graph itself, and the same in a function."""
    nodes = [field(1, b"node_%d" % place) + field(2, op.encode()) for place, op in enumerate(operations)]
    function = field(1, field(1, b"__inference_f_7")) + b"".join(field(3, node) for node in nodes)
    return field(2, field(2, b"".join(field(1, node) for node in nodes) + field(2, field(1, function))))


def write_version(output: Path, rows: int = 200, **changes: Any) -> Path:
    """Publishes rows in `output`; gives the version's folder. `changes` are those of the manifest's fields."""
    folder = version_folder(str(output), VERSION)
    (folder / "transform_fn/assets").mkdir(parents=True)
    (folder / "serving").mkdir()
    (folder / "rejects").mkdir()
    splits = {split: _write_split(folder, split, range(rows)) for split in LAYOUT.splits}
    for name, words in (("label", CLASSES), ("text", WORDS)):
        (folder / f"transform_fn/assets/{name}.vocabulary.txt").write_text("".join(f"{word}\n" for word in words))
    for name in ("transform_fn", "serving"):
        (folder / name / "saved_model.pb").write_bytes(graph())
    (folder / REJECTS).write_text('{"id": "bad/1", "code": "missing_value"}\n{"id": null}\n')
    _write_tfds_files(folder, splits)
    rejected = [{"file": REJECTS, "records": 2, "bytes": 0, "sha256": "00" * 32}]
    counts = {"read": rows + 2, "written": rows, "rejected": 2}
    manifest = Manifest(
        name="small",
        version=VERSION,
        build_key="4f1c9a2e" * 8,
        label="label",
        features=FEATURES,
        splits=splits,
        rows=counts,
        sources=({"path": "in", **counts},),
        rejects={"by_reason": {"missing_value": 1, "malformed_row": 1}, "files": rejected},
        spec={"splits": dict(LAYOUT.weights), "split_by": None, "source": [{"split": None}]},
    )
    write_manifest(folder, replace(manifest, **changes))
    (output / LATEST_FILE).write_text(Latest(VERSION, 1).to_text())
    return folder


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, with the digests of the files that are there."""
    files = inventory(str(folder), [shard.file for split in manifest.splits.values() for shard in split.shards])
    (folder / MANIFEST_FILE).write_text(replace(manifest, files=files).to_text())


def frames(folder: Path, shard: str) -> list[bytes]:
    """The records of a shard with what stands around them."""
    content, index = (folder / shard).read_bytes(), np.fromfile(folder / shard.replace("tfrecord", "index"), "<u8")
    return [content[start:end] for start, end in itertools.pairwise(index.tolist())]


def replace_shard(folder: Path, split: str, number: int, written: Sequence[bytes]) -> None:
    """Replaces a shard by other records, framed, with index, manifest and digests that say the same."""
    manifest = read_manifest(folder)
    shards = list(manifest.splits[split].shards)
    content, shard = b"".join(written), shards[number]
    (folder / shard.file).write_bytes(content)
    np.cumsum([0, *map(len, written)]).astype("<u8").tofile(folder / shard.index)
    digest = hashlib.sha256(content).hexdigest()
    shards[number] = replace(shard, records=len(written), bytes=len(content), sha256=digest)
    splits = {**manifest.splits, split: replace(manifest.splits[split], shards=tuple(shards))}
    write_manifest(folder, replace(manifest, splits=splits))


def _write_split(folder: Path, split: str, rows: range) -> Split:
    keys = [b"row/%d" % number for number in rows]
    hashes, positions, _ = hash_keys(keys)
    groups = LAYOUT.group_of(LAYOUT.split_of(hashes), positions)
    first = LAYOUT.group(split, 0)
    of_shards = [
        sorted(np.flatnonzero(groups == first + shard).tolist(), key=lambda number: hash_key(keys[number]).position)
        for shard in range(LAYOUT.shards[split])
    ]
    shards = [write_shard(folder, split, shard, map(row, of_shard)) for shard, of_shard in enumerate(of_shards)]
    labels = [number % 2 for of_shard in of_shards for number in of_shard]
    return Split(tuple(shards), (labels.count(0), labels.count(1)))


def write_shard(folder: Path, split: str, shard: int, rows: Any) -> Shard:
    """Writes a shard of rows as they come; gives its entry."""
    count = LAYOUT.shards[split]
    file, index = (shard_file("small", split, what, shard, count) for what in ("tfrecord", "index"))
    with ShardWriter(str(folder / file), str(folder / index)) as writer:
        writer.write([example(values) for values in rows])
    return Shard(file, writer.bytes, writer.records, writer.sha256, index)


def _write_tfds_files(folder: Path, splits: Mapping[str, Split]) -> None:
    told = [
        {"name": name, "shardLengths": [str(shard.records) for shard in split.shards], "numBytes": str(split.bytes)}
        for name, split in splits.items()
    ]
    (folder / "dataset_info.json").write_text(json.dumps({"name": "small", "splits": told}))
    features = {"featuresDict": {"features": dict.fromkeys([*FEATURES, "key"], {})}}
    (folder / "features.json").write_text(json.dumps(features))
