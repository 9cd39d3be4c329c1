"""Versions that the gate held back: whole and not live, approved, rejected, and removed once a later one followed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.manifest import DatasetError, Latest, read_latest
from recordmill.pipeline.versions import prune as prunes
from recordmill.pipeline.versions.acts import approve, pin, reject, rollback
from recordmill.pipeline.versions.base import add_forgotten
from recordmill.pipeline.versions.listing import find, held, list_versions
from recordmill.pipeline.versions.prune import prune, sweep
from recordmill.pipeline.versions.stores.base import OutputError, UnsettledOutputError
from recordmill.pipeline.versions.stores.open_store import open_location, open_store
from tests import emulators
from tests.messages import assert_names, raises
from tests.test_publishing import STORES, publish


@pytest.fixture(params=emulators.ONE_STORE)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A version that is live, and one that is held back."""
    with STORES[request.param](tmp_path) as url:
        publish(url, tmp_path, "v1", "11" * 32)
        publish(url, tmp_path, "v2", "22" * 32, holds_back=True)
        yield url


@pytest.fixture
def local(tmp_path: Path) -> str:
    output = str(tmp_path / "out")
    publish(output, tmp_path, "v1", "11" * 32)
    publish(output, tmp_path, "v2", "22" * 32, holds_back=True)
    return output


def live(output: str) -> Latest:
    return read_latest(open_location(output))


def names(output: str) -> list[str]:
    return [version.manifest.version for version in list_versions(output)]


def test_it_is_whole_and_nothing_else_moved(output: str) -> None:
    assert live(output) == Latest("v1", 1)
    found = find(output, "held-back")
    assert (found.version, found.sequence, found.gate["live"]) == ("v2", 2, "v1")
    states = [(each.is_live, each.is_held_back) for each in list_versions(output)]
    assert states == [(True, False), (False, True)]


def test_an_approved_version_is_live(output: str) -> None:
    now, before = approve(output)
    assert (now.version, before, live(output).version, [*live(output).retired]) == ("v2", "v1", "v2", ["v1"])
    with raises(OutputError, "held back", output, "v2"):
        approve(output)
    with raises(OutputError, "v1", f"`recordmill versions list {output}`"):
        approve(output, "v1")
    assert rollback(output)[0].version == "v1"
    assert approve(output)[0].version == "v2"  # what was rolled back waits for that, too


def test_a_rollback_never_takes_the_place_of_an_approval(output: str) -> None:
    with raises(OutputError, f"`recordmill versions approve {output} v2`"):
        rollback(output, "v2")
    assert live(output).version == "v1"


def test_an_approved_version_stays_where_latest_was_lost(local: str, tmp_path: Path) -> None:
    approve(local)
    publish(local, tmp_path, "v3", "33" * 32)
    Path(local, "LATEST").write_text("{")
    rollback(local, "v3")
    assert [*live(local).retired] == ["v1", "v2"]
    publish(local, tmp_path, "v4", "44" * 32)
    sweep(local, f"{local}/.building")
    assert names(local) == ["v1", "v2", "v3", "v4"]
    Path(local, "LATEST").unlink()
    publish(local, tmp_path, "v5", "55" * 32)
    sweep(local, f"{local}/.building")
    assert names(local) == ["v1", "v2", "v3", "v4", "v5"]


def test_a_version_that_is_approved_meanwhile_is_not_removed(
    local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(local, tmp_path, "v3", "33" * 32)
    publish(local, tmp_path, "v4", "44" * 32)
    swap = prunes.compare_and_swap

    def approved_before(*arguments: Any) -> Latest:
        monkeypatch.undo()
        approve(local, "v2")
        rollback(local, "v4")
        return swap(*arguments)

    monkeypatch.setattr(prunes, "compare_and_swap", approved_before)
    prunes.remove_superseded(local)
    assert names(local) == ["v1", "v2", "v3", "v4"]


def test_a_rejected_version_is_gone(output: str) -> None:
    assert (reject(output).version, live(output), names(output)) == ("v2", Latest("v1", 1), ["v1"])
    with raises(OutputError, "held back"):
        reject(output)
    with raises(DatasetError, "held back", output, "v1"):
        find(output, "held-back")


def test_a_later_version_takes_its_place(output: str, tmp_path: Path) -> None:
    publish(output, tmp_path, "v3", "33" * 32, holds_back=True)
    sweep(output, str(tmp_path / "building"))
    assert (names(output), find(output, "held-back").version) == (["v1", "v3"], "v3")
    publish(output, tmp_path, "v4", "44" * 32)
    sweep(output, str(tmp_path / "building"))
    assert (live(output).version, live(output).removing, names(output)) == ("v4", (), ["v1", "v4"])
    assert find(output, "-1").version == "v1"


def test_it_was_compared_with_another_version(output: str, tmp_path: Path) -> None:
    publish(output, tmp_path, "v0", "00" * 32)
    publish(output, tmp_path, "v3", "33" * 32, holds_back=True)
    rollback(output, "v1")
    with raises(OutputError, "v3", "v0", "v1", f"`recordmill versions approve {output} v3`"):
        approve(output)
    with raises(OutputError, "v1", "not held back"):
        approve(output, "v1")
    assert approve(output, "v3")[1] == "v1"
    assert live(output).version == "v3"


def test_it_is_not_approved_with_forgotten_rows(local: str) -> None:
    add_forgotten(open_store(local), [b"a"])
    with raises(UnsettledOutputError, "forgotten", local, "v2", "build again"):
        approve(local)
    assert live(local).version == "v1"


def test_prune_keeps_it_and_does_not_count_it(output: str, tmp_path: Path) -> None:
    prune(output, 1, 0)
    assert names(output) == ["v1", "v2"]
    publish(output, tmp_path, "v3", "33" * 32)
    prune(output, 2, 1e6)
    assert names(output) == ["v1", "v3"]  # v2 was never live, so no reader has it open: its grace is over


def test_the_version_before_was_never_held_back(local: str, tmp_path: Path) -> None:
    pin(local, "v2")
    publish(local, tmp_path, "v3", "33" * 32)
    sweep(local, str(tmp_path / "building"))
    assert names(local) == ["v1", "v2", "v3"]  # it is pinned
    assert find(local, "-1").version == "v1"
    approve(local, "v2")
    assert find(local, "-1").version == "v1"


@pytest.mark.parametrize("protected", ["pinned", "held"])
def test_a_protected_version_is_not_removed(local: str, protected: str) -> None:
    if protected == "pinned":
        pin(local, "v2")
        with raises(OutputError, "v2 is pinned", f"`recordmill versions unpin {local} v2`"):
            reject(local)
    else:
        with held(local, "v2"), raises(UnsettledOutputError, "v2", "end the program that reads it"):
            reject(local)
    assert names(local) == ["v1", "v2"]


def test_commands(local: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as end:
            main(arguments)
        captured = capsys.readouterr()
        return f"{end.value.code}: {captured.out}{captured.err}"

    assert "held back" in run("versions", "list", local)
    answer = run("versions", "approve", local)
    assert answer.startswith("0: v2")
    assert_names(answer, "live now", "v1")
    answer = run("versions", "reject", local)
    assert answer.startswith("1: recordmill: ")
    assert_names(answer, "held back", local, "v2")
