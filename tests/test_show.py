"""`recordmill show` prints a version."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.cli.show import print_dataset
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split
from recordmill.pipeline.versions.listing import Version
from tests.descriptions import whole

IMAGE = {"kind": "image", "encoding": "auto", "shape": [8, 6, 3]}
FEATURES: dict[str, dict[str, Any]] = {
    "image": whole(IMAGE),
    "text": whole({"kind": "text", "max_length": 16}),
    "category": {"kind": "category", "stored": "int64", "vocabulary": "c.txt", "vocabulary_size": 3, "first_id": 0},
    "given": {"kind": "category", "stored": "int64", "vocabulary": "g.txt", "vocabulary_size": 2},
    "price": {"kind": "number", "stored": "float32", "normalize": "none"},
    "note": {"kind": "raw", "stored": "bytes"},
}
STATISTICS = {
    "image": {"mean": [1.25, 2.0, 3e-7], "variance": [4.0, 5.0, 6.0], "images": 9},
    "text": {"words": 4000, "distinct": 12000, "tokens": 50000, "known_tokens": 49000},
    "category": {"words": 3, "distinct": 3, "tokens": 90, "known_tokens": 90},
    "given": {"words": 2, "distinct": 3, "tokens": 90, "known_tokens": None},
    "price": {"mean": 0.5, "variance": 2.25, "count": 90},
}
SHARDS = tuple(Shard(f"s{place}", 60_000, 500, "00", f"i{place}") for place in range(2))
MANIFEST = Manifest(
    "emoji", "v2", "00ff", "category", FEATURES,
    {"train": Split(SHARDS, (500, 300, 200)), "test": Split((), (0, 0, 0))},
    statistics=STATISTICS,
    rows={"read": 1007, "written": 1000, "rejected": 7},
    rejects={"by_reason": {"missing_value": 7}, "files": [{"file": "rejects/r.jsonl"}]},
)  # fmt: skip


def shown(
    capsys: pytest.CaptureFixture[str], manifest: Manifest, folder: Path, versions: Sequence[Version] = ()
) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "c.txt").write_text("cat\n[dog]\nελάφι\n", encoding="utf-8")
    print_dataset(manifest, folder, list(versions))
    return [re.sub(" {2,}", " | ", line.rstrip()) for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_all_of_a_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert shown(capsys, MANIFEST, tmp_path / "[red]/v2") == [
        "emoji | v2",
        f"{tmp_path}/[red]/v2",
        f"digest {MANIFEST.digest}",
        "split | records | shards | bytes",
        "train | 1,000 | 2 | 120,000",
        "test | 0 | 0 | 0",
        "feature | kind | stored | statistics",
        "image | image | JPEG or PNG 8×6×3 | mean 1.25 2 3e-07, variance 4 5 6",
        "text | text | word ids, at most 16 | 4,000 of 12,000 distinct, 98.0% of 50,000 known",
        "category (label) | category | int64 ids | 3 of 3 distinct",
        "given | category | int64 ids | 2 given",
        "price | number | float32 | mean 0.5, variance 2.25",
        "note | raw | bytes",
        "category | train | test",
        "cat | 500 | 0",
        "[dog] | 300 | 0",
        "ελάφι | 200 | 0",
        "1,007 rows read = 1,000 written + 7 rejected",
        " | missing_value: 7",
        " | in rejects/r.jsonl",
    ]


def test_versions_and_the_live_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    manifests = [replace(MANIFEST, version=name, sequence=number) for number, name in enumerate(("v3", "v2"), start=1)]
    versions = [Version(one, one.version == "v2", False, (), None) for one in manifests]
    lines = shown(capsys, MANIFEST, tmp_path / "v2", versions)
    assert lines[0] == "emoji | v2 | (live)"
    rows = ["1 | v3 | 1,000 | 120,000", "2 | v2 | live | 1,000 | 120,000"]
    assert lines[-4:] == ["versions", "# | version | built at | records | bytes | retired", *rows]
    assert shown(capsys, manifests[0], tmp_path / "v3", versions)[0] == "emoji | v3"


IMAGES = {"kind": "image_sequence", "encoding": "jpeg", "shape": [4, 4, 3], "length": "varying", "max_length": 16}
TEXT = {"kind": "text", "length": "varying", "max_length": None}
LEARNED = {"vocabulary": "tokenizers/x.vocabulary.txt", "vocabulary_size": 8003}
NUMBER = {"kind": "number", "stored": "float32"}
IDS = {"kind": "categories", "stored": "int64", "length": "varying", "max_length": None}
ARRAY = {"kind": "array", "stored": "bytes", "dtype": "int16"}
FOUND = {"mean": 0.5, "variance": 2.25, "count": 90}


@pytest.mark.parametrize(
    ("description", "statistics", "text"),
    [
        (IMAGE | {"encoding": "raw", "shape": [2, 2, 1]}, {}, "pixels 2×2×1"),
        (IMAGE | {"encoding": "png"}, {"transcoded": {"GIF": 1, "TIFF": 1200}},
         "PNG 8×6×3 | 1 GIF transcoded, 1,200 TIFF transcoded"),
        (IMAGE | {"shape": [None, None, 3]}, {}, "JPEG or PNG, each of its own size, 3 channels"),
        (IMAGE | {"shape": [None, None, 1], "encoding": "original"}, {}, "each of its own size, 1 channel"),
        (IMAGE | {"encoding": "original"}, {}, "original files read as 8×6×3"),
        (IMAGES, {}, "JPEG 4×4×3, at most 16"),
        ({"kind": "boxes", "image": "photo", "length": 2, "max_length": None}, {}, "float32 boxes of photo, 2 each"),
        (TEXT, {"words": 1, "distinct": 0, "tokens": 0, "known_tokens": 0}, "word ids, any number | no words"),
        (TEXT | {"tokenizer": "bytes"}, {}, "byte ids, any number"),
        (TEXT | {"hash_buckets": 1000}, {}, "word ids, any number | 1,000 hash buckets"),
        (TEXT | LEARNED | {"tokenizer": "wordpiece"}, {}, "wordpiece ids, any number | 8,003 ids"),
        (TEXT | LEARNED | {"vocabulary": "a/title.vocabulary.txt"}, {}, "any number | 8,003 ids, shared with title"),
        (IDS | {"read": "multi_hot"}, {}, "int64 ids (multi-hot), any number"),
        ({"kind": "category", "stored": "int64", "hash_buckets": 9, "cross": ["a", "b"]}, {},
         "int64 ids of a × b | 9 hash buckets"),
        (NUMBER | {"kind": "numbers", "length": 384, "max_length": None}, {}, "float32, 384 each"),
        (NUMBER, FOUND | {"minimum": -1.0, "maximum": 4.0}, "float32 | mean 0.5, variance 2.25, -1 to 4"),
        (NUMBER, FOUND | {"median": 3.0, "relative_error": 0.0}, "variance 2.25, median 3"),
        (NUMBER, FOUND | {"median": 3.0, "relative_error": 0.00024}, "median 3, quantiles within 0.00024"),
        (NUMBER | {"buckets": 3, "boundaries": [1.0, 2.5]}, {}, "float32 ids of 3 buckets | buckets from 1 2.5"),
        (NUMBER | {"buckets": 6, "boundaries": [1, 2, 3, 4, 5]}, {}, "buckets from 1 2 3 … 5"),
        ({"kind": "raw", "stored": "int64", "length": "varying", "max_length": 9}, {}, "int64, at most 9"),
        ({"kind": "own", "stored": "float32", "shape": [2, 3]}, {}, "float32 2×3"),
        (ARRAY | {"shape": [None, 4]}, {}, "int16 any×4"),
        (ARRAY | {"shape": [None], "max_length": 9}, {}, "int16 at most 9"),
        ({"kind": "own", "stored": "bytes", "shape": None}, {}, "bytes, any number"),
        ({"kind": "audio"}, {"loudness": 3}, "x | audio"),
        ({"kind": "audio", "stored": "int16", "shape": [2, 8000]}, {}, "x | audio | int16 2×8000"),
        (TEXT | {"packed": "many", "stored": "int32"}, {}, "x | text | int32"),
    ],
)  # fmt: skip
def test_a_feature(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    description: dict[str, Any],
    statistics: dict[str, Any],
    text: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    manifest = Manifest("d", "v1", "00", None, {"x": whole(description)}, {}, statistics={"x": statistics},
                        rows={"read": 0, "written": 0, "rejected": 0})  # fmt: skip
    assert text in "\n".join(shown(capsys, manifest, tmp_path))


def test_each_of_several_sources_with_its_share(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sources = (
        {"format": "jsonl", "path": "old", "read": 312, "written": 300, "rejected": 10, "forgotten": 2},
        {"format": "csv", "path": "[new].csv", "read": 700, "written": 700, "rejected": 0},
    )
    lines = shown(capsys, replace(MANIFEST, sources=sources), tmp_path)
    at = lines.index("source | rows read | written | share | rejected | forgotten")
    rows = ["jsonl old | 312 | 300 | 30.0% | 10 | 2", "csv [new].csv | 700 | 700 | 70.0% | 0 | 0"]
    assert lines[at + 1 : at + 3] == rows
    assert not [line for line in shown(capsys, MANIFEST, tmp_path) if "share" in line]
