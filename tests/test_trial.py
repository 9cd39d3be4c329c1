"""`recordmill build --limit`: some of the rows, as a dataset of its own."""

import json
from collections import Counter
from pathlib import Path

import pytest

from recordmill.dataset import open_dataset
from recordmill.pipeline.build.attempt.failures import RejectPlaces
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.plan import plan as plan
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.cli.show import print_dataset
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.spec.model import Spec, load_spec, parse_spec
from recordmill.pipeline.versions import listing
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.base import OutputError
from tests.constants import constants
from tests.messages import assert_names, raises

ROWS, LIMIT = 2_000, 300
SPEC = """
name: people
source: {format: csv, path: data.csv}
key: id
shards: 4
splits: {train: 70, test: 30}
features:
  price: {kind: number}
  label: {kind: category}
label: label
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    folder = tmp_path_factory.mktemp("in")
    lines = [f"{row},{'bad' if row % 100 == 7 else row / 8},{'dog' if row % 3 else 'cat'}" for row in range(ROWS)]
    (folder / "data.csv").write_text("\n".join(["id,price,label", *lines]) + "\n")
    (folder / "dataset.yaml").write_text(SPEC)
    return load_spec(str(folder / "dataset.yaml"))


@pytest.fixture(scope="module")
def first(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Published]:
    """The first version of an output: a trial."""
    output = tmp_path_factory.mktemp("trial") / "out"
    return output, build(spec, str(output), RunOptions(limit=LIMIT))


def splits_by_key(output: Path) -> dict[str, str]:
    return {record.key: record.split for record in open_dataset(output).records()}


@pytest.mark.slow
def test_a_trial_is_a_sample_of_all_splits_and_classes(first: tuple[Path, Published]) -> None:
    output, trial = first
    records = list(open_dataset(output).records())
    assert LIMIT * 0.7 < len(records) < LIMIT * 1.3
    labels = Counter(record.values["label"] for record in records)
    assert labels["dog"] > labels["cat"] > 50
    assert Counter(record.split for record in records)["test"] > 40
    assert [len(split.shards) for split in trial.manifest.splits.values()] == [1, 1]
    rows = trial.manifest.rows
    assert rows["read"] == rows["written"] + rows["rejected"]
    assert rows["rejected"] < 10


@pytest.mark.slow
def test_a_trial_is_a_dataset_of_its_own(
    first: tuple[Path, Published], spec: Spec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, trial = first
    assert (trial.went_live, trial.exit_code, trial.manifest.trial) == (True, ExitCode.PUBLISHED, LIMIT)
    assert build(spec, str(output), RunOptions(limit=LIMIT)).exit_code is ExitCode.UP_TO_DATE
    with raises(OutputError, str(output), "--limit", "output of its own"):
        build(spec, str(output))
    print_dataset(trial.manifest, open_dataset(output).folder, listing.list_versions(str(output)))
    assert_names(capsys.readouterr().out, "about 300 rows", "--limit")
    full = build(spec, str(tmp_path))
    assert (full.manifest.trial, full.manifest.rows["read"]) == (0, ROWS)
    assert [len(split.shards) for split in full.manifest.splits.values()] == [4, 4]
    assert splits_by_key(output).items() <= splits_by_key(tmp_path).items()
    with raises(OutputError, str(tmp_path), "all rows", "--limit"):
        build(spec, str(tmp_path), RunOptions(limit=LIMIT))


@constants(plan, TRIAL_BYTES=1_000, TRIAL_CHUNKS=4)
def test_a_trial_names_no_line_behind_a_part_that_it_leaves_out(tmp_path: Path) -> None:
    text = "".join(json.dumps({"n": row}) + "\n" for row in range(400))
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(text)
    spec = f"name: n\nsource: {{format: jsonl, path: '{tmp_path}/*.jsonl'}}\nfeatures: {{n: {{kind: number}}}}"
    made = plan.make_plan(parse_spec(spec), BeamFiles(), RunOptions(chunk_bytes=1_000, limit=100))
    assert [chunk.file for chunk in made.chunks] == ["a.jsonl", "a.jsonl", "b.jsonl", "b.jsonl"]
    places = RejectPlaces(made, [100] * 4)
    assert [places.of(number, 6)[1] for number in range(4)] == [7, None, 7, None]
