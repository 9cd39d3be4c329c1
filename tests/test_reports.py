"""Reports and rejects in the build's folder: whole or not there, and the same when a step is repeated."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from recordmill.pipeline.build.context.reports import (
    WorkerError,
    chunk_step,
    leaving_error,
    left_error,
    raising_left_error,
    read_rejects,
    read_report,
    shard_step,
    write_rejects,
    write_report,
)
from recordmill.pipeline.build.runners.job import JobFailedError
from recordmill.pipeline.dataset.paths import attempt_name, write_atomically
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.local import LocalStore
from tests.messages import raises

REPORT = {"records": 3, "reasons": {"ü": 1}, "mean": 0.1, "none": None}
REJECTS = [
    Reject(7, 12, "wrong_type", "the number is 'ü\n\ud800'", key="k\ud800", column="price"),
    Reject(0, 0, "duplicate_key", "another row has the same key", key="", first_chunk=2, first_position=3),
    Reject(0, 1, "unreadable", "the file cannot be read: Permission denied", path="gs://b/\udcff.txt"),
]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_report_comes_back_and_a_repeated_step_leaves_one(tmp_path: Path) -> None:
    assert (chunk_step(12), shard_step(3)) == ("chunk-000012", "shard-000003")  # they sort
    for report in ({"records": 3}, REPORT):
        write_report(LocalStore(str(tmp_path)), "chunk-000001", report)
        assert read_report(LocalStore(str(tmp_path)), "chunk-000001") == report
    assert names(tmp_path) == ["chunk-000001.json"]
    assert read_report(LocalStore(str(tmp_path)), "chunk-000002") is None


def test_a_failed_replacement_leaves_what_was_there(tmp_path: Path) -> None:
    attempts = {attempt_name("rows") for _ in range(100)}
    assert len([name for name in attempts if name.startswith("rows.")]) == 100, "none has the name of another"
    (tmp_path / "report").mkdir()
    with raises(OSError, "folder"):
        write_atomically(str(tmp_path / "report"), b"new")
    assert (tmp_path / "report").is_dir()


def test_a_full_disk_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", MagicMock(side_effect=full))
    with raises(OSError, "No space left", f"'{tmp_path}/report.html'"):
        write_atomically(tmp_path / "report.html", b"new")
    assert names(tmp_path) == []


def test_rejects_come_back_as_they_were(tmp_path: Path) -> None:
    name = write_rejects(LocalStore(str(tmp_path)), "chunk-000001", REJECTS)
    assert name is not None
    assert name.startswith("chunk-000001.")
    assert list(read_rejects(LocalStore(str(tmp_path)), [name])) == REJECTS
    assert write_rejects(LocalStore(str(tmp_path)), "chunk-000002", []) is None
    assert names(tmp_path) == [name], "no rejects write no file"


def test_a_workers_error_comes_to_the_driver(tmp_path: Path) -> None:
    assert left_error(LocalStore(str(tmp_path))) is None
    with raises(UserError, "source is gone"), leaving_error(LocalStore(str(tmp_path))):
        raise UserError("the source is gone")
    assert str(left_error(LocalStore(str(tmp_path)))) == "the source is gone"
    with raises(ValueError, "7"), leaving_error(LocalStore(str(tmp_path))):
        raise ValueError("7")  # its text may hold a value of a row
    assert str(left_error(LocalStore(str(tmp_path)))) == "the source is gone"
    with raises(UserError, "source is gone"), leaving_error(LocalStore(str(tmp_path / "gone"))):
        raise UserError("the source is gone")


def test_an_error_that_was_left_takes_the_place_of_the_runners_and_of_no_later_one(tmp_path: Path) -> None:
    workspace = LocalStore(str(tmp_path))

    def run(error: RuntimeError, *, leave: bool) -> None:
        with raising_left_error(workspace):
            if leave:
                with suppress(UserError), leaving_error(workspace):
                    raise UserError("no memory")
            raise error

    with pytest.raises(WorkerError) as left:
        run(RuntimeError("no memory [while running 'BuildShards']"), leave=True)
    assert str(left.value) == "no memory"
    with raises(RuntimeError, "of its own"):
        run(RuntimeError("of its own"), leave=False)


def fail(workspace: LocalStore, left: UserError, end: Exception) -> None:
    """Ends a job, in which a worker leaves an error."""
    with raising_left_error(workspace):
        with suppress(UserError), leaving_error(workspace):
            raise left
        raise end


def test_an_outputs_error_may_pass_and_counts_as_a_failed_job(tmp_path: Path) -> None:
    workspace, away = LocalStore(str(tmp_path)), OutputError("the store is away")
    away.__cause__ = ConnectionError()
    with raises(JobFailedError, "store is away"):
        fail(workspace, away, RuntimeError("the store is away [while running 'BuildShards']"))
    with raises(JobFailedError, "store is away"):
        fail(workspace, away, JobFailedError("a worker raised OutputError from ClientError"))


@pytest.mark.parametrize("left", [OutputError("it is away"), UserError("it is away")])
def test_an_error_that_was_overcome_hides_no_later_one(tmp_path: Path, left: UserError) -> None:
    with raises(UserError, "it is away", "worker process died", "137"):
        fail(LocalStore(str(tmp_path)), left, JobFailedError("a worker process died: exit code 137"))
