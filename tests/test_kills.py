"""`kill -9` at every step of a build, and at any moment: the same build goes on, and its result is the same.

Children are forked from a process that has loaded Beam and TensorFlow already, so a build takes seconds. Nothing in the
product knows of these tests: a child replaces a function by one that kills it.
"""

import hashlib
import importlib
import itertools
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from recordmill import open_dataset
from recordmill.pipeline.dataset.manifest import read_latest, read_manifest, version_folder
from tests.forked import CHILDREN
from tests.messages import assert_names
from tests.needless import without_needless
from tests.tables import write_jsonl

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
NO_STABLE_BYTES = ("dataset.json", "inputs.arrow", "report.html", "saved_model.pb", "fingerprint.pb")
"""TensorFlow's own files differ from one build to the next; the manifest and the table of inputs hold times, and the
report shows the build key, which follows from them."""


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


LOCAL = "recordmill.pipeline.versions.stores.local"
STEPS = {
    "reading": Step("recordmill.pipeline.build.worker.read_chunk", "write_report"),
    "look: a chunk is done": Step("recordmill.pipeline.build.summaries.look", "Look.write_sums", 2, "after"),
    "look: a bucket is done": Step("recordmill.pipeline.build.summaries.look", "Look.merge", when="after"),
    "look: done": Step("recordmill.pipeline.build.summaries.look", "Look.finish", when="after"),
    "training": Step("recordmill.pipeline.build.summaries.words", "train"),
    "analysis": Step("recordmill.pipeline.build.analysis.graph", "graph.pack_graph"),
    "analysis reported": Step(
        "recordmill.pipeline.build.analysis.graph", "reports.write_report", when="after", argument="reports/analysis"
    ),
    "shard: opened": Step("recordmill.pipeline.dataset.tfrecord", "ShardWriter.__enter__", 2, "after"),
    "shard: half written": Step("recordmill.pipeline.dataset.tfrecord", "ShardWriter.write", 2, "half"),
    "shard: index renamed": Step("recordmill.pipeline.dataset.tfrecord", "ShardWriter._write_index", 2, "after"),
    "shard: renamed": Step("recordmill.pipeline.build.worker.build_shard", "write_report", 2),
    "shard: reported": Step("recordmill.pipeline.build.worker.build_shard", "write_report", 2, "after"),
    "publishing: serving": Step("recordmill.pipeline.build.make_version", "export_serving", when="after"),
    "publishing: assembling": Step("recordmill.pipeline.build.publish.assemble", "clear", when="after"),
    "publishing: export copied": Step("recordmill.pipeline.build.publish.assemble", "shutil.copytree", when="after"),
    "publishing: manifest written": Step(LOCAL, "paths.write_atomically", when="after", argument="dataset.json"),
    "publishing: version renamed": Step(LOCAL, "os.rename", when="after", argument="/versions/"),
    "publishing: before LATEST": Step(LOCAL, "paths.write_atomically", argument="LATEST"),
    "publishing: after LATEST": Step(LOCAL, "paths.write_atomically", when="after", argument="LATEST"),
    "publishing: before the sweep": Step("recordmill.pipeline.build.attempt.attempts", "Run.remove"),
}
JOB = "a job begins"
RANDOM = [f"random moment {number}" for number in range(10)]
FIRST_SHARD = ["shard: half written", "shard: index renamed", "shard: renamed", "shard: reported"]
"""Steps of a shard that the next run, too, does first: in turn they are those of the first that is left."""
IN_TURN = [name for name in STEPS if not name.startswith("publishing")] + [
    "publishing: serving",
    "publishing: assembling",
    "publishing: export copied",
    "publishing: manifest written",
    "publishing: before the sweep",
]
AFTER_RENAMING = ["publishing: version renamed", "publishing: before LATEST", "publishing: after LATEST"]
AT_NIGHT = [
    "look: a chunk is done",
    "look: a bucket is done",
    "look: done",
    "analysis",
    "shard: index renamed",
    "shard: renamed",
    "publishing: serving",
    "publishing: assembling",
    "publishing: export copied",
    "publishing: version renamed",
]
"""Steps close to another that every run of the tests kills."""
PUBLISHED = [*AFTER_RENAMING, "publishing: before the sweep"]
"""Steps after which the new version is there, and nothing has to be built."""
KEPT = {
    "shard: opened": 1,
    "shard: half written": 1,
    "shard: index renamed": 1,
    "shard: renamed": 1,
    "shard: reported": 2,
} | dict.fromkeys(IN_TURN[-5:-1], SHARDS)
"""Finished shards that the run after a step keeps, with the analysis, where builds die in turn."""


@dataclass(frozen=True)
class Run:
    """The outcome of a process that built, maybe until it was killed."""

    exit_code: int | None
    looks: int
    """The number of times that the live version was opened and a batch of it read meanwhile."""
    notes: list[str]
    jobs: int
    """The number of jobs that it began."""


@dataclass(frozen=True)
class Dataset:
    """The files and the description of a published version."""

    files: dict[str, str]
    """The files of the version that was built, with digests of those that are stable."""
    description: dict[str, Any]
    """The manifest's entries on the dataset alone, without its publishing and the folder of its inputs."""
    entries: list[str]


InTurn = tuple[dict[str, tuple[Run, Run]], list[Dataset]]


def write_rows(folder: Path, rows: int) -> None:
    lines = [{"id": f"row-{row}", "number": row / 8, "text": f"word{row % 37} and more of them"} for row in range(rows)]
    lines += [lines[3] | {"text": "again"}, lines[5] | {"id": "bad", "number": "heavy"}]
    folder.mkdir(exist_ok=True)
    write_jsonl(folder / "rows.jsonl", lines)


def build_in_child(folder: Path, step: Step | None) -> None:
    """Builds; writes at once what it is told into `told.txt`, a line each. With a step, the process dies there."""
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    without_needless()
    make_version, build, options = (
        importlib.import_module(f"recordmill.pipeline.build.{name}")
        for name in ("make_version", "build", "run_options")
    )
    spec = importlib.import_module("recordmill.pipeline.spec.model").parse_spec(SPEC.replace("FOLDER", str(folder)))
    told = (folder / "told.txt").open("w", buffering=1)
    before_each_call(make_version, "run_job", lambda: told.write(f"{JOB}\n"))
    if step is not None:
        arm(step)
    (folder / "begun").touch()
    listener = options.Listener(on_note=lambda note: told.write(f"{note}\n"))
    build.build(spec, str(folder / "out"), options.RunOptions(chunk_bytes=4096), listener)
    print("CPU seconds:", time.process_time())
    os._exit(0)


def before_each_call(module: Any, name: str, act: Callable[[], object]) -> None:
    real = getattr(module, name)

    def called(*arguments: Any) -> Any:
        act()
        return real(*arguments)

    setattr(module, name, called)


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
            real(writer, records * 1000)  # of which a file's buffer keeps the last
        return os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, deadly)


def run_child(folder: Path, step: Step | None = None, seconds: float | None = None) -> Run:
    """Runs a build that dies at a step, or is killed after so many seconds; reads what is live meanwhile."""
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
    told = (folder / "told.txt").read_text().splitlines()
    return Run(child.exitcode, looks, [line for line in told if line != JOB], told.count(JOB))


def read_live(output: Path) -> str:
    dataset = open_dataset(output)
    features = next(iter(dataset.evaluation_input("train", batch_size=4).as_numpy()))
    assert len(features["number"]) == 4
    return dataset.version


def dataset_of(folder: Path) -> Dataset:
    manifest = read_manifest(version_folder(folder / "out", read_latest(folder / "out").version))
    version = folder / "out" / "versions" / manifest.version
    files = {str(path.relative_to(version)): digest(path) for path in version.rglob("*") if path.is_file()}
    said = json.loads(manifest.to_text())
    of_this_one = {"version", "build_key", "sequence", "files", "provenance"}
    described = {name: said[name] for name in said.keys() - of_this_one}
    return Dataset(files, described, sorted(path.name for path in (folder / "out").iterdir()))


def digest(path: Path) -> str:
    return "" if path.name in NO_STABLE_BYTES else hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs, and a dataset of one row less that was built before."""
    folder = tmp_path_factory.mktemp("old")
    write_rows(folder, ROWS - 1)
    assert run_child(folder).exit_code == 0, (folder / "log.txt").read_text()
    write_rows(folder, ROWS)
    return folder


@pytest.fixture(scope="module")
def copy(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: Path(shutil.copytree(old, tmp_path_factory.mktemp("kill") / "run"))


@pytest.fixture(scope="module")
def undisturbed(copy: Callable[[], Path]) -> tuple[Run, Dataset, float]:
    """The build that nobody kills, and how many seconds it took."""
    folder, started = copy(), time.monotonic()
    run = run_child(folder)
    return run, dataset_of(folder), time.monotonic() - started


@pytest.fixture(
    scope="module", params=[AT_NIGHT, pytest.param([], marks=pytest.mark.nightly)], ids=["some steps", "every step"]
)
def in_turn(copy: Callable[[], Path], request: pytest.FixtureRequest) -> InTurn:
    """Two builds that die at one step after another, each run going on with what the killed ones left: by the step, the
    run that died there and the next; and the datasets at the end."""
    runs, datasets = dict[str, tuple[Run, Run]](), list[Dataset]()
    for names in (IN_TURN, AFTER_RENAMING):
        folder, names = copy(), [name for name in names if name not in request.param]
        steps = [replace(STEPS[name], call=1) if name in FIRST_SHARD else STEPS[name] for name in names]
        done = [run_child(folder, step) for step in (*steps, None)]
        assert done[-1].exit_code == 0
        runs |= dict(zip(names, itertools.pairwise(done), strict=True))
        datasets.append(dataset_of(folder))
    return runs, datasets


def test_a_build_that_was_killed_goes_on(in_turn: InTurn) -> None:
    for name, (died, following) in in_turn[0].items():
        assert died.exit_code == -signal.SIGKILL, name
        assert died.looks, name
        assert following.looks, name
        if name in KEPT:
            (kept,) = following.notes
            assert_names(kept, "earlier build", "transform graph", f"{KEPT[name]} of {SHARDS} shards")
            assert following.jobs == (0 if KEPT[name] == SHARDS else 1), name
        if name in PUBLISHED:
            assert (following.notes, following.jobs) == ([], 0), name


def test_a_build_that_is_killed_at_every_step_gives_the_same_bytes(
    in_turn: InTurn, undisturbed: tuple[Run, Dataset, float]
) -> None:
    datasets = in_turn[1]
    assert datasets == [undisturbed[1]] * 2
    assert datasets[0].entries == ["LATEST", "history.jsonl", "versions"]
    assert datasets[0].description["rows"]["read"] == ROWS + 2


def kill_after(folder: Path, seconds: float) -> None:
    """Kills a build after so many seconds, or sooner if it was quicker."""
    before = shutil.copytree(folder, f"{folder}-before")
    while not run_child(folder, seconds=seconds).exit_code:
        seconds /= 2
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
    shutil.rmtree(before)


@pytest.mark.nightly
def test_three_kills_at_random_moments_in_turn(
    copy: Callable[[], Path], undisturbed: tuple[Run, Dataset, float]
) -> None:
    folder = copy()
    for name in RANDOM[:3]:
        kill_after(folder, random.Random(name).uniform(0, 0.9) * undisturbed[2])
    assert run_child(folder).exit_code == 0
    assert dataset_of(folder) == undisturbed[1]


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*STEPS, *RANDOM])
def test_a_build_that_is_killed_once_gives_the_same_bytes(
    name: str, copy: Callable[[], Path], undisturbed: tuple[Run, Dataset, float]
) -> None:
    folder = copy()
    if name in STEPS:
        assert run_child(folder, STEPS[name]).exit_code == -signal.SIGKILL
    else:
        kill_after(folder, random.Random(name).uniform(0, 0.9) * undisturbed[2])
    run = run_child(folder)
    assert (run.exit_code, run.looks > 0) == (0, True)
    assert dataset_of(folder) == undisturbed[1]


def test_an_undisturbed_build_says_nothing_of_earlier_ones(undisturbed: tuple[Run, Dataset, float]) -> None:
    run, dataset, _ = undisturbed
    assert (run.exit_code, run.notes, run.jobs) == (0, [], 1)
    assert dataset.description["rejects"]["by_reason"] == {"duplicate_key": 1, "wrong_type": 1}
