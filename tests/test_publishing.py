"""The output: versions that appear whole, in the order of their numbers, and the pointer to the live one."""

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.dataset.manifest import (
    Latest,
    Manifest,
    Shard,
    Split,
    read_latest,
    read_manifest,
    version_folder,
)
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions import acts, build_folders, publishing
from recordmill.pipeline.versions import base as base_file
from recordmill.pipeline.versions.base import Base, compare_and_swap
from recordmill.pipeline.versions.leases import BUILD, Lease, LeaseLostError, hold
from recordmill.pipeline.versions.publishing import OutputError
from recordmill.pipeline.versions.stores.base import Store, UnsettledOutputError
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.open_store import open_location, open_store
from tests import emulators
from tests.messages import raises
from tests.publish import held_back, make_live, publish_assembled

KEY = "4f1c9a2e" + "0" * 56
DATA = b"records"
FILES = {"data": DATA, "index": bytes(16), "inner/version": b"v1"}
SPLITS = {"train": Split((Shard("data", len(DATA), 1, "00" * 32, "index"),))}


def manifest(version: str, build_key: str = KEY) -> Manifest:
    return Manifest("d", version, build_key, None, {"x": {"kind": "number"}}, SPLITS)


def write(assembled: Path, files: Mapping[str, bytes]) -> None:
    (assembled / "inner").mkdir(parents=True)
    for name, data in files.items():
        (assembled / name).write_bytes(data)


def publish(
    output: str,
    folder: Path,
    version: str,
    build_key: str = KEY,
    *,
    holds_back: bool = False,
    lease: Lease | None = None,
) -> Manifest:
    """Publishes a version that is assembled below a folder, of one shard; live, or held back by the gate."""
    assembled = folder / "assembled" / f"{version}-{build_key[:8]}"
    write(assembled, {**FILES, "inner/version": version.encode()})
    made = replace(manifest(version, build_key), gate=held_back(output) if holds_back else {})
    return publish_assembled(output, str(assembled), made, live=not holds_back, lease=lease)


STORES = {
    "local": lambda folder: nullcontext(str(folder / "out")),
    "s3": lambda folder: emulators.s3(),
    "gcs": lambda folder: emulators.gcs(conditions=True),
}


@pytest.fixture(params=emulators.ONE_STORE)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with STORES[request.param](tmp_path) as url:
        yield url


def live(output: str) -> Latest:
    return read_latest(open_location(output))


def test_a_version_appears_whole_and_live(output: str, tmp_path: Path) -> None:
    published = publish(output, tmp_path, "v1")
    folder = version_folder(open_location(output), "v1")
    assert read_manifest(folder) == published
    assert published.sequence == 1
    assert live(output) == Latest("v1", 1)
    store = open_store(output)
    assert store.children("") == ["LATEST", "versions"]
    assert set(store.sizes("versions")) == {f"versions/v1/{name}" for name in (*FILES, "dataset.json")}


def test_numbers_are_the_order(output: str, tmp_path: Path) -> None:
    numbers = [publish(output, tmp_path, version, f"{place}" * 64).sequence for place, version in enumerate("cab")]
    assert numbers == [1, 2, 3]
    assert [one.version for one in publishing.published(open_store(output))] == ["c", "a", "b"]
    assert live(output).version == "b"
    assert set(live(output).retired) == {"c", "a"}


def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    output = str(tmp_path)
    publish(output, tmp_path, "v1")
    publish(output, tmp_path, "v2")
    (tmp_path / "LATEST").write_text(Latest("v1", 1).to_text())  # of a copy, or of a build that was killed here
    assert publish(output, tmp_path, "v3").sequence == 3


def test_two_of_one_name_are_two(output: str, tmp_path: Path) -> None:
    first, second = publish(output, tmp_path, "v1"), publish(output, tmp_path / "other", "v1", KEY[:8] + "f" * 56)
    assert (first.version, second.version, second.sequence) == ("v1", "v1-2", 2)
    assert read_manifest(version_folder(open_location(output), "v1-2")).version == "v1-2"
    assert read_manifest(version_folder(open_location(output), "v1")).build_key == KEY


def _publish_many(output: str, folder: Path, number: int, ready: Any) -> None:
    ready.wait()
    for turn in range(4):
        publish(output, folder / str(number), f"v{turn}", f"{number}{turn}" * 32)


@pytest.mark.parametrize("first", [0, 1])
def test_two_processes_publish_one_after_the_other(tmp_path: Path, first: int) -> None:
    output = str(tmp_path / "out")
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    processes = [
        context.Process(target=_publish_many, args=(output, tmp_path, number, barrier)) for number in (first, 1 - first)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    check_eight(output)


def check_eight(output: str) -> None:
    """Checks that eight versions lie there, none mixed, each with a number of its own."""
    store = open_store(output)
    published = publishing.published(store)
    numbers = [one.sequence for one in published]
    assert len(set(numbers)) == 8
    assert numbers == list(range(1, 9)) or not isinstance(store, LocalStore)  # who lost a race on a bucket counts on
    assert {one.build_key for one in published} == {f"{number}{turn}" * 32 for number in range(2) for turn in range(4)}
    assert (live(output).version, live(output).sequence) == (published[-1].version, published[-1].sequence)
    for one in published:
        inner = store.read(f"versions/{one.version}/inner/version")
        assert inner is not None
        assert one.version.startswith(inner.decode())
        assert len(store.sizes(f"versions/{one.version}")) == 4


@pytest.mark.nightly
@pytest.mark.parametrize("name", emulators.EVERY_BUCKET)
def test_two_publish_to_a_bucket_one_after_the_other(tmp_path: Path, name: str) -> None:
    with STORES[name](tmp_path) as output:
        barrier = threading.Barrier(2)
        threads = [threading.Thread(target=_publish_many, args=(output, tmp_path, n, barrier)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_eight(output)


def test_what_became_live_meanwhile_is_not_replaced(output: str, tmp_path: Path) -> None:
    publish(output, tmp_path, "v1", "11" * 32)
    publish(output, tmp_path, "v2", "22" * 32)
    base = Base.read(output)
    acts.rollback(output, "v1")
    write(tmp_path / "made", FILES)
    with hold(open_store(output), BUILD) as lease:
        with raises(UnsettledOutputError, "another version", output, "same command"):
            publishing.publish(base, str(tmp_path / "made"), manifest("v3"), lease, live=True)
    assert live(output).version == "v1"
    assert [one.version for one in publishing.published(open_store(output))] == ["v1", "v2"]


def test_a_lost_lease_publishes_nothing(output: str, tmp_path: Path) -> None:
    publish(output, tmp_path, "v1")
    store = open_store(output)
    with hold(store, BUILD) as lease:
        found = store.read_tagged(".leases/build.json")
        assert found is not None
        theirs = json.loads(found.data) | {"token": "theirs", "host": "elsewhere"}
        store.write_if(".leases/build.json", json.dumps(theirs).encode(), found.tag)
        with raises(LeaseLostError, "took"):
            publish(output, tmp_path, "v2", "00" * 32, lease=lease)
    assert live(output) == Latest("v1", 1)
    assert [one.version for one in publishing.published(store)] == ["v1"]


def fails(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", ["rename", "fsync", "replace"])
def test_before_the_rename_there_is_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    output = str(tmp_path)
    publish(output, tmp_path, "v1")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        with raises(OutputError, "cannot be written", "No space left on device"):
            publish(output, tmp_path, "v2", build_key="ff" * 32)
    assert live(output) == Latest("v1", 1)
    assert [path.name for path in (tmp_path / "versions").iterdir()] == ["v1"]


@pytest.mark.parametrize("name", emulators.EVERY_BUCKET)
def test_an_upload_that_was_cut_off_is_no_version_and_goes(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with STORES[name](tmp_path) as output:
        store = open_store(output)
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "reveal", fails)
            with raises(OSError, "No space"):
                publish(output, tmp_path, "v1")
        assert "versions/v1/data" in store.sizes("versions")
        assert publishing.published(store) == []
        assert publishing.find_version(output, KEY) is None
        assert publishing.live_version(output) is None
        assert build_folders.uploads(store) == {"v1": KEY[:16]}
        publish(output, tmp_path, "v2")  # the same build again
        assert store.children("versions") == ["v2"]
        assert build_folders.uploads(store) == {}


@pytest.mark.first(1)
@pytest.mark.parametrize("name", emulators.EVERY_BUCKET)
@pytest.mark.parametrize("taken", ["lease", "file"])
def test_a_build_that_is_overtaken_just_before_its_manifest_takes_it_back(
    tmp_path: Path, name: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with STORES[name](tmp_path) as output, hold(open_store(output), BUILD) as lease:
        store = open_store(output)
        reveal = type(store).reveal

        def reveal_late(self: Store, *arguments: Any) -> str:
            store.delete(".leases/build.json" if taken == "lease" else "versions/v1/data")
            return reveal(self, *arguments)

        monkeypatch.setattr(type(store), "reveal", reveal_late)
        with raises(UserError, "lease" if taken == "lease" else "v1/data"):
            publish(output, tmp_path, "v1", lease=lease)
        assert publishing.published(store) == []
        assert not store.exists("LATEST")


@pytest.mark.nightly
@pytest.mark.parametrize("name", emulators.EVERY_BUCKET)
def test_the_manifest_of_a_build_that_was_overtaken_is_replaced(tmp_path: Path, name: str) -> None:
    with STORES[name](tmp_path) as output:
        store = open_store(output)
        store.write_if("versions/v1/.upload", f"{KEY[:16]}.1".encode(), None)
        store.write_if("versions/v1/dataset.json", replace(manifest("v1"), sequence=1).to_text().encode(), None)
        assert publish(output, tmp_path, "v1").version == "v1"
        assert [(one.version, one.sequence) for one in publishing.published(store)] == [("v1", 2)]
        assert store.children("versions") == ["v1"]


@pytest.mark.parametrize("name", FILES)
def test_a_version_that_lacks_a_file_is_not_whole(output: str, tmp_path: Path, name: str) -> None:
    described = replace(manifest("v1"), files={"inner/version": {"bytes": 2, "sha256": "00" * 32}})
    write(tmp_path / "cut", {**FILES, name: b"?"})
    with raises(UnsettledOutputError, f"versions/v0/{name}", "run the same command again"):
        publish_assembled(output, str(tmp_path / "cut"), replace(described, version="v0", build_key="00" * 32))
    assert publishing.published(open_store(output)) == []
    write(tmp_path / "whole", FILES)
    publish_assembled(output, str(tmp_path / "whole"), described)
    publish(output, tmp_path, "v2", "22" * 32)
    assert publishing.find_version(output, KEY) is not None
    open_store(output).delete(f"versions/v1/{name}")
    assert publishing.find_version(output, KEY) is None
    with raises(UnsettledOutputError, name, "recordmill verify"):
        make_live(output, "v1")
    assert live(output).version == "v2"


def test_the_newest_version_of_a_build_is_found_whole(output: str, tmp_path: Path) -> None:
    other = KEY[:8] + "f" * 56  # begins alike
    names = ["v3", "v2", "v1", "v0"]
    for name, key in zip(names, (KEY, KEY, other, KEY), strict=True):
        publish(output, tmp_path, name, key)
    open_store(output).delete("versions/v0/data")
    found = publishing.find_version(output, KEY)
    assert found is not None
    assert found.version == "v2"
    assert publishing.find_version(output, "00" * 32) is None


def test_a_broken_manifest_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "versions/a:b\x1b").mkdir(parents=True)  # nor is this
    (tmp_path / "versions/file").touch()
    for version in ("v1", "v2"):
        publish(str(tmp_path), tmp_path, version)
    (tmp_path / "versions/v2/dataset.json").write_text("{broken")
    found = publishing.find_version(str(tmp_path), KEY)
    assert found is not None
    assert found.version == "v1"


def test_a_version_that_is_being_deleted_is_none(tmp_path: Path) -> None:
    output = str(tmp_path)
    for version in ("v1", "v2"):
        publish(output, tmp_path, version)
    (tmp_path / "LATEST").write_text(Latest("v2", 2, removing=("v1",)).to_text())
    assert [one.version for one in publishing.published(open_store(output))] == ["v2"]
    with raises(OutputError, "v1", "deleted"):
        publishing.make_live(open_store(output), lambda latest: manifest("v1"))


def test_versions_without_what_a_reader_needs_are_none(tmp_path: Path) -> None:
    """They are named, and the number of `LATEST` counts on."""
    (tmp_path / "versions/a").mkdir(parents=True)
    text = json.loads(manifest("a").to_text())
    del text["sequence"], text["features"]
    (tmp_path / "versions/a/dataset.json").write_text(json.dumps(text))
    (tmp_path / "LATEST").write_text('{"version": "a", "sequence": 2}')
    assert publish(str(tmp_path), tmp_path, "b").sequence == 3
    assert publishing.broken(open_store(str(tmp_path))) == ["a"]


def begin(output: str) -> Base:
    """Looks at an output as every build does."""
    publishing.check_output(output)
    return Base.read(output)


Place = Callable[[Path], object]


@pytest.mark.parametrize(
    ("put", "facts"),
    [
        (lambda out: (out / "photos").mkdir(), ["photos", "new folder", "empty one"]),
        (lambda out: [(out / name).touch() for name in "edcba"], ["a, b, c, …", "new folder"]),
        (lambda out: (out / "versions").touch(), ["Not a directory", "/out/versions"]),
        (lambda out: (out / "versions").symlink_to("/usr"), ["/out/versions", "link", "copy"]),
        (lambda out: (out / "LATEST").mkdir(), ["out/LATEST", "not a file", "move it"]),
        (lambda out: (out / "LATEST").write_text("{"), ["out/LATEST", "broken", "`recordmill versions rollback "]),
        (lambda out: (out / "LATEST").write_text("{}"), ["out/LATEST", "broken", "version"]),
        (lambda out: (out.rmdir(), out.touch()), ["cannot be written", "Not a directory", "/out"]),
        (lambda out: (out.rmdir(), out.symlink_to("/none/where")), ["cannot be written"]),
    ],
)
def test_an_output_that_is_none_is_one_clear_line_and_not_touched(tmp_path: Path, put: Place, facts: list[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    put(out)
    before = sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    with raises(UserError, *facts) as raised:
        begin(str(out))
    assert "\n" not in str(raised.value)
    assert sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "put",
    [
        lambda out: None,
        lambda out: out.rmdir(),
        lambda out: [(out / name).mkdir() for name in (".git", "lost+found")],
        lambda out: [(out / name).mkdir() for name in (".building", "notes")],
        lambda out: [(out / name).mkdir() for name in ("versions", "notes")],
    ],
)
@pytest.mark.parametrize("below", ["", "inner/more"])
def test_an_output_that_may_be_written(tmp_path: Path, put: Place, below: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    put(out)
    before = sorted(tmp_path.rglob("*"))
    publishing.check_output(str(out / below))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("flags", "reason"), [(os.ST_RDONLY, "Read-only file system"), (0, "Permission denied")])
def test_a_folder_that_refuses_is_one_clear_line(
    tmp_path: Path, flags: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*state[:8], flags, *state[9:])))
    with raises(OutputError, f"{tmp_path}/out", "cannot be written", f"{reason}: {tmp_path}"):
        publishing.check_output(str(tmp_path / "out"))


@pytest.mark.slow
def test_a_bucket_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    with emulators.s3() as output:
        store = open_store(output)
        store.write_if("photos/1.jpg", b"1", None)
        with raises(OutputError, output, "photos", "give"):
            publishing.check_output(output)


def test_a_pointer_that_never_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    monkeypatch.setattr(base_file, "PAUSE_SECONDS", 0)

    def busy(latest: Latest | None) -> Latest:
        (tmp_path / "LATEST").write_text(Latest("v", time.time_ns()).to_text())
        return Latest("mine", 1)

    with raises(OutputError, "LATEST", "same command"):
        compare_and_swap(store, busy)


def test_what_was_removed_meanwhile_is_not_made_live(tmp_path: Path) -> None:
    output = str(tmp_path)
    publish(output, tmp_path, "v1")
    with raises(OutputError, "v2", "removed", "same command"):
        publishing.make_live(open_store(output), lambda latest: manifest("v2"))
    assert live(output) == Latest("v1", 1)


@pytest.mark.parametrize("output", emulators.ONE_BUCKET, indirect=True)
def test_who_came_between_manifest_and_pointer_leaves_one_version(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bucket nothing locks `LATEST`: another process moves it after the manifest is written."""
    publish(output, tmp_path, "v1", "1" * 64)
    publish(output, tmp_path, "v2", "2" * 64)
    store, real = open_store(output), publishing._moved

    def moved(*pointer: Any) -> Latest:
        monkeypatch.setattr(publishing, "_moved", real)
        acts.rollback(output, "v1")
        return real(*pointer)

    monkeypatch.setattr(publishing, "_moved", moved)
    with raises(UnsettledOutputError, "another version", output):
        publish(output, tmp_path, "v3", "3" * 64)
    assert live(output).version == "v1"
    assert [one.version for one in publishing.published(store)] == ["v1", "v2"]
    assert not store.exists("versions/v3/dataset.json")
    assert list(build_folders.uploads(store)) == ["v3"]  # for the next attempt, or `prune`
