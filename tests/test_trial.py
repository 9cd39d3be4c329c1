"""`recordmill build --limit`: a trial version of some rows, which is read like any other and never live."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordmill.dataset import open_dataset
from recordmill.pipeline.build.attempt.reject_limits import RejectPlaces
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.plan import plan as plan
from recordmill.pipeline.build.run_options import Published, RunOptions
from recordmill.pipeline.cli.show import print_dataset
from recordmill.pipeline.cli.version_commands import print_table
from recordmill.pipeline.dataset.manifest import LATEST_FILE, DatasetError, read_latest, read_manifest
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.spec.model import Spec, load_spec, parse_spec
from recordmill.pipeline.versions import acts, leases, listing, prune
from tests import published
from tests.constants import constants
from tests.messages import assert_names, raises

ROWS, LIMIT = 2_000, 300
TRIAL = "20261121T120000Z-5aaaaaaa"
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


def splits_by_key(output: Path, version: str) -> dict[str, str]:
    return {record.key: record.split for record in open_dataset(output, version).records()}


@pytest.mark.slow
def test_a_trial_is_never_live(first: tuple[Path, Published]) -> None:
    output, trial = first
    assert (trial.is_new, trial.went_live, trial.exit_code) == (True, False, ExitCode.PUBLISHED)
    assert not (output / LATEST_FILE).exists()
    [version] = listing.list_versions(str(output))
    assert (version.manifest.trial, version.is_live) == (LIMIT, False)
    with raises(DatasetError, "published"):
        open_dataset(output)
    with raises(DatasetError, "trial", "300 rows"):
        acts.rollback(str(output), "trial")
    with raises(UserError, "not held back"):
        acts.approve(str(output), "trial")


@pytest.mark.slow
def test_a_trial_is_a_sample_of_all_splits_and_classes(first: tuple[Path, Published]) -> None:
    output, trial = first
    records = list(open_dataset(output, "trial").records())
    assert LIMIT * 0.7 < len(records) < LIMIT * 1.3
    labels = Counter(record.values["label"] for record in records)
    assert labels["dog"] > labels["cat"] > 50
    assert Counter(record.split for record in records)["test"] > 40
    assert [len(split.shards) for split in trial.manifest.splits.values()] == [1, 1]
    rows = trial.manifest.rows
    assert rows["read"] == rows["written"] + rows["rejected"]
    assert rows["rejected"] < 10


@pytest.mark.slow
def test_a_full_build_owes_nothing_to_a_trial(first: tuple[Path, Published], spec: Spec) -> None:
    output, trial = first
    sample = splits_by_key(output, trial.manifest.version)
    again = build(spec, str(output), RunOptions(limit=LIMIT))
    assert (again.is_new, again.went_live, again.manifest.version) == (False, False, trial.manifest.version)
    full = build(spec, str(output))
    assert full.went_live
    assert read_latest(output).version == full.manifest.version
    assert full.manifest.trial == 0
    assert full.manifest.rows["read"] == ROWS
    assert [len(split.shards) for split in full.manifest.splits.values()] == [4, 4]
    whole = splits_by_key(output, full.manifest.version)
    assert sample.items() <= whole.items()
    with raises(DatasetError, "no version before"):
        acts.rollback(str(output))
    done = prune.prune(str(output), None)
    assert [Path(folder).name for folder in done.removed] == [trial.manifest.version]
    assert [version.manifest.version for version in listing.list_versions(str(output))] == [full.manifest.version]


def test_a_trial_alone_is_pruned_unless_it_is_held(tmp_path: Path) -> None:
    published.write_version(tmp_path, trial=50)
    (tmp_path / LATEST_FILE).unlink()
    with open_dataset(tmp_path, "trial").held():
        assert prune.prune(str(tmp_path), None).kept == {published.VERSION: "it is held"}
    assert prune.prune(str(tmp_path), None, dry_run=True).removed
    assert len(listing.list_versions(str(tmp_path))) == 1
    prune.prune(str(tmp_path), None)
    assert listing.list_versions(str(tmp_path)) == []


def hold(output: Path) -> AbstractContextManager[Any]:
    return open_dataset(output, "trial").held()


def pin(output: Path) -> AbstractContextManager[Any]:
    acts.pin(str(output), "trial")
    return nullcontext()


@pytest.mark.parametrize(("use", "reason"), [(hold, "it is held"), (pin, "it is pinned")])
def test_a_trial_that_somebody_uses_while_a_prune_waits_stays(
    use: Callable[[Path], AbstractContextManager[Any]], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = published.write_version(tmp_path)
    folder = Path(shutil.copytree(full, full.with_name(TRIAL)))
    published.write_manifest(folder, replace(read_manifest(full), version=TRIAL, trial=50))
    census, uses = leases.census, ExitStack()

    def wait(*args: Any, **options: Any) -> Any:
        taken = census(*args, **options)
        uses.enter_context(use(tmp_path))
        return taken

    with monkeypatch.context() as patched, uses:
        patched.setattr(leases, "census", wait)
        assert prune.prune(str(tmp_path), None).kept == {TRIAL: reason}
        assert len(list(open_dataset(tmp_path, "trial").records())) > 0
    if use is pin:
        acts.unpin(str(tmp_path), "trial")
    assert [*prune.prune(str(tmp_path), None, dry_run=True).removed] == [f"versions/{TRIAL}"]
    assert folder.exists()
    assert [*prune.prune(str(tmp_path), None).removed] == [f"versions/{TRIAL}"]
    assert not folder.exists()
    assert full.exists()


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


def test_a_trial_is_marked_where_versions_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published.write_version(tmp_path, trial=50)
    (tmp_path / LATEST_FILE).unlink()
    versions = listing.list_versions(str(tmp_path))
    print_table(versions)
    print_dataset(versions[0].manifest, open_dataset(tmp_path, "trial").folder, versions)
    printed = capsys.readouterr().out
    assert "  trial  " in printed
    assert_names(printed, "trial", "`recordmill versions prune`")
