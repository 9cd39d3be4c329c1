"""The gate of a build: the files it reads of both versions, and its judgement if one is unreadable."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.compare.figures import breach_lines
from recordmill.pipeline.compare.gate import gate_entry
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, Latest, Manifest, Shard, Span, Split
from recordmill.pipeline.dataset.profile import FeatureProfile, to_text
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.base import Base
from tests.messages import assert_names

SPEC = parse_spec(
    "name: d\nsource: {format: jsonl, path: a.jsonl}\nlabel: label\nfeatures: {label: {kind: category}}\n"
)
FEATURES: dict[str, dict[str, Any]] = {
    "label": {"kind": "category", "vocabulary": "label.txt", "stored": "int64", "vocabulary_size": 2}
    | {"unknown_id": None, "first_id": 0}
}
SPLIT = Split((Shard("data", 8, 5600, "00" * 32, "index"),))
DAYS = [f"2026-11-{day:02}" for day in range(1, 8)]


def span(day: str) -> Span:
    return Span(hashlib.sha256(day.encode()).hexdigest(), {"written": 800}, 1, 1, "00" * 32)


def write(folder: Path, version: str, days: list[str]) -> Manifest:
    """Writes a version; each day has one of two labels, in turn."""
    rows = {"read": 5600, "written": 5600}
    manifest = Manifest("d", version, "00" * 32, "label", FEATURES, {"train": SPLIT}, {}, rows)
    whole = FeatureProfile(5600, ids={0: 2800, 1: 2800}, tokens=5600)
    (folder / "profile").mkdir(parents=True)
    (folder / "profile/features.json").write_text(to_text({"train": {"label": whole}}))
    (folder / "label.txt").write_text("cat\ndog\n")
    for number, day in enumerate(days):
        (folder / "spans" / day).mkdir(parents=True)
        profile = json.loads(to_text({"train": {"label": FeatureProfile(800, ids={number % 2: 800}, tokens=800)}}))
        shard: dict[str, Any] = {"split": "train", "records": 800, "rejected": 0, "transcoded": {}, "lengths": {}}
        shard["profile"] = profile["train"]
        report = {"sources": {}, "reasons": {}, "duplicates": {}, "shards": [shard, None]}
        (folder / "spans" / day / "report.json").write_text(json.dumps(report))
    files = {f"spans/{day}/report.json": {"bytes": 1, "sha256": "00" * 32} for day in days}
    manifest = replace(manifest, spans={day: span(day) for day in days}, files=files)
    (folder / MANIFEST_FILE).write_text(manifest.to_text())
    return manifest


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """The folder of the live version, of six days."""
    write(tmp_path / "versions/v1", "v1", DAYS[:6])
    return tmp_path / "versions/v1"


def judged(live: Path, version: str, days: list[str], damage: str = "") -> dict[str, Any]:
    """Judges a new version, with one file damaged."""
    folder = live.parent / version
    manifest = write(folder, version, days)
    if damage:
        (folder / damage).write_text("{")
    output = live.parent.parent
    (output / "LATEST").write_text(Latest(live.name, 1).to_text())
    return gate_entry(SPEC, Base.read(str(output)), folder, manifest)


def test_a_new_span_is_compared_with_what_is_usual_in_the_live_version(live: Path) -> None:
    judgement = judged(live, "v2", DAYS)
    assert judgement["breaches"] == []
    assert judgement["figures"]["l_infinity"] == {"label (train)": 0.0, f"label (train, {DAYS[6]})": 0.5}
    assert set(judgement["usual"]["figures"]["l_infinity"]["label (train)"]) == set(DAYS)
    judgement = judged(live, "v3", DAYS[1:6])  # a build without a new span keeps it
    assert judgement["breaches"] == []
    assert set(judgement["usual"]["figures"]["l_infinity"]["label (train)"]) == set(DAYS[:6])


@pytest.mark.parametrize("days", [DAYS, DAYS[1:6]])
def test_an_unreadable_history_is_read_again(live: Path, days: list[str]) -> None:
    report = live / "spans" / DAYS[0] / "report.json"
    whole = report.read_text()
    report.write_text("{")
    judgement = judged(live, "v2", days)
    assert "usual" not in judgement
    assert bool(judgement["breaches"]) == (len(days) == 7)  # the limits alone decide
    report.write_text(whole)
    assert "usual" in judged(live, "v3", days)


@pytest.mark.parametrize("damage", ["profile/features.json", f"spans/{DAYS[6]}/report.json", "label.txt"])
def test_a_damaged_new_version_is_held_back(live: Path, damage: str) -> None:
    judgement = judged(live, "v2", DAYS, damage)
    (line,) = breach_lines(judgement)
    assert_names(line, "not_compared", "features", "1", "0", f"{live.parent}/v2/{damage}")
    assert judgement["figures"]["rows_lost"] == {"all": 0.0, "train": 0.0}
    assert judgement["usual"]["rows"][DAYS[6]] == 800


def test_a_span_whose_report_went_with_a_forgotten_row_is_no_damage(live: Path) -> None:
    manifest = write(live.parent / "v2", "v2", DAYS)
    files = {path: entry for path, entry in manifest.files.items() if DAYS[6] not in path}
    (live.parent / "v2/spans" / DAYS[6] / "report.json").unlink()
    (live.parent.parent / "LATEST").write_text(Latest(live.name, 1).to_text())
    base = Base.read(str(live.parent.parent))
    assert gate_entry(SPEC, base, live.parent / "v2", replace(manifest, files=files))["breaches"] == []


def test_a_live_version_without_a_readable_manifest_is_no_reason_to_publish_none(live: Path) -> None:
    (live / MANIFEST_FILE).write_text("{")
    judgement = judged(live, "v2", DAYS)
    assert judgement["breaches"] == []
    assert "v1/dataset.json" in judgement["not_compared"][0]
