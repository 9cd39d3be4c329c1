"""`recordmill show`: what it prints of a version."""

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.manifest import Manifest, Shard, Split
from pipeline.show import print_dataset

IMAGE = {"kind": "image", "encoding": "auto", "shape": [8, 6, 3]}
FEATURES: dict[str, dict[str, Any]] = {
    "image": IMAGE,
    "text": {"kind": "text", "max_length": 16},
    "category": {"kind": "category", "stored": "int64", "vocabulary": "c.txt", "vocabulary_size": 3, "first_id": 0},
    "given": {"kind": "category", "stored": "int64", "vocabulary": "g.txt", "vocabulary_size": 2},
    "price": {"kind": "number", "stored": "float32"},
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


def shown(capsys: pytest.CaptureFixture[str], manifest: Manifest, folder: Path, live: str | None) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "c.txt").write_text("cat\n[dog]\nελάφι\n", encoding="utf-8")
    print_dataset(manifest, folder, live)
    return [re.sub(" {2,}", " | ", line.rstrip()) for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_all_of_a_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert shown(capsys, MANIFEST, tmp_path / "[red]/v2", live=None) == [
        "emoji | v2",
        f"{tmp_path}/[red]/v2",
        "split | records | shards | bytes",
        "train | 1,000 | 2 | 120,000",
        "test | 0 | 0 | 0",
        "feature | kind | stored | statistics",
        "image | image | JPEG or PNG 8×6×3 | mean 1.25 2 3e-07, variance 4 5 6",
        "text | text | word ids, at most 16 | 4,000 of 12,000 distinct, 98.0% of 50,000 words known",
        "category (label) | category | int64 | 3 of 3 distinct",
        "given | category | int64 | 2 given",
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
    for version in ("v1", "v2", "half"):
        (tmp_path / version).mkdir(parents=True)
        if version != "half":
            (tmp_path / version / "dataset.json").touch()
    lines = shown(capsys, MANIFEST, tmp_path / "v2", live="v2")
    assert lines[0] == "emoji | v2 | (live)"
    assert lines[-3:] == ["versions", " | v1", " | v2 | (live)"]
    assert shown(capsys, MANIFEST, tmp_path / "v2", live="v1")[0] == "emoji | v2"


@pytest.mark.parametrize(
    ("description", "statistics", "text"),
    [
        ({"kind": "text", "max_length": None}, {}, "word ids, any length"),
        (
            {"kind": "text", "max_length": 2},
            {"words": 1, "distinct": 0, "tokens": 0, "known_tokens": 0},
            "1 of 0 distinct",
        ),
        (IMAGE | {"encoding": "raw", "shape": [2, 2, 1]}, {}, "pixels 2×2×1"),
        (IMAGE | {"encoding": "png"}, {}, "PNG 8×6×3"),
    ],
)
def test_a_feature(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    description: dict[str, Any],
    statistics: dict[str, Any],
    text: str,
) -> None:
    manifest = Manifest("d", "v1", "00", None, {"x": description}, {}, statistics={"x": statistics},
                        rows={"read": 0, "written": 0, "rejected": 0})  # fmt: skip
    assert text in "\n".join(shown(capsys, manifest, tmp_path, None))
