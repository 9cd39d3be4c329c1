"""Prunes beside each other, beside builds and `forget`, each a process: nothing that a kept version needs goes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill import open_dataset
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.listing import list_versions
from tests.forked import recordmill, start_python
from tests.sharing import NAMES, publish
from tests.test_publishing import STORES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MORE = [f"20261123T00000{number}Z-dddd0000" for number in range(3)]
SPEC = """
name: days
source: {{format: jsonl, path: '{folder}/rows/{{span}}.jsonl'}}
key: id
gate: false
features: {{n: {{kind: number, normalize: none}}}}
"""


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.nightly)])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with STORES[request.param](tmp_path) as url:
        yield url


def at_once(folder: Path, *commands: list[str]) -> list[int | None]:
    """Runs commands at the same time, and prunes until they have ended and once more; returns their statuses."""
    with open(folder / "log.txt", "ab") as log:
        outputs = {"stdout": log.fileno(), "stderr": log.fileno()}
        start = lambda command: start_python("-m", "recordmill", *command, cwd=folder, **outputs)  # noqa: E731
        children, statuses = [start(command) for command in commands], set[int | None]()
        is_over = False
        while not is_over:  # the last prune begins when nobody holds a version any more
            is_over = all(child.exitcode is not None for child in children)
            pruning = start(prune_of(commands))
            pruning.join(120)
            statuses.add(pruning.exitcode)
    assert statuses <= {0}, (folder / "log.txt").read_text()
    return [child.exitcode for child in children]


def prune_of(commands: tuple[list[str], ...]) -> list[str]:
    output = commands[0][commands[0].index("--output") + 1] if "--output" in commands[0] else commands[0][2]
    return ["versions", "prune", output, "--keep", "1", "--grace", "0"]


def keys(output: str) -> set[str]:
    """Reads the keys of all records of every remaining version."""
    found = set[str]()
    for version in list_versions(output):
        dataset = open_dataset(output, version.manifest.version)
        for split in version.manifest.splits:
            batches = dataset.evaluation_input(split, batch_size=64, features=[], with_key=True).as_numpy()
            found |= {bytes(key).decode() for batch in batches for key in features_of(batch)["key"]}
        assert verify(output, version.manifest.version).findings.problems == []
    return found


def features_of(batch: object) -> dict[str, list[bytes]]:
    """Returns the features of a batch, a pair if it has a label."""
    return batch[0] if isinstance(batch, tuple) else batch  # type: ignore[return-value]


@pytest.mark.nightly
def test_two_prunes(output: str, tmp_path: Path) -> None:
    for number, version in enumerate([*NAMES, *MORE]):
        publish(output, tmp_path, version, keep=("train", "test")[: number % 3])
    rows = keys(output)
    prune = ["versions", "prune", output, "--keep", "2", "--grace", "0"]
    assert at_once(tmp_path, prune, prune) == [0, 0]
    assert keys(output) == rows
    assert [version.manifest.version for version in list_versions(output)][-1] == MORE[-1]


def test_a_prune_beside_forget(output: str, tmp_path: Path) -> None:
    for version, keep in zip(NAMES, ((), ("train",), ("train", "test")), strict=True):
        publish(output, tmp_path, version, keep)
    rows = keys(output)
    for key in ("row/1", "row/17", "row/30"):
        assert at_once(tmp_path, ["versions", "forget", output, key]) == [0]
        rows -= {key}
        assert keys(output) == rows


@pytest.mark.nightly
def test_a_prune_beside_a_build_that_takes_shards_over(output: str, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "dataset.yaml").write_text(SPEC.format(folder=tmp_path))
    rows = set[str]()
    for day in range(4):
        ids = [f"{day}-{number}" for number in range(30)]
        lines = [json.dumps({"id": id_, "n": number}) + "\n" for number, id_ in enumerate(ids)]
        (tmp_path / f"rows/day-{day}.jsonl").write_text("".join(lines))
        rows |= set(ids)
        work = ["--work", str(tmp_path / "work")] if "://" in output else []
        command = ["build", "dataset.yaml", "--output", output, *work]
        if not day:  # there is nothing to prune yet
            assert recordmill(*command, cwd=tmp_path).returncode == 0
            continue
        assert at_once(tmp_path, command) == [0]
        assert keys(output) == rows
        assert len(list_versions(output)) <= 2
    assert len(list_versions(output)[-1].manifest.spans) == 4
