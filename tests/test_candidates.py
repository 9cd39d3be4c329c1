"""Candidates: put up in place of going live, approved, rejected and replaced, in a folder and in object stores."""

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from recordmill.pipeline.versions.candidates import Judgement
from recordmill.pipeline.versions.review import approve, reject

from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.manifest import Candidate, DatasetError, Latest, read_latest, read_manifest
from recordmill.pipeline.versions import latest_file, publishing
from recordmill.pipeline.versions.listing import find, held, list_versions, pin, rollback
from recordmill.pipeline.versions.prune import prune, sweep
from recordmill.pipeline.versions.stores.base import OutputError, UnsettledOutputError
from recordmill.pipeline.versions.stores.open_store import open_location, open_store
from tests import emulators
from tests.test_publishing import STORES, publish

LINE = "rows_lost of all is 0.5, more than 0.1: 10 → 5 rows"
BREACH = {"rule": "rows_lost", "subject": "all", "figure": 0.5, "limit": 0.1, "detail": "10 → 5 rows"}
FORKED = multiprocessing.get_context("fork")


def holds_back(live: str) -> Judgement:
    return Judgement({"live": live, "figures": {}, "breaches": [BREACH]}, (LINE,))


@pytest.fixture(params=emulators.ONE_STORE)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A version that is live, and one that waits."""
    with STORES[request.param](tmp_path) as url:
        publish(url, tmp_path, "v1", "11" * 32)
        publish(url, tmp_path, "v2", "22" * 32, judge=holds_back)
        yield url


@pytest.fixture
def local(tmp_path: Path) -> str:
    output = str(tmp_path / "out")
    publish(output, tmp_path, "v1", "11" * 32)
    publish(output, tmp_path, "v2", "22" * 32, judge=holds_back)
    return output


def live(output: str) -> Latest:
    return read_latest(open_location(output))


def names(output: str) -> list[str]:
    return [version.manifest.version for version in list_versions(output)]


def test_a_breach_puts_a_whole_version_up_and_moves_nothing(output: str) -> None:
    assert live(output) == Latest("v1", 1, candidate=Candidate("v2", "v1", (LINE,)))
    candidate = find(output, "candidate")
    assert (candidate.version, candidate.sequence, candidate.gate["live"]) == ("v2", 2, "v1")
    states = [(each.is_live, each.is_candidate) for each in list_versions(output)]
    assert states == [(True, False), (False, True)]


def test_an_approved_candidate_is_live(output: str) -> None:
    assert approve(output) == (Candidate("v2", "v1", (LINE,)), "v1")
    now = live(output)
    assert (now.version, now.candidate, [*now.retired]) == ("v2", None, ["v1"])
    assert rollback(output)[0].version == "v1"
    with pytest.raises(OutputError, match="no candidate waits in .*; v1 is live"):
        approve(output)


def test_a_rejected_candidate_is_gone(output: str) -> None:
    assert reject(output) == (Candidate("v2", "v1", (LINE,)), True)
    assert (live(output), names(output)) == (Latest("v1", 1), ["v1"])
    with pytest.raises(OutputError, match="no candidate waits"):
        reject(output)
    with pytest.raises(DatasetError, match="no candidate waits in .*; there are v1"):
        find(output, "candidate")


def test_the_next_build_replaces_it(output: str, tmp_path: Path) -> None:
    publish(output, tmp_path, "v3", "33" * 32, judge=holds_back)
    assert live(output) == Latest("v1", 1, removing=("v2",), candidate=Candidate("v3", "v1", (LINE,)))
    sweep(output, str(tmp_path / "building"))
    assert names(output) == ["v1", "v3"]
    publish(output, tmp_path, "v4", "44" * 32)
    sweep(output, str(tmp_path / "building"))
    now = live(output)
    assert (now.version, now.candidate, now.removing, names(output)) == ("v4", None, (), ["v1", "v4"])
    assert find(output, "-1").version == "v1"


def test_it_was_compared_with_another_version(output: str, tmp_path: Path) -> None:
    publish(output, tmp_path, "v0", "00" * 32, judge=lambda live: Judgement({}, ()))  # replaces v2
    publish(output, tmp_path, "v3", "33" * 32, judge=holds_back)
    rollback(output, "v1")
    with pytest.raises(OutputError, match=r"v3 was compared with v0, and v1 is live now.*approve .* v3` publishes it"):
        approve(output)
    with pytest.raises(OutputError, match="v1 does not wait in .*: the candidate is v3"):
        approve(output, "v1")
    assert approve(output, "v3")[1] == "v1"
    assert live(output).version == "v3"


def test_prune_keeps_it_and_does_not_count_it(output: str) -> None:
    prune(output, 1, 0)
    assert names(output) == ["v1", "v2"]
    assert live(output).candidate is not None


def test_a_purge_takes_it_back(output: str) -> None:
    prune(output, None, 0, also=["v2"])
    assert (live(output), names(output)) == (Latest("v1", 1), ["v1"])


def test_inputs_of_the_live_version_take_it_back(output: str) -> None:
    publishing.take_back(output, "v0")  # another version became live meanwhile
    assert live(output).candidate is not None
    publishing.take_back(output, "v1")
    assert live(output) == Latest("v1", 1, removing=("v2",))


def test_the_version_before_is_never_one_that_was_held_back(local: str, tmp_path: Path) -> None:
    pin(local, "v2")
    publish(local, tmp_path, "v3", "33" * 32)
    assert (live(local).removing, names(local)) == ((), ["v1", "v2", "v3"])  # it is pinned
    assert find(local, "-1").version == "v1"
    rollback(local, "v2")
    assert find(local, "-1").version == "v1"


def test_a_version_that_is_being_deleted_is_not_put_up(local: str) -> None:
    marked = lambda latest: replace(latest or Latest("", 0), candidate=None, removing=("v2",))  # noqa: E731
    latest_file.compare_and_swap(open_store(local), marked)
    with pytest.raises(UnsettledOutputError, match="the version v2 is being deleted: choose another, or build again"):
        publishing.make_live(local, "v2", holds_back)
    assert live(local).candidate is None


def test_what_was_live_once_is_not_removed(local: str) -> None:
    approve(local)
    latest = publishing.make_live(local, "v1", holds_back)
    assert (latest.version, latest.candidate) == ("v2", Candidate("v1", "v2", (LINE,)))
    assert reject(local) == (Candidate("v1", "v2", (LINE,)), False)
    assert (live(local).candidate, names(local)) == (None, ["v1", "v2"])


def test_a_candidate_that_is_held_stays(local: str) -> None:
    with held(local, "v2"):
        assert reject(local)[1] is False
        assert names(local) == ["v1", "v2"]
    assert find(local, "v2").gate["live"] == "v1"


def test_others_write_while_a_version_is_judged(local: str, tmp_path: Path) -> None:
    judged = list[str]()

    def judge(live: str) -> Judgement:
        judged.append(live)
        other = threading.Thread(target=pin, args=(local, "v1"), daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()
        return Judgement({}, ())

    publish(local, tmp_path, "v3", "33" * 32, judge=judge)
    publishing.make_live(local, "v1", judge)
    assert judged == ["v1", "v3"]


def test_it_is_judged_again_where_another_version_became_live(local: str, tmp_path: Path) -> None:
    def judge(live: str) -> Judgement:
        if live == "v1":
            rollback(local, "v2")
        return Judgement({}, (LINE,) if live == "v2" else ())

    publish(local, tmp_path, "v3", "33" * 32, judge=judge)
    assert live(local).candidate == Candidate("v3", "v2", (LINE,))


def test_the_same_judgement_again_changes_nothing(local: str) -> None:
    before = Path(local, "LATEST").read_bytes()
    publishing.make_live(local, "v2", holds_back)
    assert Path(local, "LATEST").read_bytes() == before
    assert publishing.make_live(local, "v2").version == "v2"  # a wider limit


def test_a_candidate_can_be_made_live_by_rollback(local: str) -> None:
    rollback(local, "candidate")
    assert (live(local).version, live(local).candidate) == ("v2", None)


def _published_in_a_child(output: str, folder: Path, version: str, key: str, *, dies: bool) -> int | None:
    def run() -> None:
        if dies:
            latest_file.compare_and_swap = die_after_edit  # type: ignore[assignment]
        publish(output, folder, version, key, judge=holds_back)

    def die_after_edit(store: object, edit: object) -> None:
        edit(latest_file.read(store))  # type: ignore[operator, arg-type]
        os.kill(os.getpid(), signal.SIGKILL)

    child = FORKED.Process(target=run)
    child.start()
    child.join()
    return child.exitcode


def test_killed_before_latest_names_it(local: str, tmp_path: Path) -> None:
    assert _published_in_a_child(local, tmp_path, "v3", "33" * 32, dies=True) == -signal.SIGKILL
    assert live(local).candidate == Candidate("v2", "v1", (LINE,))
    version = find(local, "v3")  # it appeared, and nobody sees it as live, as the candidate, or as the one before
    assert version.gate["live"] == "v1"
    latest = publishing.make_live(local, version.version, holds_back)  # as the same build does
    assert latest.candidate == Candidate("v3", "v1", (LINE,))
    assert latest.removing == ("v2",)


def test_two_processes_at_once_put_up_one_candidate(local: str, tmp_path: Path) -> None:
    def run(version: str) -> None:
        publish(local, tmp_path / version, version, version[-1] * 64, judge=holds_back)

    children = [FORKED.Process(target=run, args=(f"v{number}",)) for number in (3, 4, 5)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    latest = live(local)
    assert latest.candidate is not None
    assert sorted([latest.candidate.version, *latest.removing]) == ["v2", "v3", "v4", "v5"]
    sweep(local, str(tmp_path / "building"))
    assert names(local) == ["v1", latest.candidate.version]


def test_an_earlier_recordmill_reads_latest(local: str) -> None:
    written = json.loads(Path(local, "LATEST").read_text())
    assert {name: written[name] for name in ("version", "sequence")} == {"version": "v1", "sequence": 1}
    del written["candidate"]["breaches"]
    assert Latest.from_json(written).candidate == Candidate("v2", "v1")


@pytest.mark.parametrize(
    "candidate", [{"version": "../v2", "live": "v1"}, {"version": "v2"}, {"version": 2, "live": "v1"}]
)
def test_a_damaged_candidate_is_one_clear_line(local: str, candidate: object) -> None:
    latest = json.loads(Path(local, "LATEST").read_text())
    Path(local, "LATEST").write_text(json.dumps(latest | {"candidate": candidate}))
    with pytest.raises(OutputError, match="LATEST is broken"):
        latest_file.read(open_store(local))


def test_commands(local: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["recordmill", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return f"{end.value.code}: {captured.out}{captured.err}"

    assert "candidate" in run("versions", "list", local)
    assert (
        run("versions", "approve", local)
        == f"0: v2 is live now; v1 was, and stays: `recordmill versions rollback {local} v1`\n"
    )
    assert run("versions", "approve", local) == f"1: recordmill: no candidate waits in {local}; v2 is live\n"
    assert publishing.make_live(local, "v1", holds_back).candidate
    assert run("versions", "reject", local).startswith("0: v1 stays, since it was live once")
    assert replace(read_manifest(Path(local, "versions/v2")), gate={}).to_text().find("gate") == -1
