"""A version that holds what a report shows, written without a build: images with boxes and captions, numbers with gaps.

Its names and texts are hostile: markup, scripts, directions of writing, emoji, control characters, bytes beyond UTF-8.
"""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.manifest import LATEST_FILE, Latest, Manifest, Shard, Split, version_folder
from recordmill.pipeline.dataset.placement import hash_key
from recordmill.pipeline.dataset.profile import FILE, FeatureProfile, to_text
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from tests.published import VERSION, example, write_manifest

SCRIPT = "<script>alert('label')</script>"
IMAGE = '"><img src=http://127.0.0.1:9/x onerror=alert(1)>'
CLASSES = (SCRIPT, "\u202eright to left\u202d", "مرحبا", "👩\u200d🔬 lab")
WORDS = (IMAGE, "</style><style>*{display:none}", "{{ 7 * 7 }}", "&amp;", "שלום", "tab\there", "nul\0")
KEYS = (b"<b>key</b>/%d", b"\xff\xfe not utf-8 %d", "\u202eexe.gpj %d".encode(), b"javascript:alert(%d)")
SIZE, INPUTS = 24, "00ff" * 16

FEATURES: dict[str, dict[str, Any]] = {
    "image": {
        "kind": "image", "stored": "bytes", "encoding": "png", "shape": [SIZE, SIZE, 3], "dtype": "float32",
        "offset": [0.0] * 3, "scale": [1 / 255] * 3,
    },
    "boxes": {"kind": "boxes", "stored": "float32", "image": "image", "length": "varying", "max_length": None},
    "things": {
        "kind": "categories", "stored": "int64", "vocabulary": "transform_fn/assets/things.vocabulary.txt",
        "vocabulary_size": 1 + len(CLASSES), "unknown_id": None, "first_id": 1, "padding_id": 0, "read": "ids",
        "length": "varying", "max_length": None,
    },
    "caption": {
        "kind": "text", "stored": "int64", "length": "varying", "max_length": 8, "padding_id": 0, "unknown_id": 1,
        "vocabulary": "transform_fn/assets/caption.vocabulary.txt", "vocabulary_size": 2 + len(WORDS), "first_id": 2,
    },
    "price": {"kind": "number", "stored": "float32", "normalize": "none"},
    "label": {
        "kind": "category", "stored": "int64", "vocabulary": "transform_fn/assets/label.vocabulary.txt",
        "vocabulary_size": len(CLASSES), "unknown_id": None, "first_id": 0,
    },
}  # fmt: skip
REJECTS = "rejects/rejected-00000-of-00001.jsonl"
REJECT = {
    "id": IMAGE, "column": SCRIPT, "code": "undecodable_image", "message": f"cannot be decoded: {SCRIPT}", "source": 0,
    "file": f"{IMAGE}.jpg", "line": None,
}  # fmt: skip


def key(number: int) -> bytes:
    return KEYS[number % len(KEYS)] % number


def row(number: int) -> dict[str, Any]:
    pixels = np.random.default_rng(number).integers(0, 90, (SIZE, SIZE, 3), np.uint8) + np.uint8(40 * (number % 4))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {
        "key": key(number),
        "image": file.getvalue(),
        "boxes": np.array([0.25, 0.25, 0.75, 0.5] * (number % 3), np.float32),
        "things": [1 + (number + box) % len(CLASSES) for box in range(number % 3)],
        "caption": [2 + (number + place) % len(WORDS) for place in range(number % 5)],
        "price": number / 8,
        "label": number % len(CLASSES),
    }


def write_version(output: Path, rows: int = 40, **changes: Any) -> Path:
    """Publishes the version; gives its folder. `changes` are those of the manifest's fields."""
    folder = version_folder(str(output), VERSION)
    for inner in ("transform_fn/assets", "rejects", "profile", "summaries/vocabularies"):
        (folder / inner).mkdir(parents=True)
    for name, words in (("label", CLASSES), ("things", CLASSES), ("caption", WORDS)):
        text = "".join(f"{word}\n" for word in words)
        (folder / f"transform_fn/assets/{name}.vocabulary.txt").write_text(text, encoding="utf-8")
    (folder / REJECTS).write_text(json.dumps(REJECT) + "\n")
    splits = {"train": range(rows * 3 // 4), "test": range(rows * 3 // 4, rows)}
    written = {split: _write_split(folder, split, numbers) for split, numbers in splits.items()}
    (folder / FILE).write_text(to_text({split: _profile(numbers) for split, numbers in splits.items()}))
    _write_words(folder)
    pair = [{"key": key(0).decode("utf-8", "surrogateescape"), "split": "train"}]
    pair += [{"key": key(rows - 2).decode("utf-8", "surrogateescape"), "split": "test"}]
    exact = {"groups": 1, "rows": 1, "within": {}, "across": {"train": {"test": 1}}, "examples": [pair]}
    breach = {"rule": "l_infinity", "subject": "label (train)", "figure": 0.9, "limit": 0.1}
    breach["detail"] = f"'{SCRIPT}' 1.00% → 90.00%"
    manifest = Manifest(
        name="shown",
        version=VERSION,
        build_key="4f1c9a2e" * 8,
        label="label",
        features=FEATURES,
        splits=written,
        rows={"read": rows + 1, "written": rows, "rejected": 1},
        sources=({"format": "jsonl", "path": IMAGE, "read": rows + 1, "written": rows, "rejected": 1},) * 2,
        rejects={"by_reason": {"undecodable_image": 1}, "files": [{"file": REJECTS, "records": 1}]},
        statistics={"caption": {"words": 7, "distinct": 9, "tokens": 60, "known_tokens": 55}},
        duplicates={"action": "keep", "content": ["image"], "keys_across": 0, "exact": exact},
        gate={
            "live": "20261119T120000Z-00000000",
            "figures": {"l_infinity": {"label (train)": 0.9, "label (test)": 0.0}},
            "breaches": [breach],
            "not_compared": [],
        },
        spec={"name": "shown", "source": [{"format": "jsonl", "path": IMAGE, "columns": {SCRIPT: "label"}}]},
        provenance={"built_at": "2026-11-20T12:00:00Z", "packages": {"recordmill": "0.1.0"}, "inputs_sha256": INPUTS},
    )
    write_manifest(folder, replace(manifest, **changes))
    (output / LATEST_FILE).write_text(Latest(VERSION, 1).to_text())
    return folder


def _write_split(folder: Path, split: str, numbers: range) -> Split:
    file, index = (f"shown-{split}.{kind}-00000-of-00001" for kind in ("tfrecord", "index"))
    in_order = sorted(numbers, key=lambda number: hash_key(key(number)).position)
    with ShardWriter(str(folder / file), str(folder / index)) as writer:
        writer.write([example(row(number)) for number in in_order])
    labels = [number % len(CLASSES) for number in numbers]
    counts = tuple(labels.count(id_) for id_ in range(len(CLASSES)))
    return Split((Shard(file, writer.bytes, writer.records, writer.sha256, index),), counts)


def _profile(numbers: range) -> dict[str, FeatureProfile]:
    rows = len(numbers)
    prices = Histogram.of(np.array([number / 8 for number in numbers], np.float32))
    lengths = Histogram.of(np.array([number % 5 for number in numbers], np.float32))
    return {
        "price": FeatureProfile(rows + 9, 9, prices),
        "caption": FeatureProfile(rows, 1, lengths, tokens=2 * rows, unknown=rows // 4),
    }


def _write_words(folder: Path) -> None:
    words = [word.encode() for word in WORDS]
    table = pa.table({"feature": ["caption"] * len(words), "word": words, "count": list(range(1, 1 + len(words)))})
    with pa.OSFile(str(folder / "summaries/vocabularies/bucket-003.arrow"), "wb") as file:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
