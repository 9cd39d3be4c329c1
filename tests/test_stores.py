"""Where an output may lie: a folder, S3, Google Cloud Storage; each with its own atomic step."""

import errno
import logging
import multiprocessing
import os
import stat
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import MagicMock

import boto3
import pytest

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.versions.stores.base import Conflict, OutputError, Store
from recordmill.pipeline.versions.stores.bucket import CONNECTIONS, BucketStore
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import emulators
from tests.constants import constants
from tests.messages import raises
from tests.test_publishing import STORES

NAME = "LATEST"


@pytest.fixture(params=emulators.EVERY_STORE)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with STORES[request.param](tmp_path) as url:
        yield url


@pytest.fixture
def store(output: str) -> Store:
    return open_store(output)


@pytest.fixture
def assembled(tmp_path: Path) -> Path:
    folder = tmp_path / "assembled"
    (folder / "inner").mkdir(parents=True)
    (folder / "shard").write_bytes(b"12345")
    (folder / "inner/words").write_bytes(b"12")
    return folder


def test_an_object_is_replaced_only_if_it_is_the_one_that_was_read(store: Store) -> None:
    assert store.read(NAME) is None
    first = store.write_if(NAME, b"1", None)
    with pytest.raises(Conflict):
        store.write_if(NAME, b"another first", None)
    second = store.write_if(NAME, b"2", first)
    with pytest.raises(Conflict):
        store.write_if(NAME, b"another second", first)
    found = store.read_tagged(NAME)
    assert found is not None
    assert (found.data, found.tag) == (b"2", second)
    assert first != second


def test_what_processes_share_is_not_read_beyond_its_bound(store: Store) -> None:
    store.write_if(NAME, bytes(1000), None)
    assert len(store.read(NAME) or b"") == 1000
    with raises(OutputError, NAME, "1,000 bytes", "999"):
        store.read_tagged(NAME, 999)


@pytest.mark.parametrize("output", emulators.EVERY_STORE[1:], indirect=True)
def test_a_write_whose_answer_was_lost_is_no_conflict(store: Store) -> None:
    tag = store.write_if(NAME, b"1", None)
    assert store.write_if(NAME, b"1", None) == tag  # what a library does that repeats the request


def test_only_what_was_read_is_deleted_and_then_not_replaced(store: Store) -> None:
    old = store.write_if(NAME, b"1", None)
    new = store.write_if(NAME, b"2", old)
    store.delete(NAME, old)
    assert store.exists(NAME)
    store.delete(NAME, new)
    assert not store.exists(NAME)
    store.delete(NAME, new)
    store.delete(NAME)
    with pytest.raises(Conflict):
        store.write_if(NAME, b"3", new)
    assert not store.exists(NAME)


def test_each_of_many_counts_once(store: Store) -> None:
    def add(number: int) -> None:
        while True:
            found = store.read_tagged(NAME)
            try:
                store.write_if(NAME, (found.data if found else b"") + b" %d" % number, found.tag if found else None)
            except Conflict:
                continue
            return

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(12)))
    found = store.read_tagged(NAME)
    assert found is not None
    assert sorted(map(int, found.data.split())) == list(range(12))


def test_what_lies_there(store: Store) -> None:
    for name in ("LATEST", "versions/v1/dataset.json", "versions/v1/inner/words", "versions/v10/shard"):
        store.write_if(name, name.encode(), None)
    assert store.children("") == ["LATEST", "versions"]
    assert store.children("versions") == ["v1", "v10"]
    assert store.children("versions/none") == []
    assert store.sizes("versions/v1") == {"versions/v1/dataset.json": 24, "versions/v1/inner/words": 23}
    assert store.sizes("versions/none") == {}
    assert store.exists("versions/v1/dataset.json")
    assert not store.exists("versions/v1")
    assert not store.exists("versions/v1/none")


def test_a_folder_is_shown_whole(store: Store, assembled: Path) -> None:
    store.write_if(NAME, b"1", None)
    store.stage(str(assembled), "versions/v1", b"lease")
    assert not store.exists("versions/v1/dataset.json")
    tag = store.reveal(str(assembled), "versions/v1", "dataset.json", b"{1}")
    store.reveal(str(assembled), "versions/v1", "dataset.json", b"{22}", tag)  # another came between
    sizes = {name.removeprefix("versions/v1/"): size for name, size in store.sizes("versions/v1").items()}
    sizes.pop(".upload", None)
    assert sizes == {"shard": 5, "inner/words": 2, "dataset.json": 4}
    with pytest.raises(Conflict):
        store.stage(str(assembled), "versions/v1", b"other")


def test_a_folder_that_came_meanwhile_stays(tmp_path: Path, assembled: Path) -> None:
    store = open_store(str(tmp_path / "out"))
    store.write_if("versions/v1/dataset.json", b"theirs", None)
    with pytest.raises(Conflict):
        store.reveal(str(assembled), "versions/v1", "dataset.json", b"mine")
    assert (tmp_path / "out/versions/v1/dataset.json").read_bytes() == b"theirs"
    assert (assembled / "shard").exists()


@pytest.mark.nightly
def test_more_objects_than_one_request_deletes() -> None:
    with emulators.s3() as url:
        store = open_store(url)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: store.write_if(f"many/{number}", b"1", None), range(1_003)))
        assert isinstance(store, BucketStore)
        store.remove_all("many", but={"many/7"})
        assert list(store.sizes("many")) == ["many/7"]


def test_what_others_put_into_a_version_goes_with_it(store: Store) -> None:
    if not isinstance(store, BucketStore):
        pytest.skip("a folder is removed as a whole")
    for name in ("", "a: b.txt", "tab\t\\"):  # the first as a store's console makes a folder
        store.write(f"versions/v1/{name}", b"1")
    store.remove("versions/v1", "dataset.json")
    assert store.sizes("") == {}
    with raises(DatasetError, "versions/../v1", store.url):
        store.write("versions/../v1", b"1")


def test_a_removed_folder_is_gone(store: Store, assembled: Path) -> None:
    store.write_if("versions/v2/dataset.json", b"2", None)
    store.stage(str(assembled), "versions/v1", b"lease")
    store.reveal(str(assembled), "versions/v1", "dataset.json", b"{}")
    store.remove("versions/v1", "dataset.json")
    store.remove("versions/v1", "dataset.json")
    assert store.sizes("") or store.children("") == ["versions"]
    assert store.children("versions") == ["v2"]


@pytest.mark.slow
def test_a_removal_begins_with_the_manifest(assembled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with emulators.s3() as url:
        store = open_store(url)
        store.stage(str(assembled), "versions/v1", b"lease")
        store.reveal(str(assembled), "versions/v1", "dataset.json", b"{}")
        monkeypatch.setattr(store, "sizes", lambda folder: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.remove("versions/v1", "dataset.json")
        monkeypatch.undo()
        assert not store.exists("versions/v1/dataset.json")
        assert store.exists("versions/v1/shard")


def test_a_removal_that_was_cut_off_is_out_of_sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.write_if("versions/v1/dataset.json", b"123", None)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.remove("versions/v1", "dataset.json")
    assert store.children("versions") == []
    for name, data in (("LATEST", b"12"), ("forgotten.json", b"1"), ("notes", b"1")):
        (tmp_path / f"{name}.{'0a' * 16}").write_bytes(data)
    (tmp_path / "LATEST.mine").write_bytes(b"1")
    found = store.strays(remove=False)
    assert sorted(found.values()) == [1, 2, 3]
    assert store.strays(remove=True) == found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST.mine", f"notes.{'0a' * 16}", "versions"]


def test_a_killed_writer_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    tag = store.write_if(NAME, b"old", None)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.write_if(NAME, b"new", tag)
    assert (tmp_path / NAME).read_bytes() == b"old"
    store.write_if(NAME, b"new", tag)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_what_is_written_is_on_the_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def watched_replace(*paths: str) -> None:
        steps.append("replace")
        replace(*paths)

    monkeypatch.setattr("os.fsync", watched_fsync)
    monkeypatch.setattr("os.replace", watched_replace)
    open_store(str(tmp_path)).write_if(NAME, b"1", None)
    assert steps == ["file", "replace", "folder"]


def _count(folder: str, times: int) -> None:
    store = open_store(folder)
    for _ in range(times):
        with store.locked():
            found = store.read_tagged(NAME)
            store.write_if(NAME, b"%d" % (int(found.data) + 1 if found else 1), found.tag if found else None)


def test_processes_and_threads_share_one_lock(tmp_path: Path) -> None:
    open_store(str(tmp_path)).write_if(NAME, b"0", None)
    processes = [multiprocessing.get_context("fork").Process(target=_count, args=(str(tmp_path), 40)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert (tmp_path / NAME).read_bytes() == b"120"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]  # and no lock is left


def test_a_thread_waits_for_the_lock(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    other = threading.Thread(target=store.write_if, args=(NAME, b"1", None))
    with store.locked():
        other.start()
        other.join(0.05)
        assert store.read(NAME) is None
    other.join(10)
    assert store.read(NAME) is not None


def test_a_folder_that_was_pulled_away_does_not_come_back(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "out"))
    tag = store.write_if(NAME, b"1", None)
    os.rename(tmp_path / "out", tmp_path / "gone")
    with pytest.raises(Conflict):
        store.write_if(NAME, b"2", tag)
    store.delete(NAME)
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("os.fsync", MagicMock(side_effect=full))
    with raises(OutputError, f"output {tmp_path}", "written", "No space left on device"):
        open_store(str(tmp_path)).write_if(NAME, b"1", None)


@pytest.mark.parametrize("output", ["http://host/out", "s3:/bucket/out", "gs://", "s3:///out", "file:///out"])
def test_other_urls_are_refused(output: str) -> None:
    with raises(OutputError, output, "gs://bucket/folder", "s3://bucket/folder"):
        open_store(output)


@pytest.mark.parametrize("folder", ["a//out", "out//", "/out", "a/./out", "a/../out", "..", "."])
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_an_output_whose_parts_tools_read_otherwise_is_refused(scheme: str, folder: str) -> None:
    with raises(OutputError, f"{scheme}://bucket/{folder} ", "dotted part"):
        open_store(f"{scheme}://bucket/{folder}")


@pytest.mark.parametrize(("given", "url"), [("s3://bucket/out/", "s3://bucket/out"), ("gs://bucket/", "gs://bucket")])
def test_one_slash_at_an_outputs_end_is_none(given: str, url: str) -> None:
    assert open_store(given).url == url


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "start"), [("s3", emulators.s3), ("gs", lambda: emulators.gcs(conditions=False))])
def test_a_bucket_that_is_not_there_is_one_clear_line(
    scheme: str, start: Callable[[], AbstractContextManager[str]]
) -> None:
    with start():
        store = open_store(f"{scheme}://none/out")
        with raises(OutputError, f"{scheme}://none/out", "read", "check the address"):
            store.children("")
        with raises(OutputError, f"{scheme}://none/out", "written", "check the address") as raised:
            store.write_if(NAME, b"1", None)
        assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_clients_of_s3_are_made_apart_from_boto3s_own_session() -> None:
    """That session may not make clients in several threads."""
    with emulators.s3() as url:
        with constants(boto3, DEFAULT_SESSION=None):
            assert open_store(url).read(NAME) is None
            assert boto3.DEFAULT_SESSION is None


@pytest.mark.first(1)
@pytest.mark.slow
def test_as_many_requests_as_a_workspace_sends_at_once_keep_their_connections(caplog: pytest.LogCaptureFixture) -> None:
    with emulators.s3() as url, ThreadPoolExecutor(CONNECTIONS) as threads:
        store = open_store(url)
        store.write_if(NAME, bytes(1 << 20), None)
        assert None not in threads.map(store.read, [NAME] * (4 * CONNECTIONS))
    assert [record.message for record in caplog.records if "Connection pool is full" in record.message] == []


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with raises(OutputError, "s3://bucket/out", "pip install 'recordmill[aws]'"):
        open_store("s3://bucket/out").read(NAME)


NONE_MATCH, MATCH, DELETION = ("put", "if-none-match"), ("put", "if-match"), ("delete", "if-match")


@pytest.mark.first(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ignored", "named"),
    [
        ([NONE_MATCH], "If-None-Match"),
        ([MATCH], "If-Match"),
        ([DELETION], "the condition of a deletion"),
        ([MATCH, NONE_MATCH, DELETION], "If-Match, If-None-Match, the condition of a deletion"),
    ],
)
def test_a_store_without_conditions_is_refused_before_the_first_write(
    ignored: list[tuple[str, str]], named: str
) -> None:
    with emulators.s3(*ignored) as url:
        for _ in range(2):
            with raises(OutputError, f"{url} ignores {named}, so", "a folder"):
                open_store(url).write_if(NAME, b"1", None)
        assert open_store(url).sizes() == {}


@pytest.mark.slow
def test_the_gcs_emulator_itself_knows_no_conditions() -> None:
    """So that this is noticed when it does: `emulators.gcs(conditions=True)` can go then."""
    with emulators.gcs(conditions=False) as url:
        with raises(OutputError, url, "If-Match, If-None-Match", "deletion"):
            open_store(url).write_if(NAME, b"1", None)
        assert open_store(url).sizes() == {}


@pytest.mark.slow
def test_a_store_is_probed_once_by_a_few_requests_and_keeps_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    with emulators.s3(), caplog.at_level(logging.INFO, "werkzeug"):
        client, bucket = boto3.client("s3"), "versioned"
        client.create_bucket(Bucket=bucket)
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        url = f"s3://{bucket}/{uuid.uuid4().hex}"
        caplog.clear()
        tag = open_store(url).write_if(NAME, b"1", None)
        assert 1 < len(caplog.records) <= 11
        caplog.clear()
        open_store(url).write_if(NAME, b"2", tag)
        assert ["PUT " in record.getMessage() for record in caplog.records] == [True]
        assert open_store(url).sizes() == {NAME: 1}
