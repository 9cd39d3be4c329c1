"""docs/rebuilds.md: its loop follows the live version, and goes on exactly; its tables name what there is."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from recordmill import DatasetError, open_dataset
from recordmill.pipeline.build.journal import DRY_RUN, ENDS, HELP, Journal
from recordmill.pipeline.build.run_options import RunOptions, Stage
from recordmill.pipeline.dataset.manifest import Latest
from recordmill.pipeline.errors import ExitCode
from tests.hand_made import FEATURES, write_dataset
from tests.messages import raises

PAGE = (Path(__file__).parents[1] / "docs/rebuilds.md").read_text()
FOLLOW, LOOP = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COUNT = {"count": FEATURES["count"]}
OPTIONS: dict[str, Any] = {"batch_size": 2, "seed": 1}


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's function, beside a dataset whose version v1 is live."""
    monkeypatch.chdir(tmp_path)
    publish("v1")
    names: dict[str, Any] = {}
    exec(compile(FOLLOW, "docs/rebuilds.md", "exec"), names)
    return names["follow"]


def publish(version: str) -> None:
    write_dataset(Path("out/visits"), COUNT, None, version)


def train(inputs: Any, publish_in: dict[int, str], stop: int | None = None) -> tuple[list[Any], Any]:
    """Reads all batches, or so many; publishes versions in the middle of epochs. Gives versions, batches, the state."""
    seen: list[Any] = []
    state = None
    for given in inputs:
        batches = given.as_numpy()
        for features in batches:
            state = batches.state()
            seen.append((state["version"], state["epoch"], features["count"].tolist()))
            if version := publish_in.get(len(seen)):
                publish(version)
            if len(seen) == stop:
                return seen, state
    return seen, state


def test_each_epoch_is_of_the_version_that_is_live_when_it_begins(follow: Any) -> None:
    seen, _ = train(follow("out/visits", 3, **OPTIONS), {2: "v2"})
    steps = len(seen) // 3
    assert [version for version, _, _ in seen] == ["v1"] * steps + ["v2"] * 2 * steps
    alone = open_dataset("out/visits", "v2").training_input(**OPTIONS)
    alone.set_epoch(2)
    assert [batch for _, _, batch in seen[2 * steps :]] == [each["count"].tolist() for each in alone.as_numpy()]


def test_a_killed_training_sees_the_same_batches(follow: Any) -> None:
    """The second version is live before the training is killed, in the middle of the first epoch."""
    first, state = train(follow("out/visits", 3, **OPTIONS), {2: "v2"}, stop=3)
    rest, _ = train(follow("out/visits", 3, state, **OPTIONS), {})
    Path("out/visits/LATEST").write_text(Latest("v1", 1).to_text())
    shutil.rmtree("out/visits/versions/v2")
    whole, _ = train(follow("out/visits", 3, **OPTIONS), {2: "v2"})
    assert first + rest == whole


def test_a_version_that_was_pruned_is_named(follow: Any) -> None:
    _, state = train(follow("out/visits", 3, **OPTIONS), {}, stop=1)
    publish("v2")
    Path("out/visits/versions/v1").rename("gone")
    with raises(DatasetError, "no version 'v1'"):
        next(follow("out/visits", 3, state, **OPTIONS))
    assert next(follow("out/visits", 3, first=state["epoch"], **OPTIONS)).state(step=0)["version"] == "v2"


def test_the_loop_runs(follow: Any) -> None:
    names = {"follow": follow}
    code = LOOP.replace("batch_size=32", "batch_size=2").replace("features, label", "features")
    exec(compile(code, "docs/rebuilds.md", "exec"), names)
    assert names["step"] == 15


def test_the_tables_name_every_metric_stage_end_code_and_field() -> None:
    names = [f"`recordmill_{name}`" for name in HELP]
    names += [f"`{stage.name.lower()}`" for stage in Stage]
    names += [f"`{end}`" for end in (*ENDS.values(), DRY_RUN, "failed", "running", "killed")]
    names += [f"`{field}`" for field in Journal("out", RunOptions()).entry]
    assert [name for name in names if name not in PAGE] == []
    codes = re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE)
    assert {int(code) for row in codes for code in row.split(",")} == {*ExitCode}
