"""The output's history: one whole line a build, whoever writes at the same time, and killed builds noticed."""

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.versions import acts, history, leases
from recordmill.pipeline.versions.history import Entry, read_history, recorded, write_entry
from recordmill.pipeline.versions.prune import prune
from recordmill.pipeline.versions.publishing import check_output
from recordmill.pipeline.versions.stores.base import HISTORY_FILE, OutputError
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import emulators
from tests.constants import constants
from tests.messages import assert_names
from tests.test_publishing import STORES, publish

KEY = "4f1c9a2e" * 8


@pytest.fixture(params=emulators.ONE_STORE)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An output with a version."""
    with STORES[request.param](tmp_path) as url:
        publish(url, tmp_path, "v1")
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """An output in a folder, with a version."""
    publish(str(tmp_path / "out"), tmp_path, "v1")
    return str(tmp_path / "out")


def ends(output: str) -> dict[str, str]:
    return {entry["id"]: entry["end"] for entry in read_history(output)}


def test_a_build_has_one_line_which_its_end_replaces_and_prune_keeps(output: str) -> None:
    assert read_history(output) == []
    write_entry(output, {"id": "a", "end": "failed", "message": "é \ud800"})
    write_entry(output, {"id": "b", "end": "published"})
    write_entry(output, {"id": "a", "end": "up_to_date"})
    assert ends(output) == {"b": "published", "a": "up_to_date"}
    write_entry(output, {"id": "a", "end": "published"})
    check_output(output)
    assert prune(output, keep=1, grace_seconds=0).removed == {}
    assert open_store(output).children("") == ["LATEST", HISTORY_FILE, "versions"]


@constants(history, MOST_BYTES=90)
def test_the_oldest_lines_leave_a_full_history(folder: str) -> None:
    for number in range(5):
        write_entry(folder, {"id": str(number), "end": "published"})
    assert [*ends(folder)] == ["3", "4"]
    write_entry(folder, {"id": "long", "end": "failed", "message": "x" * 200})
    assert [*ends(folder)] == ["long"]


def test_a_running_build_whose_lease_is_gone_was_killed(folder: str) -> None:
    with leases.hold(open_store(folder), leases.BUILD):
        holder = leases.holders(open_store(folder))[leases.BUILD]
        running = {"id": "a", "end": "running", "build_key": KEY, "host": holder.host, "process": holder.process}
        write_entry(folder, running)
        write_entry(folder, {"id": "b", "end": "up_to_date"})
        assert ends(folder)["a"] == "running"
        write_entry(folder, {**running, "id": "c", "process": holder.process + 1})
        write_entry(folder, {"id": "d", "end": "up_to_date"})
        assert ends(folder) == {"a": "running", "b": "up_to_date", "c": "killed", "d": "up_to_date"}
    write_entry(folder, {"id": "e", "end": "published"})
    assert ends(folder)["a"] == "killed"


def test_nothing_is_written_where_no_dataset_lies(tmp_path: Path) -> None:
    write_entry(str(tmp_path / "out"), {"id": "a"})
    assert not (tmp_path / "out").exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").touch()
    write_entry(str(tmp_path / "photos"), {"id": "a"})
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_lines_that_are_no_entries_are_left_out(tmp_path: Path) -> None:
    (tmp_path / HISTORY_FILE).write_bytes(
        b'{"id": "a", "end": "published"}\n[1]\n{"id"\n\xff\n' + b"[" * 100_000 + b"\n"
    )
    assert ends(str(tmp_path)) == {"a": "published"}
    write_entry(str(tmp_path), {"id": "b", "end": "published"})
    assert len((tmp_path / HISTORY_FILE).read_bytes().splitlines()) == 2


def add_entries(output: str, writer: int) -> None:
    for number in range(20):
        write_entry(output, {"id": f"{writer}-{number}", "end": "published", "padding": "x" * 5000})


def test_builds_at_the_same_time_tear_no_line(tmp_path: Path) -> None:
    publish(str(tmp_path), tmp_path / "scratch", "v1")
    writers = [multiprocessing.Process(target=add_entries, args=(str(tmp_path), writer)) for writer in range(3)]
    for process in writers:
        process.start()
    while any(process.is_alive() for process in writers):
        assert all(isinstance(entry, dict) for entry in whole_lines(tmp_path / HISTORY_FILE))
    assert [process.exitcode for process in writers] == [0, 0, 0]
    assert len(whole_lines(tmp_path / HISTORY_FILE)) == 60


def whole_lines(path: Path) -> list[Any]:
    """Every line, each of which must be JSON."""
    text = path.read_text() if path.exists() else ""
    assert text.endswith("\n") or not text
    return [json.loads(line) for line in text.splitlines()]


def lines(output: str) -> list[tuple[Any, ...]]:
    """The acts in the history: the act, its reason, the live version before and after, and what it did."""
    fields = "act", "reason", "live_before", "live_after", "version", "pinned", "removed"
    return [tuple(entry.get(field) for field in fields if field in entry) for entry in read_history(output)]


def test_acts_that_change_something_have_a_line(output: str, tmp_path: Path) -> None:
    publish(output, tmp_path, "v2", "22" * 32)
    acts.pin(output, "v1", "an audit")
    acts.pin(output, "v1", "again: nothing changes")
    acts.tag(output, "released", "v1", "the paper")
    acts.tag(output, "released", "v1", "again: nothing changes")
    acts.unpin(output, "v1")
    acts.rollback(output, "v1", "labels are wrong")
    acts.rollback(output, "v1")
    publish(output, tmp_path, "v3", "33" * 32, holds_back=True)
    acts.approve(output, reason="a new class")
    publish(output, tmp_path, "v4", "44" * 32, holds_back=True)
    waiting = sum(open_store(output).sizes("versions/v4").values())
    acts.reject(output)
    prune(output, keep=1, grace_seconds=0, dry_run=True)
    sizes = prune(output, keep=1, grace_seconds=0, reason="space").removed
    prune(output, keep=1, grace_seconds=0)
    assert lines(output) == [
        ("pin", "an audit", "v2", "v2", "v1", ["v1"]),
        ("tag", "the paper", "v2", "v2", "v1", ["v1"]),
        ("unpin", "", "v2", "v2", "v1", []),
        ("rollback", "labels are wrong", "v2", "v1", "v1"),
        ("approve", "a new class", "v1", "v3", "v3"),
        ("reject", "", "v3", "v3", "v4", {"versions/v4": waiting}),
        ("prune", "space", "v3", "v3", {"versions/v1": sizes["versions/v1"], "versions/v2": sizes["versions/v2"]}),
    ]
    entry = read_history(output)[0]
    assert entry["user"]
    assert entry["host"]
    assert (entry["end"], entry["message"]) == ("done", None)


@pytest.mark.parametrize(("error", "changes", "end"), [
    (OutputError("full: s3://key:secret@bucket/a"), {"removed": {"v1": 1}}, [("failed", "full: s3://***@bucket/a")]),
    (ValueError("a value"), {"removed": {"v1": 1}}, [("failed", "ValueError")]),
    (KeyboardInterrupt(), {"removed": {"v1": 1}}, [("stopped", "KeyboardInterrupt")]),
    (OutputError("full"), {"removed": {}}, []),
])  # fmt: skip
def test_an_act_that_fails_has_a_line_if_it_changed_something(
    folder: str, error: BaseException, changes: Entry, end: list[tuple[str, str]]
) -> None:
    def act() -> None:
        with recorded(folder, "prune", "") as noted:
            noted |= changes
            raise error

    with pytest.raises(type(error)):
        act()
    assert [(entry["end"], entry["message"]) for entry in read_history(folder)] == end


def test_no_act_fails_by_its_history(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    Path(folder, HISTORY_FILE).mkdir()
    assert acts.pin(folder, "v1").version == "v1"
    (warning,) = caplog.messages
    assert_names(warning, "history", "Is a directory", f"{folder}/{HISTORY_FILE}")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_history_shows_builds_and_acts(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(capsys, "history", folder)
    assert_names(line, folder, "history", "`recordmill versions`")
    assert printed(capsys, "history", folder, "--json") == []
    build = {"began_at": "2026-11-20T12:00:00Z", "host": "h", "live_before": "v0", "version": "v1"}
    write_entry(folder, {"id": "old", "end": "published", **build})
    failed = {"act": "build", "user": "ann", "end": "failed", "message": "no\x1b[2J\nmore"}
    write_entry(folder, {"id": "b", **build, **failed})
    hostile = {"id": "hostile", "act": {}, "end": 3, "began_at": [], "live_before": [1], "live_after": None}
    hostile |= {"removed": {"v": 1, "w": 2}, "keys": 2, "files": {}, "reason": "why"}
    write_entry(folder, hostile)
    assert printed(capsys, "history", folder) == ["at by act end", "2026-11-20T12:00:00Z h build published v1",
        "2026-11-20T12:00:00Z ann@h build failed v1; no\\x1b[2J",
        "[] {} 3 [1] → None; 2 keys; removed v, w; why"]  # fmt: skip
    assert [json.loads(line) for line in printed(capsys, "history", folder, "--json", "--limit", "1")] == [hostile]
