"""What every worker knows of a build, as the spec decides it."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.context.build_context import IMAGE_BATCH, ROW_BATCH, PlannedBuild
from recordmill.pipeline.build.plan.plan import make_plan, planned_build
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.base.columns import Column, ColumnType

FEATURES = {
    "small": "{kind: image, size: [4, 4], column: file}",
    "measured": "{kind: image, size: [4, 4], column: file, normalize: dataset}",
    "text": "{kind: text}",
    "kind": "{kind: category}",
    "closed": "{kind: category, column: kind, classes: [a, b]}",
    "price": "{kind: number}",
    "plain": "{kind: number, normalize: none, column: price}",
    "note": "{kind: raw, column: text}",
}


@pytest.fixture
def planned_of(tmp_path: Path) -> Any:
    """Gives the planned build of these features."""
    (tmp_path / "rows.jsonl").write_text('{"file": "a.png", "text": "a", "kind": "a", "price": 1}\n')

    def make(*features: str, more: str = "") -> PlannedBuild:
        lines = "\n".join(f"  {name}: {FEATURES[name]}" for name in features)
        source = f"{{format: jsonl, path: {tmp_path / 'rows.jsonl'}}}"
        spec = parse_spec(f"name: d\nsource: {source}\nfeatures:\n{lines}\n{more}")
        return planned_build(make_plan(spec, BeamFiles()), "build", BeamFiles(), inline=False, threads=2)

    return make


def test_images_that_are_measured_and_what_an_analyzer_needs(planned_of: Any) -> None:
    planned = planned_of(*FEATURES)
    assert (list(planned.images()), list(planned.measured_images())) == (["small", "measured"], ["measured"])
    assert planned.analyzed == {"text", "kind", "price"}


@pytest.mark.parametrize(("features", "rows"), [(("text", "small"), IMAGE_BATCH), (("text", "kind"), ROW_BATCH)])
def test_the_rows_of_a_batch_are_a_constant(planned_of: Any, features: tuple[str, ...], rows: int) -> None:
    assert planned_of(*features).batch_rows() == rows


@pytest.mark.parametrize(
    ("label", "is_open", "classes"),
    [("kind", True, None), ("closed", False, ("a", "b")), ("price", False, None), (None, False, None)],
)
def test_a_label_is_open_where_its_classes_are_those_of_the_data(
    planned_of: Any, label: str | None, is_open: bool, classes: tuple[str, ...] | None
) -> None:
    planned = planned_of("kind", "closed", "price", more=f"label: {label}" if label else "")
    assert (planned.open_label(), planned.schema.label, planned.schema.classes) == (is_open, label, classes)


def test_rows_are_told_of_columns_features_and_key(planned_of: Any) -> None:
    rows = planned_of("price", "plain", more="key: kind").schema
    assert dict(rows.columns) == {"price": Column(ColumnType.NUMBER), "kind": Column(ColumnType.CATEGORY)}
    assert (dict(rows.features), rows.key) == ({"price": "price", "plain": "price"}, ("kind",))


def test_it_travels(planned_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    planned = planned_of("text")
    there = pickle.loads(pickle.dumps(planned))
    assert (there.workspace.url, there.scratch) == (f"{tmp_path}/build", f"{tmp_path}/build/scratch")
    assert (there.features, there.layout, there.roots) == (planned.features, planned.layout, (str(tmp_path),))
