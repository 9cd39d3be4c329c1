"""Attempts at a build in a bucket: what the next one takes over, late writers, and what is swept away."""

import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from recordmill.pipeline.build.attempt.attempts import Run, begin
from recordmill.pipeline.build.context.reports import ChunkReport, chunk_step, read_report, shard_step, write_report
from recordmill.pipeline.dataset.counts import Counts, ShardReport
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.prune import prune, sweep
from recordmill.pipeline.versions.stores.base import Copied, OutputError, Store
from recordmill.pipeline.versions.stores.bucket import BucketStore
from recordmill.pipeline.versions.stores.open_store import open_bucket
from recordmill.pipeline.versions.stores.parts import PART_BYTES
from tests import emulators
from tests.messages import assert_names, raises

pytestmark = pytest.mark.slow
KEY = "4f1c9a2e" + "0" * 56
PIECES = [(0, "a.jsonl", 100), (0, "a.jsonl", 80)]
RECORDS = {0: [b"a", b"b"], 1: [b"c"], 2: [b"d"]}
GROUPS = ({0: 2, 1: 1}, {2: 1})
"""The rows of each chunk by group."""


@pytest.fixture(params=["s3", pytest.param("gcs", marks=pytest.mark.nightly)])
def output(request: pytest.FixtureRequest) -> Iterator[str]:
    with emulators.s3() if request.param == "s3" else emulators.gcs(conditions=True) as url:
        yield url


def again(output: str, folder: Path, **changes: Any) -> Run:
    return begin(output, str(folder), **{"build_key": KEY, "pieces": PIECES, **changes})


def build_shard(run: Run, group: int, records: list[bytes]) -> None:
    with ShardWriter(f"{group}.tfrecord", f"{group}.index", run.shards.create) as writer:
        writer.write(records)
    files = Shard(f"{group}.tfrecord", writer.bytes, writer.records, writer.sha256, f"{group}.index")
    report = ShardReport("train", group, files, "", Counts(written_by_source={0: len(records)}))
    write_report(run.workspace, f"reports/{shard_step(group)}", report.to_json())


def work(run: Run, *groups: int, analyzed: bool = True) -> None:
    for number, rows in enumerate(GROUPS):
        write_report(run.workspace, f"reports/{chunk_step(number)}", vars(ChunkReport(read=3, groups=rows)))
    if analyzed:
        run.workspace.write("analysis/export.1.tar", b"graph")
        write_report(run.workspace, "reports/analysis", {"export": "analysis/export.1.tar"})
    for group in groups:
        build_shard(run, group, RECORDS[group])
    run.workspace.write("placement/words/000000.feather", b"words")
    run.workspace.write("digests/shard-000000.arrow", b"digests")


def test_the_next_attempt_goes_on_in_a_workspace_of_its_own_with_the_same_version(output: str, tmp_path: Path) -> None:
    first = again(output, tmp_path)
    assert (first.kept, first.shards.url) == (None, f"{output}/versions/{first.version}")
    assert first.shards.names() == [".upload"]
    work(first, 0, 1)
    build_shard(first, 2, [b"unreported"])
    first.workspace.delete(f"reports/{shard_step(2)}.json")
    second = again(output, tmp_path)
    assert second.kept is not None
    assert_names(second.kept, "transform graph", "2 of 3 shards")
    assert (second.version, second.workspace != first.workspace) == (first.version, True)
    assert second.shards.names() == [".upload", "0.index", "0.tfrecord", "1.index", "1.tfrecord"]
    assert second.workspace.read(second.kept.export) == b"graph"
    assert {"placement/words/000000.feather", "digests/shard-000000.arrow"} <= set(second.workspace.names())
    assert first.workspace.names() == []
    assert second.kept.counts["written"] == 3


def test_rows_on_their_way_to_a_bucket_are_for_nobody_else_on_this_machine(output: str, tmp_path: Path) -> None:
    assert stat.S_IMODE(Path(again(output, tmp_path).folder).stat().st_mode) == 0o700


@pytest.mark.nightly
def test_late_writers_land_where_nobody_looks_or_write_the_same(output: str, tmp_path: Path) -> None:
    first = again(output, tmp_path)
    work(first, 0)
    second = again(output, tmp_path)
    build_shard(second, 1, RECORDS[1])
    build_shard(first, 1, RECORDS[1])  # the same bytes
    build_shard(first, 2, RECORDS[2])  # before the living attempt comes to it
    assert read_report(second.workspace, f"reports/{shard_step(2)}") is None
    build_shard(second, 2, RECORDS[2])
    with raises(OutputError, "other content", "same command"):
        build_shard(first, 2, [b"other"])
    third = again(output, tmp_path)
    assert_names(third.kept, "transform graph", "3 of 3 shards")
    assert list(open_bucket(output).children(".building/4f1c9a2e00000000")) == [third.workspace.url.rpartition("/")[2]]


@pytest.mark.nightly
def test_without_an_analysis_only_the_passes_are_kept(output: str, tmp_path: Path) -> None:
    first = again(output, tmp_path)
    work(first, 0, analyzed=False)
    second = again(output, tmp_path)
    assert (second.kept, second.shards.names()) == (None, [".upload"])
    assert second.workspace.names() == ["placement/words/000000.feather", "reports/plan.json"]


class Killed(BaseException):
    """Ends the driver where it is."""


def kill_while_it_removes(patch: pytest.MonkeyPatch, count: int) -> None:
    """Kills the driver in the first removal of an attempt, after some files in the order of their names."""
    remove_all = BucketStore.remove_all

    def remove_some(store: BucketStore, folder: str, but: Collection[str] = ()) -> None:
        if ".building/" not in folder:
            return remove_all(store, folder, but)
        for name in sorted(store.sizes(folder))[:count]:
            store.delete(name)
        raise Killed

    patch.setattr(BucketStore, "remove_all", remove_some)


def plans(output: str) -> list[str]:
    return [name for name in open_bucket(output).sizes(".building") if name.endswith("/reports/plan.json")]


@pytest.mark.nightly
@pytest.mark.first(1)
@pytest.mark.parametrize("analyzed", [True, False])
def test_an_attempt_that_is_half_removed_is_none(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, analyzed: bool
) -> None:
    first = again(output, tmp_path)
    work(first, 0, 1, 2, analyzed=analyzed)
    first.shards.delete("2.tfrecord")
    with monkeypatch.context() as patch:
        kill_while_it_removes(patch, 3)
        with pytest.raises(Killed):
            again(output, tmp_path)
    third = again(output, tmp_path)
    assert third.workspace.read("placement/words/000000.feather") == b"words"
    assert (third.kept is not None) == analyzed
    if third.kept is not None:
        assert_names(third.kept, "transform graph", "2 of 3 shards")
        assert third.workspace.read(third.kept.export) == b"graph"
        assert third.workspace.read("digests/shard-000000.arrow") == b"digests"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "remove",
    [lambda output, run: prune(output, None, building=run.folder), lambda _, run: run.remove()],
    ids=["prune", "run"],
)
def test_nothing_is_kept_of_an_attempt_whose_removal_was_killed(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remove: Any
) -> None:
    first = again(output, tmp_path)
    work(first, 0)
    with monkeypatch.context() as patch:
        kill_while_it_removes(patch, 2)
        with pytest.raises(Killed):
            remove(output, first)
    assert leases.holders(open_bucket(output)) == {}
    assert again(output, tmp_path).kept is None


@pytest.mark.nightly
def test_an_attempt_that_is_half_copied_is_none(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = again(output, tmp_path)
    work(first, 0)
    before, copy = plans(output), BucketStore.copy

    def copy_others(store: BucketStore, name: str, into: Store, target: str) -> Copied:
        if "digests/" in name:
            raise Killed
        return copy(store, name, into, target)

    with monkeypatch.context() as patch:
        patch.setattr(BucketStore, "copy", copy_others)
        with pytest.raises(Killed):
            again(output, tmp_path)
    assert plans(output) == before
    assert_names(again(output, tmp_path).kept, "transform graph", "1 of 3 shards")


@pytest.mark.nightly
def test_other_chunks_begin_another_version(output: str, tmp_path: Path) -> None:
    first = again(output, tmp_path)
    work(first, 0)
    second = again(output, tmp_path, pieces=PIECES[:1])
    assert second.kept is None
    assert open_bucket(output).children("versions") == [second.version] != [first.version]
    build_shard(first, 2, RECORDS[2])  # too late: no version, and nobody's
    sweep(output, str(tmp_path))
    assert open_bucket(output).children("versions") == [first.version]
    prune(output, None, grace_seconds=0, building=str(tmp_path))
    assert open_bucket(output).children("") == []


def test_a_build_that_is_given_up_leaves_nothing(output: str, tmp_path: Path) -> None:
    again(output, tmp_path).give_up()
    assert open_bucket(output).sizes("") == {}
    assert list(tmp_path.rglob("run-*")) == []
    kept = again(output, tmp_path)
    work(kept, 0)
    kept.give_up()
    assert "0.tfrecord" in kept.shards.names()
    kept.remove()
    assert open_bucket(output).sizes("") == {}


def test_a_sweep_takes_what_the_dead_left_and_nothing_of_the_living(output: str, tmp_path: Path) -> None:
    store = open_bucket(output)
    work(again(output, tmp_path), 0)
    with leases.hold(store, leases.BUILD):
        sweep(output, str(tmp_path))
        assert any(name.endswith("0.tfrecord") for name in store.sizes("versions"))
        assert store.sizes(".building")
    sweep(output, str(tmp_path))
    assert store.sizes("") == {}


def test_parts_of_a_dead_writers_shard_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with emulators.s3() as output:
        first, uploads = again(output, tmp_path), boto3.client("s3").list_multipart_uploads
        stream = first.shards.create("0.tfrecord")
        stream.__enter__().write(bytes(PART_BYTES))
        assert len(uploads(Bucket=emulators.BUCKET)["Uploads"]) == 1
        again(output, tmp_path)
        assert "Uploads" not in uploads(Bucket=emulators.BUCKET)
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # moto answers 500, which boto3 repeats for a minute
        with pytest.raises(OutputError):
            stream.__exit__(None, None, None)
        assert first.shards.names() == [".upload"]
