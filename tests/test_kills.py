"""`kill -9` at every step of a build, and at any moment: the same build goes on, and its result is the same.

Children are forked from a process that has loaded Beam and TensorFlow already, so a build takes seconds. Nothing in the
product knows of these tests: a child replaces a function by one that kills it.
"""

import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from recordmill import open_dataset
from recordmill.pipeline.dataset.manifest import Manifest, read_latest, read_manifest, version_folder
from tests.forked import CHILDREN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROWS = 240
SHARDS = 5
LOOK_SECONDS = 0.7
SPEC = """
name: kills
source: {format: jsonl, path: FOLDER/rows.jsonl}
key: id
splits: {train: 80, test: 20}
shards: {train: 4, test: 1}
rejects: {max_share: 0.5, max_share_per_file: 0.5}
features:
  number: {kind: number}
  pieces: {kind: text, column: text, tokenizer: sentencepiece, vocabulary: 40}
"""
NO_STABLE_BYTES = ("dataset.json", "saved_model.pb", "fingerprint.pb")
"""TensorFlow's own files differ from one build to the next; the manifest holds the time."""


@dataclass(frozen=True)
class Step:
    """The last call of a process: of `what` in a module, the so-and-so-many-th."""

    module: str
    what: str
    call: int = 1
    when: str = "before"
    """`before` the call, `after` it, or when a shard's call is `half` done."""
    argument: str = ""
    """What is in one of the arguments, for a call to be counted."""


STEPS = {
    "reading": Step("recordmill.pipeline.build.worker.read_chunk", "write_report"),
    "first pass": Step("recordmill.pipeline.build.beam.pre_passes", "train_models"),
    "analysis": Step("recordmill.pipeline.build.analysis.inputs", "sync_tree"),
    "analysis reported": Step("recordmill.pipeline.build.analysis.inputs", "write_report", when="after"),
    "shard: opened": Step("recordmill.pipeline.dataset.tfrecord", "ShardWriter.__enter__", 2, "after"),
    "shard: half written": Step("recordmill.pipeline.dataset.tfrecord", "ShardWriter.write", 2, "half"),
    "shard: index renamed": Step("recordmill.pipeline.dataset.tfrecord", "write_atomically", 2, "after"),
    "shard: renamed": Step("recordmill.pipeline.build.worker.build_shard", "write_report", 2),
    "shard: reported": Step("recordmill.pipeline.build.worker.build_shard", "write_report", 2, "after"),
    "publishing: serving": Step("recordmill.pipeline.build.driver", "export_serving", when="after"),
    "publishing: assembling": Step("recordmill.pipeline.build.publish", "_list_shards", when="after"),
    "publishing: export copied": Step("recordmill.pipeline.build.publish", "shutil.copytree", when="after"),
    "publishing: manifest written": Step(
        "recordmill.pipeline.versions.stores.local", "_replace", when="after", argument="dataset.json"
    ),
    "publishing: version renamed": Step(
        "recordmill.pipeline.versions.stores.local", "os.rename", when="after", argument="/versions/"
    ),
    "publishing: before LATEST": Step("recordmill.pipeline.versions.stores.local", "_replace", argument="LATEST"),
    "publishing: after LATEST": Step(
        "recordmill.pipeline.versions.stores.local", "_replace", when="after", argument="LATEST"
    ),
    "publishing: before the sweep": Step("recordmill.pipeline.build.driver", "remove_run"),
}
RANDOM = [f"random moment {number}" for number in range(10)]
PUBLISHED = list(STEPS)[-4:]
"""Steps after which the new version is there, and nothing has to be built."""


@dataclass(frozen=True)
class Outcome:
    """What became of a build that was killed, and of the next."""

    exit_codes: tuple[int | None, int | None]
    looks: int
    """How often the live version was opened and a batch of it read while the builds ran."""
    notes: list[str]
    """What the second build said."""
    jobs: int
    """How many jobs it ran."""
    files: dict[str, str]
    """The files of the version that was built, with digests of those that are stable."""
    manifest: Manifest
    entries: list[str]
    """What lies in the output."""


def write_rows(folder: Path, rows: int) -> None:
    lines = [{"id": f"row-{row}", "number": row / 8, "text": f"word{row % 37} and more of them"} for row in range(rows)]
    lines += [lines[3] | {"text": "again"}, lines[5] | {"id": "bad", "number": "heavy"}]
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def build_in_child(folder: Path, step: Step | None) -> None:
    """Builds; leaves what was said in `told.json`. With a step, the process dies there."""
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    build = importlib.import_module("recordmill.pipeline.build.driver")
    spec = importlib.import_module("recordmill.pipeline.spec.model").parse_spec(SPEC.replace("FOLDER", str(folder)))
    notes: list[str] = []
    jobs = count_calls(build, "run_job")
    if step is not None:
        arm(step)
    (folder / "begun").touch()
    build.build(spec, str(folder / "out"), build.RunOptions(chunk_bytes=4096), build.Listener(on_note=notes.append))
    (folder / "told.json").write_text(json.dumps([notes, len(jobs)]))
    print("CPU seconds:", time.process_time())
    os._exit(0)


def count_calls(module: Any, name: str) -> list[None]:
    calls, real = list[None](), getattr(module, name)

    def counted(*arguments: Any) -> Any:
        calls.append(None)
        return real(*arguments)

    setattr(module, name, counted)
    return calls


def arm(step: Step) -> None:
    """Makes the step's call deadly."""
    owner: Any = importlib.import_module(step.module)
    *path, name = step.what.split(".")
    for part in path:
        owner = getattr(owner, part)
    real, calls = getattr(owner, name), list[None]()

    def deadly(*arguments: Any, **named: Any) -> Any:
        if any(step.argument in str(one) for one in arguments):
            calls.append(None)
        if len(calls) != step.call:
            return real(*arguments, **named)
        if step.when == "after":
            real(*arguments, **named)
        if step.when == "half":
            writer, records = arguments
            writer._file.write(b"".join(records)[:100])
            writer._file.flush()
        return os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, deadly)


def run_child(folder: Path, step: Step | None = None, seconds: float | None = None) -> tuple[int | None, int]:
    """Runs a build, reads what is live meanwhile, kills it after so many seconds; gives its exit code and the looks."""
    (folder / "begun").unlink(missing_ok=True)
    is_live = (folder / "out/LATEST").exists()
    child = CHILDREN.Process(target=build_in_child, args=(folder, step))
    child.start()
    looks, looked, started = 0, 0.0, None
    while child.is_alive():
        if started is None and (folder / "begun").exists():
            started = time.monotonic()
        if seconds is not None and started is not None and time.monotonic() - started >= seconds:
            child.kill()
        if is_live and time.monotonic() - looked > LOOK_SECONDS:
            read_live(folder / "out")
            looks, looked = looks + 1, time.monotonic()
        child.join(0.03)
    return child.exitcode, looks


def read_live(output: Path) -> str:
    dataset = open_dataset(output)
    features = next(iter(dataset.evaluation_input("train", batch_size=4).as_numpy()))
    assert len(features["number"]) == 4
    return dataset.version


def outcome(folder: Path, exit_codes: tuple[int | None, int | None], looks: int) -> Outcome:
    notes, jobs = json.loads((folder / "told.json").read_text())
    manifest = read_manifest(version_folder(folder / "out", read_latest(folder / "out").version))
    version = folder / "out" / "versions" / manifest.version
    files = {str(path.relative_to(version)): digest(path) for path in version.rglob("*") if path.is_file()}
    entries = sorted(path.name for path in (folder / "out").iterdir())
    return Outcome(exit_codes, looks, notes, jobs, files, manifest, entries)


def described(manifest: Manifest) -> dict[str, Any]:
    """What a manifest says of the dataset, and not of its publishing and the folder of its inputs."""
    said = json.loads(manifest.to_text())
    of_this_one = {"version", "build_key", "sequence", "files", "provenance"}
    return {name: said[name] for name in said.keys() - of_this_one}


def digest(path: Path) -> str:
    return "" if path.name in NO_STABLE_BYTES else hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs, and a dataset of one row less that was built before."""
    folder = tmp_path_factory.mktemp("old")
    write_rows(folder, ROWS - 1)
    exit_code = run_child(folder)[0]
    assert exit_code == 0, (folder / "log.txt").read_text()
    write_rows(folder, ROWS)
    return folder


@pytest.fixture(scope="module")
def undisturbed(old: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, float]:
    """The build that nobody kills, and how many seconds it took."""
    folder = shutil.copytree(old, tmp_path_factory.mktemp("undisturbed") / "run")
    started = time.monotonic()
    exit_code, looks = run_child(folder)
    return outcome(folder, (None, exit_code), looks), time.monotonic() - started


@pytest.fixture(scope="module")
def outcome_of(
    old: Path, undisturbed: tuple[Outcome, float], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Outcome]:
    """Kills a build at a step, or at a random moment, and runs it again: in a copy of the old dataset, once each."""

    def killed(name: str, seconds: float | None) -> Outcome:
        folder = shutil.copytree(old, tmp_path_factory.mktemp("kill") / "run")
        first, looks = run_child(folder, STEPS.get(name), seconds)
        if first == 0 and seconds is not None:  # it was quicker than the undisturbed one, so it ended before
            return killed(name, seconds / 2)
        second, more_looks = run_child(folder)
        return outcome(folder, (first, second), looks + more_looks)

    @cache
    def outcome_of_kill(name: str) -> Outcome:
        moment = random.Random(name).uniform(0, 0.9) * undisturbed[1]
        return killed(name, moment if name in RANDOM else None)

    return outcome_of_kill


@pytest.mark.parametrize(
    "name", [*STEPS, *RANDOM[:3], *(pytest.param(name, marks=pytest.mark.nightly) for name in RANDOM[3:])]
)
def test_the_same_build_again_gives_the_same_bytes(
    name: str, outcome_of: Callable[[str], Outcome], undisturbed: tuple[Outcome, float]
) -> None:
    found, expected = outcome_of(name), undisturbed[0]
    assert found.exit_codes == (-signal.SIGKILL, 0)
    assert found.files == expected.files
    assert described(found.manifest) == described(expected.manifest)
    assert found.manifest.rows["read"] == ROWS + 2
    assert found.entries == ["LATEST", "versions"]
    assert found.looks > 1


@pytest.mark.parametrize("name", list(STEPS)[4:-4])
def test_the_analysis_and_at_least_a_shard_are_kept(name: str, outcome_of: Callable[[str], Outcome]) -> None:
    found = outcome_of(name)
    (note,) = found.notes
    kept = re.fullmatch(rf"going on with an earlier build: the analysis and (\d) of {SHARDS} shards are kept", note)
    assert kept
    finished = {"shard: reported": 2}.get(name, 1) if name.startswith("shard") else SHARDS
    assert int(kept[1]) == finished
    assert found.jobs == (0 if finished == SHARDS else 1)


def test_the_analysis_is_kept_before_the_first_shard(outcome_of: Callable[[str], Outcome]) -> None:
    (note,) = outcome_of("analysis reported").notes
    assert "the analysis and 0 of 5 shards" in note


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_was_published_is_not_built_again(name: str, outcome_of: Callable[[str], Outcome]) -> None:
    found = outcome_of(name)
    assert (found.notes, found.jobs) == ([], 0)


def test_an_undisturbed_build_says_nothing_of_earlier_ones(undisturbed: tuple[Outcome, float]) -> None:
    assert (undisturbed[0].notes, undisturbed[0].jobs) == ([], 1)
    assert undisturbed[0].manifest.rejects["by_reason"] == {"duplicate_key": 1, "wrong_type": 1}
