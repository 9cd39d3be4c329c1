"""All that builds and trainings write is known, and no link in their places is followed."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import keras
import pytest

from recordmill import RunOptions, UserError, build, load_spec, open_dataset
from recordmill.pipeline.cli import commands
from recordmill.pipeline.reader.keras_input import TrainingCheckpoint
from tests.places import BUILDS, place_of
from tests.tables import write_jsonl
from tests.test_written_places import ADVICE, BUILDING, by_default, changed, check_harmless, plant

SPEC = """
name: small
source: {format: jsonl, path: ../in/rows.jsonl}
key: id
splits: {train: 60, test: 40}
features: {price: {kind: number}, label: {kind: category}}
label: label
"""


def main(*arguments: str) -> None:
    with suppress(SystemExit):
        commands.main(arguments)


def make() -> None:
    with suppress(UserError):
        build(load_spec("dataset.yaml"), "../out", RunOptions(metrics="metrics.txt"))


def train() -> None:
    given = open_dataset("../out").training_input(batch_size=4, features=["price"])
    price = keras.Input((1,), name="price")
    model = keras.Model({"price": price}, keras.layers.Dense(1)(price))
    model.compile("sgd", "mse")
    with suppress(UserError, OSError):
        model.fit(given.as_tf_data(), epochs=1, verbose=0, callbacks=[TrainingCheckpoint(given, "../run")])


ACTS: dict[str, Callable[[], None]] = {
    "init": lambda: main("init", "../in/rows.jsonl", "-o", "dataset.yaml", "--force"),
    "plan": lambda: main("plan", "dataset.yaml", "-o", "../out"),
    "build": make,
    "doctor": lambda: main("doctor"),
    "training": train,
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rows and their spec, and what belongs to a victim."""
    for name in ("in", "cwd", "run", "temp", "victim"):
        (tmp_path / name).mkdir()
    rows = [{"id": f"row/{row}", "price": row / 7, "label": "ab"[row % 2]} for row in range(40)]
    write_jsonl(tmp_path / "in/rows.jsonl", rows)
    (tmp_path / "cwd/dataset.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    return tmp_path


@pytest.mark.slow
def test_all_that_builds_write_is_known(place: Path) -> None:
    assert BUILDING < ACTS.keys()
    seen = {path for act in ACTS.values() for path in changed(place, act)}
    seen -= {path for path in seen if path.startswith("temp")} | {".", "out", "cwd", "run"}
    found = {path: place_of(path) for path in seen}
    assert {path for path, known in found.items() if known is None} == set(), ADVICE
    assert BUILDS.keys() - {*found.values()} == set(), "they are written no more"


PLANTED = [
    ("build", "out/.building"),
    ("build", "cwd/metrics.txt"),
    ("init", "cwd/dataset.yaml"),
    ("init", "cwd/dataset.schema.json"),
    ("training", "run/training.json"),
    ("training", "run/000000010-1.weights.h5"),
]


@pytest.mark.first(6)
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("act", "path"), PLANTED)
@pytest.mark.parametrize("kind", by_default("link", "hard link"))
def test_nothing_planted_leads_a_build_elsewhere(
    kind: str, act: str, path: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "folder" and "versions" not in path:
        pytest.skip("the user names this folder")
    (place / "out").mkdir()
    if act == "training":
        make()
    plant(kind, place / path, place / "victim")
    check_harmless(place, ACTS[act])
    assert "unexpectedly" not in capfd.readouterr().err
