"""A small published dataset, written with TensorFlow alone: what a build leaves on disk, without a build.

Three splits: `train` of 10 records in 4 shards, one of them empty; `validation` of 5 in 2; `test` of none in 1.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from recordmill.pipeline.dataset.manifest import (
    LATEST_FILE,
    MANIFEST_FILE,
    Latest,
    Manifest,
    Shard,
    Split,
    version_folder,
)

VERSION = "20261120T120000Z-4f1c9a2e"
SHARDS = {"train": [range(0, 4), range(4, 7), range(0), range(7, 10)], "validation": [range(10, 13), range(13, 15)]}
SHARDS["test"] = [range(0)]
CLASSES = ("dark", "bright")
COLOURS = ("red", "grün", "line\u0085end")
WORDS = ("a", "tree", "über", "sky")
VOCABULARIES = {"category": CLASSES, "colour": COLOURS, "text": WORDS}
HEIGHT, WIDTH = 6, 8
SCALE = 1 / 255


def assets(feature: str) -> str:
    return f"transform_fn/assets/{feature}.vocabulary.txt"


def category(feature: str, first_id: int) -> dict[str, Any]:
    ids = {"unknown_id": 0 if first_id else None, "first_id": first_id}
    size = len(VOCABULARIES[feature]) + first_id
    return {"kind": "category", "stored": "int64", "vocabulary": assets(feature), "vocabulary_size": size, **ids}


def image(encoding: str = "png", dtype: str = "float32") -> dict[str, Any]:
    pixels = {"shape": [HEIGHT, WIDTH, 3], "dtype": dtype, "offset": [0.0, 1.0, 2.0], "scale": [SCALE, SCALE, SCALE]}
    return {"kind": "image", "stored": "bytes", "encoding": encoding, **pixels}


def text(max_length: int | None = 3) -> dict[str, Any]:
    ids = {"vocabulary_size": len(WORDS) + 2, "padding_id": 0, "unknown_id": 1, "first_id": 2}
    lengths = {"length": "varying", "max_length": max_length}
    return {"kind": "text", "stored": "int64", **lengths, "vocabulary": assets("text"), **ids}


FEATURES: dict[str, dict[str, Any]] = {
    "image": image(),
    "text": text(),
    "category": category("category", 0),
    "colour": category("colour", 1),
    "price": {"kind": "number", "stored": "float32", "normalize": "z_score"},
    "weight": {"kind": "raw", "stored": "float32"},
    "count": {"kind": "raw", "stored": "int64"},
    "note": {"kind": "raw", "stored": "bytes"},
}


def row(number: int) -> dict[str, Any]:
    """The stored values of a row before encoding; its image is bright where its category is 1."""
    pixels = np.random.default_rng(number).integers(0, 100, (HEIGHT, WIDTH, 3)) + number % 2 * 150
    return {
        "key": b"row/%d" % number,
        "image": pixels.astype(np.uint8),
        "text": [2 + (number + place) % len(WORDS) for place in range(number % 4)],
        "category": number % 2,
        "colour": number % (len(COLOURS) + 1),
        "price": number / 8,
        "weight": number / 4,
        "count": -number,
        "note": b"\xff note %d" % number,
        "boxes": [0.25, 0.0, 0.75, 0.5] * (1 + number % 2),
    }


def serialized(number: int, features: dict[str, Any] = FEATURES) -> bytes:
    values = row(number)
    images = [name for name, description in features.items() if description["kind"] == "image"]
    values |= {name: encoded(values["image"], features[name]["encoding"]) for name in images}
    example = tf.train.Example(
        features=tf.train.Features(feature={name: _feature(values[name]) for name in ["key", *features]})
    )
    return example.SerializeToString(deterministic=True)


def _feature(value: Any) -> tf.train.Feature:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    values = value if isinstance(value, list) else [value]
    if any(isinstance(each, float) for each in values):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def encoded(pixels: np.ndarray, encoding: str) -> bytes:
    if encoding == "raw":
        return pixels.tobytes()
    return (tf.io.encode_jpeg if encoding == "jpeg" else tf.io.encode_png)(pixels).numpy()


def write_shard(folder: Path, split: str, number: int, rows: range, features: dict[str, Any]) -> Shard:
    of = len(SHARDS[split])
    file, index = (f"hand-{split}.{kind}-{number:05}-of-{of:05}" for kind in ("tfrecord", "index"))
    records = [serialized(row, features) for row in rows]
    with tf.io.TFRecordWriter(str(folder / file)) as writer:
        for record in records:
            writer.write(record)
    offsets = np.cumsum([0, *(len(record) + 16 for record in records)])  # a record's frame is 16 bytes
    (folder / index).write_bytes(offsets.astype("<u8").tobytes())
    content = (folder / file).read_bytes()
    return Shard(file, len(content), len(records), hashlib.sha256(content).hexdigest(), index)


def write_dataset(
    output: Path, features: dict[str, Any] = FEATURES, label: str | None = "category", version: str = VERSION
) -> Path:
    """Publishes the dataset in `output` and gives the version's folder."""
    folder = version_folder(output, version)
    (folder / assets("x")).parent.mkdir(parents=True)
    for name, words in VOCABULARIES.items():
        (folder / assets(name)).write_bytes("".join(f"{word}\n" for word in words).encode())
    splits = {}
    for split, shards in SHARDS.items():
        counts = [sum(number % 2 == id_ for rows in shards for number in rows) for id_ in range(2)]
        written = tuple(write_shard(folder, split, place, rows, features) for place, rows in enumerate(shards))
        splits[split] = Split(written, tuple(counts) if label == "category" else None)
    manifest = Manifest("hand", version, "00ff" * 16, label, features, splits)
    (folder / MANIFEST_FILE).write_text(manifest.to_text())
    (output / LATEST_FILE).write_text(Latest(version, 1).to_text())
    return folder
