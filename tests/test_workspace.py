"""The files that driver and workers leave for each other, in a folder and in both object stores."""

import errno
import gc
import hashlib
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from unittest.mock import MagicMock

import boto3
import numpy as np
import pytest
from google.cloud.storage.fileio import BlobWriter
from moto.s3.responses import S3Response

from recordmill.pipeline.build.context.reports import read_report, write_report
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.versions.stores import bucket
from recordmill.pipeline.versions.stores.base import OutputError, Store
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.open_store import open_bucket
from recordmill.pipeline.versions.stores.parts import PART_BYTES
from tests import emulators
from tests.constants import constants
from tests.messages import raises
from tests.test_publishing import STORES

LARGE = bytes(range(256)) * ((2 * PART_BYTES + 4096) // 256)
"""Content of three parts."""


@pytest.fixture(params=emulators.EVERY_STORE)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with STORES[request.param](tmp_path) as url:
        yield open_bucket(url) if "://" in url else LocalStore(str(tmp_path))


def create(workspace: Store, name: str, data: bytes) -> None:
    with workspace.create(name) as file:
        for start in range(0, len(data), 1 << 20):
            file.write(data[start : start + (1 << 20)])


def test_a_file_is_written_listed_read_and_deleted(workspace: Store) -> None:
    assert workspace.read("reports/a.json") is None
    assert workspace.sizes("reports") == {}
    workspace.write("reports/a.json", b"{}")
    first = workspace.stamps("reports")["reports/a.json"]
    workspace.write("reports/a.json", b"{1}")
    workspace.write("look/words/000001.arrow", b"12345")
    assert workspace.read("reports/a.json") == b"{1}"
    assert workspace.stamps("reports")["reports/a.json"] != first
    assert workspace.sizes() == {"reports/a.json": 3, "look/words/000001.arrow": 5}
    assert workspace.at("look").sizes("words") == {"words/000001.arrow": 5}
    workspace.delete("reports/a.json")
    workspace.delete("reports/a.json")
    assert workspace.sizes("reports") == {}


def test_reports_are_read_in_the_order_of_their_names(workspace: Store) -> None:
    assert read_report(workspace, "reports/shard-1") is None
    write_report(workspace, "reports/shard-1", {"rows": 2})
    assert read_report(workspace, "reports/shard-1") == {"rows": 2}
    names = ["reports/shard-2.json", "reports/shard-1.json", "reports/shard-3.json"]
    assert list(workspace.read_all(names)) == [(names[0], None), (names[1], b'{"rows": 2}'), (names[2], None)]


def test_a_workspace_that_was_used_travels(workspace: Store) -> None:
    workspace.write("a", b"1")
    there = pickle.loads(pickle.dumps(workspace))
    assert there == workspace
    assert there.read("a") == b"1"


@pytest.mark.parametrize("data", [b"", b"few", LARGE], ids=["empty", "few", "large"])
def test_a_stream_appears_whole_and_equal_content_counts_as_written(workspace: Store, data: bytes) -> None:
    with workspace.create("out/a") as file:
        file.write(data)
        assert workspace.read("out/a") is None
    create(workspace, "out/a", data)
    assert workspace.read("out/a") == data


@pytest.mark.parametrize("data", [b"few", LARGE], ids=["few", "large"])
@pytest.mark.parametrize("error", [RuntimeError("a worker's"), OSError(errno.EPERM, "a worker's")], ids=repr)
def test_a_stream_that_ends_in_an_error_leaves_nothing(workspace: Store, data: bytes, error: Exception) -> None:
    def fail() -> None:
        with workspace.create("a") as file:
            file.write(data)
            raise error

    with raises(type(error), "a worker's"):
        fail()
    assert workspace.sizes() == {}
    if workspace.url.startswith("s3"):
        assert "Uploads" not in boto3.client("s3").list_multipart_uploads(Bucket=emulators.BUCKET)
    create(workspace, "a", data)
    assert workspace.read("a") == data


@pytest.mark.parametrize("data", [b"few", LARGE], ids=["few", "large"])
def test_other_content_of_the_name_is_an_error_and_stays(workspace: Store, data: bytes) -> None:
    create(workspace, "a", b"first")
    with raises(OutputError, "/a", "other content", "same command"):
        create(workspace, "a", data)
    assert workspace.sizes() == {"a": 5}
    assert workspace.read("a") == b"first"
    if workspace.url.startswith("s3"):
        assert "Uploads" not in boto3.client("s3").list_multipart_uploads(Bucket=emulators.BUCKET)


@pytest.mark.parametrize("late", [[b"three"], [b"longer than the others"]], ids=["one size", "another size"])
def test_a_late_writer_changes_neither_a_shard_nor_its_index(tmp_path: Path, late: list[bytes]) -> None:
    """So the report of the first describes what stays; the late one's error keeps it from reporting."""
    workspace = LocalStore(str(tmp_path))
    first = ShardWriter("s", "s.index", workspace.create)

    def write_late() -> None:
        with ShardWriter("s", "s.index", workspace.create) as slow:
            slow.write(late)
            with first:
                first.write([b"first"])

    with raises(OutputError, "/s", "other content"):
        write_late()
    data, index = (workspace.read(name) or b"" for name in ("s", "s.index"))
    assert hashlib.sha256(data).hexdigest() == first.sha256
    assert np.frombuffer(index, "<u8").tolist() == [0, len(data)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "s.index"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_disk_without_links_takes_files_by_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr("os.link", MagicMock(side_effect=OSError(code, os.strerror(code))))
    create(LocalStore(str(tmp_path)), "a", b"1")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"1")]


def test_a_link_whose_answer_was_lost_counts_as_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, which repeats a request."""
    link = os.link

    def twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr("os.link", twice)
    create(LocalStore(str(tmp_path)), "a", b"1")
    assert [(path.name, path.stat().st_nlink) for path in tmp_path.iterdir()] == [("a", 1)]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Gives the URL of a folder of S3 where another write is always under way (409)."""
    with emulators.s3() as url:
        busy = 409, {}, "<Error><Code>ConditionalRequestConflict</Code><Message>busy</Message></Error>"
        monkeypatch.setattr(S3Response, "put_object", lambda *request: busy)
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("data", [b"", b"few"], ids=["empty", "few"])
@constants(bucket, WAITS=(0.0, 0.0))
def test_a_write_under_way_that_does_not_end_is_an_error(refused: str, data: bytes) -> None:
    with raises(OutputError, "/a", "another process"):
        create(open_bucket(refused), "a", data)


@pytest.mark.slow
def test_an_equal_write_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulators.s3() as url:
        put, workspace = S3Response.put_object, open_bucket(url)

        def refuse(*request: object) -> tuple[int, dict[str, str], str]:
            monkeypatch.setattr(S3Response, "put_object", put)
            Timer(0.2, workspace.write, ("a", b"few")).start()
            return 409, {}, "<Error><Code>ConditionalRequestConflict</Code><Message>busy</Message></Error>"

        monkeypatch.setattr(S3Response, "put_object", refuse)
        create(workspace, "a", b"few")
        assert workspace.read("a") == b"few"


@pytest.mark.slow
def test_an_upload_that_cannot_be_removed_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(workspace: Store) -> None:
        with workspace.create("a") as file:
            file.write(LARGE)
            raise ValueError("7")

    monkeypatch.setattr(BlobWriter, "terminate", MagicMock(side_effect=OSError("the network is down")))
    with emulators.gcs(conditions=True) as url:
        with raises(ValueError, "7"):
            fail(open_bucket(url))
        gc.collect()
        assert open_bucket(url).sizes() == {}


def test_a_folder_that_was_taken_over_is_not_made_again(tmp_path: Path) -> None:
    workspace = LocalStore(str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    workspace.write("reports/a.json", b"{}")

    def write_late() -> None:
        with workspace.create("version/late") as file:
            file.write(b"late")
            shutil.move(tmp_path / "run", tmp_path / "taken")

    with pytest.raises(FileNotFoundError):
        write_late()
    with pytest.raises(FileNotFoundError):
        workspace.write("reports/b.json", b"{}")
    assert not (tmp_path / "run").exists()
