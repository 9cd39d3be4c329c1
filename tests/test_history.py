"""The output's history: one whole line a build, whoever writes at the same time, and killed builds noticed."""

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.versions import history, leases
from recordmill.pipeline.versions.history import read_history, write_entry
from recordmill.pipeline.versions.prune import prune
from recordmill.pipeline.versions.publishing import check_output
from recordmill.pipeline.versions.stores.base import HISTORY_FILE
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import emulators
from tests.constants import constants
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


def test_a_build_has_one_line_which_its_end_replaces(output: str) -> None:
    assert read_history(output) == []
    write_entry(output, {"id": "a", "end": "failed", "message": "é \ud800"})
    write_entry(output, {"id": "b", "end": "published"})
    write_entry(output, {"id": "a", "end": "up_to_date"})
    assert ends(output) == {"b": "published", "a": "up_to_date"}


def test_the_output_stays_one_and_prune_keeps_its_history(output: str) -> None:
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
        write_entry(output, {"id": f"{writer}-{number}", "end": "published", "padding": "x" * 5000}, pause_seconds=0)


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
