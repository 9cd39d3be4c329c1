"""A frozen analysis: the live version's graph is taken over, checked, and every figure that moved is reported."""

import os
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recordmill import open_dataset
from recordmill.pipeline.build.analysis.graph import keep_graph
from recordmill.pipeline.build.base.live_analysis import (
    GRAPH_PACKAGES,
    graph_changes,
    graph_digest,
    graph_files,
    published_spec,
)
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.run_options import Listener
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.graphs import UnsafeGraphError
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.local import LocalStore
from tests.messages import assert_names, raises
from tests.published import graph

SPEC = """
name: animals
source: {format: csv, path: FOLDER/rows.csv}
key: id
splits: {train: 1, test: 0.001}
label: animal
analysis: frozen
gate: false
rejects: {max_share: 0.5}
features:
  animal: {kind: category}
  color: {kind: category, classes: fresh}
  text: {kind: text}
  piece: {kind: text, column: text, tokenizer: wordpiece, vocabulary: 40}
  weight: {kind: number, optional: true, impute: median}
  size: {kind: number, column: weight, normalize: min_max, optional: true, impute: 0}
"""
FIRST = [("cat", "red", "a small cat", 1), ("dog", "red", "a dog", 2), ("dog", "green", "a small dog", 3)]
MORE = [("cat", "blue", "a large cat", 11), ("emu", "green", "an emu", 2), ("dog", "green", "a dog", 4)]


class Output:
    """An output, and what builds into it said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, list[str]()

    def build(self, rows: list[Any], *changes: tuple[str, str]) -> Published:
        """Builds rows of `animal, color, text, weight`."""
        lines = [",".join(map(str, (number, *row))) for number, row in enumerate(rows)]
        (self.folder / "rows.csv").write_text("\n".join(["id,animal,color,text,weight", *lines]) + "\n")
        os.utime(self.folder / "rows.csv", (0, zlib.crc32("".join(lines).encode())))
        text = SPEC.replace("FOLDER", str(self.folder))
        for before, after in changes:
            text = text.replace(before, after)
        self.notes = []
        listener = Listener(lambda plan, _: self.notes.extend(plan.notes), self.notes.append)
        return build(parse_spec(text), str(self.folder / "out"), listener=listener)


def graph_of(published: Published) -> dict[str, bytes]:
    return {file: Path(published.folder, file).read_bytes() for file in graph_files(published.manifest)}


@pytest.mark.slow
def test_a_frozen_build_takes_over_the_graph_of_the_live_version(tmp_path: Path) -> None:
    output = Output(tmp_path)
    first = output.build(FIRST)
    assert "analysis" not in first.manifest.provenance
    assert not output.build(FIRST).is_new

    second = output.build(FIRST + MORE)
    assert graph_of(first) == graph_of(second)
    assert len(graph_of(first)) > 5
    assert "tokenizers/piece.vocab.txt" in graph_of(first)
    analysis = {"version": first.manifest.version, "graph_sha256": graph_digest(first.manifest), "label_counts": [1, 2]}
    assert second.manifest.provenance["analysis"] == analysis
    for feature, learned in first.manifest.statistics.items():
        kept = second.manifest.statistics[feature]
        assert {key: kept[key] for key in learned if key != "lengths"} == {
            key: learned[key] for key in learned if key != "lengths"
        }
    assert second.manifest.rejects["by_reason"] == {"unknown_label": 1}  # the emu
    rejects = Path(second.folder, second.manifest.rejects["files"][0]["file"]).read_text()
    assert_names(rejects, "label", "frozen")
    assert open_dataset(tmp_path / "out").classes == ["cat", "dog"]

    refreshed = output.build(FIRST + MORE, ("analysis: frozen", "analysis: refresh"))
    assert refreshed.manifest.rejects["by_reason"] == {}
    assert open_dataset(tmp_path / "out").classes == ["cat", "dog", "emu"]
    assert "analysis" not in refreshed.manifest.provenance
    again = output.build(FIRST + MORE)  # frozen again: the graph is the one that is live now
    assert graph_of(again) == graph_of(refreshed)
    assert again.manifest.splits["train"].records == refreshed.manifest.splits["train"].records
    assert not output.build(FIRST + MORE).is_new


@pytest.mark.parametrize(("file", "operations", "why"), [
    ("transform_fn/saved_model.pb", ("Identity", "WriteFile"), "'WriteFile', 2 times"),
    ("transform_fn/saved_model.pbtxt", (), "saved_model.pbtxt"),
])  # fmt: skip
def test_a_graph_of_somebody_elses_that_does_more_than_compute_is_not_taken_over(
    file: str, operations: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    files = {"transform_fn/saved_model.pb": graph(), "transform_fn/assets/a.txt": b"a", file: graph(operations)}
    live: Any = SimpleNamespace(files=files, read=files.__getitem__)
    planned: Any = SimpleNamespace(scratch=str(tmp_path), workspace=LocalStore(str(tmp_path)))
    with raises(UnsafeGraphError, why):
        keep_graph(planned, live)
    del files[file]
    keep_graph(planned, live)


@pytest.mark.nightly
@pytest.mark.slow
def test_drift_is_in_standard_deviations_of_what_the_graph_was_made_of(tmp_path: Path) -> None:
    output = Output(tmp_path)
    first = output.build([("cat", "red", "a", 1), ("cat", "red", "a", 3)])
    assert first.manifest.drift == {}
    drift = output.build([("cat", "blue", "new", 4), ("cat", "red", "a", 6)]).manifest.drift
    assert drift["against"] == first.manifest.version
    assert drift["rows"] == {"train": 2, "test": 0}
    features = drift["features"]
    moments = {"count": 2, "mean_shift": 3.0, "variance_ratio": 1.0}
    assert features["weight"].items() >= (moments | {"median_shift": 3.0, "jensen_shannon": 1.0}).items()
    assert features["size"].items() >= (moments | {"scaled_minimum": 1.5, "scaled_maximum": 2.5}).items()
    assert features["text"].items() >= {"unknown_share": 0.5, "unknown_share_before": 0.0}.items()
    shares = {"unknown_share": 0.5, "unknown_share_before": 0.0, "l_infinity": 0.5}
    assert features["color"].items() >= shares.items()
    line = "weight: mean +3.00 standard deviations, Jensen–Shannon 1.000"
    assert f"{line}, since {first.manifest.version}" in output.notes
    assert any("color: 50.00%" in note and "before 0.00%" in note for note in output.notes)
    again = output.build([("cat", "red", "a", 3), ("cat", "red", "a", 1)]).manifest.drift["features"]
    assert (again["text"]["unknown_share"], again["text"]["psi"], again["weight"]["mean_shift"]) == (0.0, 0.0, 0.0)


@pytest.mark.slow
def test_a_graph_that_cannot_be_kept_is_learned_anew_and_a_note_says_why(tmp_path: Path) -> None:
    output = Output(tmp_path)
    first = output.build(FIRST)
    changed = output.build(FIRST, ("{kind: text}", "{kind: text, case: keep}"))
    assert_names(output.notes[0], "frozen analysis", "features.text.case: lower → keep")
    assert "analysis" not in changed.manifest.provenance
    assert graph_of(changed) != graph_of(first)

    graph = Path(changed.folder, "transform_fn/saved_model.pb")
    graph.write_bytes(graph.read_bytes()[:-1])
    with raises(OutputError, "saved_model.pb", f"`recordmill versions rollback {tmp_path}/out VERSION`"):
        output.build(FIRST + MORE, ("{kind: text}", "{kind: text, case: keep}"))


SMALL = "name: small\nsource: {format: csv, path: a.csv}\nfeatures: {a: {kind: number}, b: {kind: number}}\n"
PACKAGES = dict.fromkeys([*GRAPH_PACKAGES, "pillow"], "1.0")


def live_of(spec: str) -> Manifest:
    parsed = parse_spec(spec)
    provenance = {"packages": PACKAGES, "feature_files": {"a.model": "12ab"}}
    files = {"transform_fn/saved_model.pb": {"bytes": 1, "sha256": "ab"}}
    return Manifest("small", "v", "k", None, {}, {}, spec=published_spec(parsed), provenance=provenance, files=files)


@pytest.mark.parametrize(("spec", "packages", "files", "changes"), [
    (SMALL, {}, {}, []),
    (SMALL + "analysis: frozen\nshards: 2\n", {"pillow": "2.0"}, {"a.model": "12ab"}, []),
    (SMALL.replace("}}", ", clip: [0, 1]}}"), {}, {}, [("features.b.clip: null → [0.0, 1.0]",)]),
    (SMALL.replace(", b: {kind: number}", ""), {}, {}, [("features.b", "gone")]),
    (SMALL.replace("b: {", "c: {kind: raw}, b: {"), {}, {}, [("features.c", "new")]),
    (SMALL + "label: b\n", {}, {}, [("label: null → b",)]),
    (SMALL, {"tensorflow": "1.1"}, {}, [("tensorflow: 1.0 → 1.1",)]),
    (SMALL, {}, {"a.model": "34cd"}, [("features.a.model",)]),
])  # fmt: skip
def test_what_keeps_a_graph_from_being_kept(spec: str, packages: Any, files: Any, changes: list[Any]) -> None:
    found = graph_changes(live_of(SMALL), parse_spec(spec), PACKAGES | packages, files)
    for change, facts in zip(found, changes, strict=True):
        assert_names(change, *facts)


def test_the_code_of_preprocessing_keeps_a_graph_and_that_of_sources_does_not(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def preprocessing_fn(inputs, outputs):\n    return outputs\n")
    (tmp_path / "dataset.yaml").write_text(SMALL + "preprocessing: own:preprocessing_fn\n")
    now = load_spec(str(tmp_path / "dataset.yaml")), PACKAGES, dict[str, str]()
    live = live_of((tmp_path / "dataset.yaml").read_text())
    code = UserCode.of(["own:preprocessing_fn"], now[0].folder).to_json()["files"]
    files = {**code, "source.py": "of another module"}
    assert graph_changes(replace(live, provenance=live.provenance | {"user_code": {"files": files}}), *now) == []
    (change,) = graph_changes(live, *now)
    assert_names(change, "own.py")
