"""Versions share shards: hard links on a disk, `Shard.version` in object stores; readers, prune."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from recordmill import open_dataset
from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.compare.diff import compare_rows
from recordmill.pipeline.dataset.file_names import shard_paths
from recordmill.pipeline.dataset.manifest import DatasetError, Manifest, Shard, read_latest
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.files import needs_of, shared_bytes
from recordmill.pipeline.versions.listing import held, list_versions
from recordmill.pipeline.versions.prune import prune
from recordmill.pipeline.versions.stores.base import OutputError, Store
from recordmill.pipeline.versions.stores.open_store import open_location, open_store
from tests import emulators
from tests.messages import raises
from tests.publish import make_live
from tests.sharing import NAMES, download, publish
from tests.test_publishing import STORES

pytestmark = pytest.mark.usefixtures("short_patience")

FIRST, SECOND, THIRD = NAMES
FOLDER = "s3://bucket/out/versions/b"
SHARD = Shard("x.tfrecord", 10, 1, "00" * 32, "x.index", version="a")


@pytest.fixture(params=emulators.ONE_STORE)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Three versions: the second keeps the first's train split, the third keeps all of the second's."""
    with STORES[request.param](tmp_path) as url:
        yield three(url, tmp_path)


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return Path(three(str(tmp_path / "out"), tmp_path))


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    with STORES["s3"](tmp_path) as url:
        yield three(url, tmp_path)


def three(url: str, folder: Path) -> str:
    for version, keep in zip(NAMES, ((), ("train",), ("train", "test")), strict=True):
        publish(url, folder, version, keep)
    return url


def notes(output: str | Path, version: str | None = None) -> list[bytes]:
    batches = open_dataset(str(output), version).evaluation_input("train", batch_size=16).as_numpy()
    return [bytes(note) for features, _ in batches for note in features["note"]]


def files(output: str, version: str) -> list[str]:
    return sorted(name.rpartition("/")[2] for name in open_store(output).sizes(f"versions/{version}"))


def versions_of(manifest: Manifest) -> set[str | None]:
    return {shard.version for split in manifest.splits.values() for shard in split.shards}


def test_every_version_is_read_as_before(output: str) -> None:
    first, *others = [notes(output, version) for version in NAMES]
    assert len(first) > 100
    assert others == [first, first]
    for version in NAMES:
        assert verify(output, version).findings.problems == []
        assert verify(output, version, quick=True).findings.problems == []


def test_on_a_disk_each_version_is_whole_and_its_kept_shards_take_no_space(local: Path) -> None:
    manifests = [version.manifest for version in list_versions(str(local))]
    assert [versions_of(manifest) for manifest in manifests] == [{None}] * 3
    shard = manifests[0].splits["train"].shards[0].file
    assert len({(local / "versions" / version / shard).stat().st_ino for version in NAMES}) == 1
    shutil.copytree(local / "versions" / THIRD, local.parent / "copy")
    assert notes(local.parent / "copy") == notes(local)


def bytes_of(manifest: Manifest, split: str) -> int:
    """Returns the bytes of a split's shards and their indexes."""
    return sum(sum(shard.sizes.values()) for shard in manifest.splits[split].shards)


def test_bytes_that_several_versions_hold_are_counted(output: str) -> None:
    manifests = [version.manifest for version in list_versions(output)]
    train, test = (bytes_of(manifests[0], split) for split in ("train", "test"))
    shared = shared_bytes(open_store(output), manifests)
    assert shared == {FIRST: train, SECOND: train + test, THIRD: train + test}


def test_the_list_says_what_is_shared(local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(["versions", "list", str(local)], standalone_mode=False)
    train = bytes_of(list_versions(str(local))[0].manifest, "train")
    assert f"{train:,}" in next(line for line in capsys.readouterr().out.splitlines() if FIRST in line).split()


def test_prune_keeps_what_a_kept_version_needs_and_lets_it_go_with_the_last(bucket: str, tmp_path: Path) -> None:
    manifests = [version.manifest for version in list_versions(bucket)]
    assert [versions_of(manifest) for manifest in manifests] == [{None}, {FIRST, None}, {FIRST, SECOND}]
    assert not any("tfrecord" in name for name in files(bucket, THIRD))
    rows = notes(bucket)
    expected = prune(bucket, keep=1, grace_seconds=0, dry_run=True)
    done = prune(bucket, keep=1, grace_seconds=0)
    assert (done.removed, done.kept) == (expected.removed, expected.kept)
    assert {name: kept.partition("bytes ")[2] for name, kept in done.kept.items()} == {
        version: f"of its shards stay: {THIRD} needs them" for version in (FIRST, SECOND)
    }
    assert {name.partition(".")[2][:6] for name in files(bucket, FIRST)} == {"tfreco", "index-"}
    assert [version.manifest.version for version in list_versions(bucket)] == [THIRD]
    assert notes(bucket) == rows
    assert verify(bucket).findings.problems == []
    assert prune(bucket, keep=1, grace_seconds=0).removed == {}
    publish(bucket, tmp_path, "20261123T000000Z-dddd0000")
    left = prune(bucket, keep=1, grace_seconds=0)
    assert open_store(bucket).children("versions") == ["20261123T000000Z-dddd0000"]
    assert set(left.removed) == {f"versions/{version}" for version in NAMES}


def test_prune_frees_what_no_other_version_holds(local: Path) -> None:
    def used() -> int:
        files = (path.stat() for path in local.glob("versions/*/**/*") if path.is_file())
        return sum({file.st_ino: file.st_size for file in files}.values())

    before = used()
    expected = prune(str(local), keep=1, grace_seconds=0, dry_run=True)
    done = prune(str(local), keep=1, grace_seconds=0)
    assert done.removed == expected.removed
    assert sum(done.removed.values()) == before - used()
    assert len(notes(local)) > 100


@pytest.mark.parametrize("step", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_prune_that_is_killed_anywhere_breaks_nothing(
    bucket: str, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    rows, store = notes(bucket), type(open_store(bucket))
    delete, count = store.delete, iter(range(1, 10_000))

    def killed(self: Store, name: str, tag: str | None = None) -> None:
        if next(count) == step:
            raise KeyboardInterrupt
        delete(self, name, tag)

    monkeypatch.setattr(store, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        prune(bucket, keep=1, grace_seconds=0)
    monkeypatch.undo()
    assert notes(bucket) == rows
    prune(bucket, keep=1, grace_seconds=0)
    assert {name.partition(".")[2][:6] for name in files(bucket, FIRST)} == {"tfreco", "index-"}
    assert notes(bucket) == rows


@pytest.mark.nightly
def test_a_version_of_a_newer_format_keeps_all_that_it_may_need(bucket: str) -> None:
    store, name = open_store(bucket), f"versions/{THIRD}/dataset.json"
    content = store.read_tagged(name)
    assert content is not None
    store.write_if(name, json.dumps(json.loads(content.data) | {"format": 99}).encode(), content.tag)
    make_live(bucket, SECOND)
    prune(bucket, keep=1, grace_seconds=0)
    assert needs_of(store).whole[FIRST] == THIRD
    assert any("tfrecord" in name for name in files(bucket, FIRST))


def test_what_is_held_for_a_build_stays_with_all_that_it_needs(output: str, tmp_path: Path) -> None:
    publish(output, tmp_path, "20261123T000000Z-dddd0000")
    with held(output, THIRD):
        done = prune(output, keep=1, grace_seconds=0)
        assert done.kept[THIRD] == "it is held"
        assert len(notes(output, THIRD)) > 100
        publish(output, tmp_path, "20261124T000000Z-eeee0000", keep=())


@pytest.mark.nightly
def test_a_version_whose_shards_were_removed_is_not_published(bucket: str, tmp_path: Path) -> None:
    live = Base.read(bucket).live
    assert live is not None
    (shard, *_) = live.splits["train"].shards
    open_store(bucket).delete(f"versions/{FIRST}/{shard.file}")
    with raises(OutputError, f"{FIRST}/{shard.file}", "missing", "same command"):
        publish(bucket, tmp_path, "20261123T000000Z-dddd0000", keep=("train",))
    assert read_latest(open_location(bucket)).version == THIRD
    assert publishing.find_version(bucket, live.source_key) is None
    (problem, *_) = verify(bucket).findings.problems
    assert (problem.file, "is missing" in problem.message) == (f"{FIRST}/{shard.file}", True)


@pytest.mark.nightly
def test_a_downloaded_output_is_read_and_pruned(bucket: str, tmp_path: Path) -> None:
    copy, rows = download(bucket, tmp_path / "copy"), notes(bucket)
    assert notes(copy) == rows
    assert verify(str(copy)).findings.problems == []
    shutil.copytree(copy / "versions" / THIRD, tmp_path / "alone")
    with raises(DatasetError, "alone", f"version {FIRST}"):
        notes(tmp_path / "alone")
    prune(str(copy), keep=1, grace_seconds=0)
    assert notes(copy) == rows


def test_shards_that_both_versions_hold_are_not_compared(output: str) -> None:
    changes = compare_rows(open_dataset(output, FIRST), open_dataset(output, THIRD))
    assert (changes.added, changes.removed, changes.changed, changes.unchanged) == (0, 0, 0, 200)


def test_where_links_are_refused_the_shards_are_copied(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", MagicMock(side_effect=OSError(errno.EPERM, os.strerror(errno.EPERM))))
    manifest = publish(str(local), local.parent, "20261123T000000Z-dddd0000", keep=("train", "test"))
    shard = local / "versions" / manifest.version / manifest.splits["train"].shards[0].file
    assert shard.stat().st_nlink == 1
    assert verify(str(local)).findings.problems == []


def test_a_damaged_shard_is_not_kept(local: Path) -> None:
    shard = next(local.glob(f"versions/{THIRD}/*tfrecord*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with raises(DatasetError, "bytes, expected", "`recordmill verify`"):
        publish(str(local), local.parent, "20261123T000000Z-dddd0000", keep=("train", "test"))


def test_the_place_of_a_shard() -> None:
    own = replace(SHARD, version=None)
    assert [place.full for place in shard_paths(FOLDER, own)[:2]] == [f"{FOLDER}/x.tfrecord", f"{FOLDER}/x.index"]
    versions = "s3://bucket/out/versions"
    shared = [f"{versions}/a/x.tfrecord", f"{versions}/a/x.index"]
    assert [place.full for place in shard_paths(FOLDER, SHARD)[:2]] == shared


@pytest.mark.parametrize("version", ["..", ".", "", "a/b", "/etc", "~", "a:b", "..\\x", "a\nb"])
def test_a_manifest_names_no_file_outside_versions(local: Path, version: str) -> None:
    path = local / "versions" / THIRD / "dataset.json"
    manifest = json.loads(path.read_text())
    manifest["splits"]["train"]["shards"][0]["version"] = version
    path.write_text(json.dumps(manifest))
    with pytest.raises(DatasetError):
        open_dataset(local)


def test_a_link_to_another_version_does_not_lead_out(local: Path, tmp_path: Path) -> None:
    shutil.move(local / "versions" / FIRST, tmp_path / "elsewhere")
    (local / "versions" / FIRST).symlink_to(tmp_path / "elsewhere")
    folder = str(local / "versions" / THIRD)
    shard = replace(next(iter(list_versions(str(local))[-1].manifest.splits["train"].shards)), version=FIRST)
    with raises(DatasetError, "link", "leaves"):
        shard_paths(folder, shard)


@pytest.mark.parametrize("make", [lambda p: os.mkfifo(p), lambda p: p.symlink_to("/etc/passwd")])
def test_what_is_no_shard_is_not_linked(local: Path, make: Callable[[Path], None]) -> None:
    shard = next(local.glob(f"versions/{THIRD}/*train.tfrecord*"))
    shard.unlink()
    make(shard)
    with pytest.raises((DatasetError, OSError), match="leaves|pipe"):
        publish(str(local), local.parent, "20261123T000000Z-dddd0000", keep=("train",))
