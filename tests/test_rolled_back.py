"""A person's rollback outlives the night: no build of the same inputs undoes it, until somebody approves."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recordmill.pipeline.build.build import build
from recordmill.pipeline.dataset.manifest import Latest
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.acts import approve, reject, rollback
from recordmill.pipeline.versions.base import latest_of
from recordmill.pipeline.versions.history import read_history
from recordmill.pipeline.versions.listing import list_versions
from recordmill.pipeline.versions.prune import prune
from recordmill.pipeline.versions.publishing import GateBreachedError, Published
from recordmill.pipeline.versions.stores.open_store import open_store
from tests.messages import assert_names, raises
from tests.test_publishing import STORES


class Output:
    """A dataset of numbers, and its builds."""

    def __init__(self, folder: Path, output: str) -> None:
        self.rows, self.output = folder / "rows.csv", output
        self.spec = parse_spec(
            f"name: d\nsource: {{format: csv, path: {self.rows}}}\nsplits: {{train: 1}}\ngate: false\n"
            "features: {x: {kind: number}}\n"
        )

    def build(self, count: int, touched: int = 0) -> Published:
        self.rows.write_text("x\n" + "".join(f"{row}\n" for row in range(count)))
        os.utime(self.rows, (count + touched, count + touched))
        return build(self.spec, self.output)

    def held(self, count: int, touched: int = 0) -> Published:
        """Builds what must be held back; the message says why, and what to do."""
        with pytest.raises(GateBreachedError) as error:
            self.build(count, touched)
        published, live = error.value.published, self.live
        assert error.value.exit_code == ExitCode.GATE == 4
        message = str(error.value)
        assert_names(message, published.manifest.version, "held back", "rolled back")
        assert f"{live} stays live" in message
        for act in ("approve", "reject"):
            assert f"`recordmill versions {act} {self.output}" in message
        last = read_history(self.output)[-1]
        assert (last["end"], last["exit_code"], last["message"]) == ("held_back", 4, message)
        return published

    @property
    def live(self) -> str:
        return live_of(self.output)


def live_of(output: str) -> str:
    latest = latest_of(open_store(output))
    assert latest is not None
    return latest.version


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.nightly)])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with STORES[request.param](tmp_path) as url:
        yield url


def test_a_rollback_stays_until_somebody_approves(output: str, tmp_path: Path) -> None:
    made = Output(tmp_path, output)
    first, second = (made.build(count).manifest.version for count in (5, 6))
    rollback(output, reason="labels are wrong")
    for _ in range(2):
        held = made.held(6)
        assert (held.manifest.version, held.is_new, made.live) == (second, False, first)
    assert [version.is_held_back for version in list_versions(output)] == [False, True]
    prune(output, keep=3, grace_seconds=0)
    assert made.held(6).manifest.version == second  # a reader may have it open: it is no refused version
    assert made.build(5).exit_code == ExitCode.UP_TO_DATE  # the inputs of what is live
    assert approve(output)[0].version == second
    assert made.build(6).exit_code == ExitCode.UP_TO_DATE
    assert made.build(5).went_live  # it was not rolled back, but followed
    assert made.build(6).went_live
    acts = [(line["act"], line["end"]) for line in read_history(output)]
    assert acts.count(("rollback", "done")) == acts.count(("approve", "done")) == 1


def test_other_inputs_go_live_and_the_same_ones_still_wait(output: str, tmp_path: Path) -> None:
    made = Output(tmp_path, output)
    first, second = (made.build(count).manifest.version for count in (5, 6))
    rollback(output)
    third = made.build(7)
    assert third.went_live
    assert made.held(6).manifest.version == second
    rollback(output, first)
    assert made.held(7).manifest.version == third.manifest.version
    assert made.held(6).manifest.version == second
    rollback(output, second)  # a person's act, too
    assert made.live == second
    assert made.build(6).exit_code == ExitCode.UP_TO_DATE
    assert made.held(7).manifest.version == third.manifest.version


@pytest.mark.first(1)
@pytest.mark.parametrize("gone", ["rejected", "pruned", "deleted"])
def test_what_is_gone_is_made_again_and_not_live(tmp_path: Path, gone: str) -> None:
    output = str(tmp_path / "out")
    made = Output(tmp_path, output)
    first, second = (made.build(count).manifest.version for count in (5, 6))
    rollback(output)
    ways: dict[str, Callable[[], object]] = {
        "rejected": lambda: reject(output),
        "pruned": lambda: prune(output, keep=0, grace_seconds=0),
        "deleted": lambda: shutil.rmtree(tmp_path / "out/versions" / second),
    }
    ways[gone]()
    assert [version.manifest.version for version in list_versions(output)] == [first]
    again = made.held(6)
    assert (again.is_new, made.live) == (True, first)
    assert made.held(6).manifest.version == again.manifest.version
    reject(output)
    assert [version.manifest.version for version in list_versions(output)] == [first]


@pytest.mark.first(1)
@pytest.mark.parametrize("analysis", ["frozen", "refresh"])
def test_a_day_that_was_rolled_back_waits_and_the_next_one_does_not(tmp_path: Path, analysis: str) -> None:
    output, rows = str(tmp_path / "out"), tmp_path / "data"
    spec = parse_spec(
        f"name: d\nsource: {{format: jsonl, path: '{rows}/{{span}}.jsonl'}}\nsplits: {{train: 1}}\ngate: false\n"
        f"features: {{x: {{kind: number}}}}\nanalysis: {analysis}\n"
    )
    rows.mkdir()

    def night(day: int) -> Published:
        file = rows / f"day-{day}.jsonl"
        file.write_text("".join(json.dumps({"x": row + day}) + "\n" for row in range(5)))
        os.utime(file, (day, day))
        return build(spec, output)

    first, second = (night(day).manifest.version for day in (1, 2))
    rollback(output)
    with raises(GateBreachedError, "rolled back") as held:
        night(2)
    assert held.value.published.manifest.version == second
    assert live_of(output) == first
    assert night(3).went_live


@pytest.mark.nightly
def test_files_that_are_touched_undo_no_rollback_and_what_it_held_goes_with_other_inputs(tmp_path: Path) -> None:
    made = Output(tmp_path, str(tmp_path / "out"))
    first, second = (made.build(count).manifest.version for count in (5, 6))
    rollback(made.output)
    again = made.held(6, touched=1000)
    assert (again.is_new, made.live) == (True, first)
    assert [each.manifest.version for each in list_versions(made.output)] == [first, second, again.manifest.version]
    assert made.build(5).exit_code == ExitCode.UP_TO_DATE
    assert [each.manifest.version for each in list_versions(made.output)] == [first, second]  # this one was live
    again = made.held(6, touched=1000)
    assert approve(made.output)[0].version == again.manifest.version
    assert made.build(6, touched=2000).exit_code == ExitCode.UP_TO_DATE


def test_a_pointer_of_before_is_read_and_one_without_rollbacks_has_no_new_field() -> None:
    old = '{"version": "20261120T120000Z-4f1c9a2e", "sequence": 3, "retired": {}, "pinned": []}'
    latest = Latest.from_json(json.loads(old))
    assert latest.rolled_back == ()
    assert "rolled_back" not in latest.to_text()
    held = replace(latest, rolled_back=("a" * 64,))
    assert Latest.from_json(json.loads(held.to_text())) == held
