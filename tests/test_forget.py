"""`forget`: a version without some rows, a list that later builds honour, and the versions that still hold them."""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import recordmill
from recordmill import build, open_dataset
from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.compare.figures import Figure
from recordmill.pipeline.dataset.manifest import DatasetError, read_manifest
from recordmill.pipeline.dataset.placement import digest, hash_keys
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.facts.sidecars import SIDECARS
from recordmill.pipeline.forget import PackedError, forget, versions_with
from recordmill.pipeline.rows import copy_without, find_records, key_at, open_records
from recordmill.pipeline.spec.model import load_spec
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.acts import reject, rollback
from recordmill.pipeline.versions.base import Base, Forgotten, read_forgotten
from recordmill.pipeline.versions.history import read_history
from recordmill.pipeline.versions.listing import list_versions
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import emulators
from tests.messages import assert_names, raises
from tests.sharing import NAMES, publish
from tests.tables import write_jsonl
from tests.test_publishing import STORES

GONE = [b"row/3", b"row/17", b"row/101"]
SPEC = """
name: people
label: kind
splits: {{train: 3, test: 1}}
shards: 2
rejects: {{max_share: 1}}
key: id
source: {{format: jsonl, path: "{0}/rows.jsonl"}}
features: {{kind: {{kind: category}}, age: {{kind: number}}}}
"""


@pytest.fixture(params=emulators.ONE_STORE)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Two versions that share the train split; the second is live."""
    with STORES[request.param](tmp_path) as url:
        publish(url, tmp_path, NAMES[0])
        publish(url, tmp_path, NAMES[1], keep=("train",))
        yield url


@pytest.fixture
def local(tmp_path: Path) -> str:
    publish(str(tmp_path / "out"), tmp_path, NAMES[0])
    return str(tmp_path / "out")


def keys(output: str, version: str | None = None) -> list[bytes]:
    dataset = open_dataset(output, version)
    found = []
    for split in dataset.manifest.splits.values():
        for shard in split.shards:
            with open_records(str(dataset.folder), shard) as records:
                found += [digest(key_at(records, number)[1]) for number in range(len(records))]
    return sorted(found)


def test_the_rows_are_gone_at_once_and_all_others_are_there(output: str) -> None:
    before = Base.read(output).live
    assert before is not None
    done = forget(output, GONE)
    assert (done.rows, done.rejects, done.unknown, done.is_new) == (3, 0, (), True)
    assert keys(output) == sorted(set(keys(output, before.version)) - {*map(digest, GONE)})
    assert verify(output).findings.problems == []
    after = done.manifest
    assert publishing.live_version(output) == after.version
    assert after.rows == {"read": 202, "written": 197, "rejected": 2, "forgotten": 3}
    assert after.sources[0]["forgotten"] == 3
    assert sum(split.records for split in after.splits.values()) == 197
    assert after.provenance["forgotten"]["learned_of"] == before.version
    assert done.held_by == {NAMES[0]: 3, NAMES[1]: 3}


def test_only_the_shards_that_held_the_rows_are_written(local: str) -> None:
    before = {(s.file, s.sha256) for split in list_versions(local)[0].manifest.splits.values() for s in split.shards}
    after = forget(local, GONE[:1]).manifest
    written = {(s.file, s.sha256) for split in after.splits.values() for s in split.shards} - before
    assert len(written) == 1
    folders = [Path(local, "versions", version) for version in (NAMES[0], after.version)]
    same = [file.name for file in folders[0].rglob("*") if file.is_file() and file.stat().st_nlink == 2]
    ((file, _),) = written
    others = {file, file.replace("tfrecord", "index"), "dataset.json", *SIDECARS}
    assert {path.name for path in folders[1].rglob("*") if path.is_file()} - set(same) == others


def test_what_the_gate_knows_stays_without_its_breaches(local: str) -> None:
    assert forget(local, GONE[:1]).manifest.gate == {}
    gate = {"live": NAMES[0], "figures": {"psi": {"age (train)": 9.0}}, "not_compared": []}
    gate["usual"] = {"rows": {"a": 3}, "figures": {}}
    breach = Figure("psi", "age (train)", 9.0, limit=0.25).to_json()
    path = Path(local, "versions", str(publishing.live_version(local)), "dataset.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "gate": {**gate, "breaches": [breach]}}))
    assert forget(local, GONE[1:]).manifest.gate == {**gate, "breaches": []}


def test_a_second_time_nothing_is_published(local: str) -> None:
    first = forget(local, GONE)
    again = forget(local, GONE)
    (entry,) = read_history(local)
    assert (entry["keys"], entry["records"], entry["live_after"]) == (len(GONE), 3, first.manifest.version)
    assert not any(key.decode() in json.dumps(entry) for key in GONE)
    assert (again.manifest.version, again.is_new) == (first.manifest.version, False)


def test_keys_that_are_nowhere_are_named_and_on_the_list(local: str, capsys: pytest.CaptureFixture[str]) -> None:
    app(["versions", "forget", local, "row/3", "nobody\x1b"], standalone_mode=False)
    out = capsys.readouterr().out
    assert_names(out, "without 1 record", "1 key", "nobody\\x1b", f"{NAMES[0]} still holds 1 record")
    assert set(read_forgotten(open_store(local)).keys) == {digest(key).hex() for key in (b"row/3", b"nobody\x1b")}
    assert "nobody" not in Path(local, "forgotten.json").read_text()


def test_keys_come_from_a_file(local: str, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_bytes(b"\xef\xbb\xbfrow/3\nrow/17\r\n\n")
    app(["versions", "forget", local, "--keys", str(tmp_path / "keys.txt")], standalone_mode=False)
    assert len(keys(local)) == 198


def test_keys_are_texts_or_bytes_one_or_several(local: str) -> None:
    assert recordmill.forget(Path(local), "row/3").rows == 1
    assert recordmill.forget(local, ["row/17", b"row/101"]).rows == 2


def test_rejects_of_forgotten_rows_are_taken_out(local: str) -> None:
    done = forget(local, [b"bad/1"])
    assert (done.rows, done.rejects, done.unknown) == (0, 1, ())
    assert done.manifest.rows == {"read": 202, "written": 200, "rejected": 1, "forgotten": 1}
    assert done.manifest.rejects["by_reason"] == {"malformed_row": 1}
    folder = Path(local, "versions", done.manifest.version)
    assert "bad/1" not in (folder / "rejects/rejected-00000-of-00001.jsonl").read_text()
    assert verify(local).findings.problems == []
    assert done.held_by == {NAMES[0]: 0}


def test_purge_removes_the_versions_that_hold_them(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    live = forget(output, GONE).manifest.version
    app(["versions", "prune", output, "--purge", "--dry-run"], standalone_mode=False)
    assert_names(capsys.readouterr().out, "would remove")
    assert [version.manifest.version for version in list_versions(output)] == [*NAMES[:2], live]
    app(["versions", "prune", output, "--purge"], standalone_mode=False)
    assert [version.manifest.version for version in list_versions(output)] == [live]
    assert verify(output).findings.problems == []
    records = {name for name in open_store(output).sizes("versions") if "tfrecord" in name and live not in name}
    manifest = Base.read(output).live
    assert manifest is not None
    referred = {
        f"versions/{s.version}/{s.file}" for split in manifest.splits.values() for s in split.shards if s.version
    }
    assert records == referred


def test_after_a_rollback_purge_says_that_the_live_version_holds_them(
    local: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(local, GONE)
    app(["versions", "rollback", local, NAMES[0]], standalone_mode=False)
    said = capsys.readouterr().out
    assert_names(said, f"{NAMES[0]} still holds 3 records", f"`recordmill versions forget {local}`")
    app(["versions", "prune", local, "--purge"], standalone_mode=False)
    assert_names(capsys.readouterr().out, f"kept {NAMES[0]}", "forgotten rows", "live")
    done = forget(local)
    assert (done.rows, done.held_by) == (3, {NAMES[0]: 3})
    assert len(keys(local)) == 197
    assert not any(version.is_held_back for version in list_versions(local))  # its rows are those of the version left
    with raises(OutputError, "held back", local, done.manifest.version):
        reject(local)


def test_it_waits_for_a_build_and_cleans_what_that_published(local: str, tmp_path: Path) -> None:
    waited = list[str]()
    with ThreadPoolExecutor(1) as pool, leases.hold(open_store(local), leases.BUILD) as lease:
        done = pool.submit(forget, local, GONE, lambda holder: waited.append(holder.host))
        while not waited:
            time.sleep(0.01)
        publish(local, tmp_path, NAMES[2], lease=lease)
    assert done.result().manifest.provenance["forgotten"]["learned_of"] == NAMES[2]
    assert len(keys(local)) == 197


def test_a_kill_leaves_the_list_and_no_half_version(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            forget(local, GONE)
    assert len(read_forgotten(open_store(local)).keys) == 3
    assert publishing.live_version(local) == NAMES[0]
    assert forget(local).rows == 3


def test_packed_texts_are_left_to_a_build(local: str) -> None:
    path = Path(local, "versions", NAMES[0], "dataset.json")
    manifest = read_manifest(path.parent)
    splits = {name: replace(split, documents=split.records) for name, split in manifest.splits.items()}
    path.write_text(replace(manifest, splits=splits).to_text())
    with raises(PackedError, "`recordmill build`", f"`recordmill versions prune {local} --purge`"):
        forget(local, GONE, reason="ticket 7")
    (entry,) = read_history(local)
    assert (entry["end"], entry["keys"], entry["reason"]) == ("failed", len(GONE), "ticket 7")
    assert versions_with(local, read_forgotten(open_store(local))) == {NAMES[0]: -1}


def test_a_broken_list_stops_everything(local: str) -> None:
    Path(local, "forgotten.json").write_text('{"format": 1, "keys": {"zz": 1}}')
    with raises(OutputError, "forgotten.json", "broken"):
        forget(local, GONE)


def test_forgotten_keys_are_found_among_many() -> None:
    gone = Forgotten({digest(key).hex(): "" for key in GONE})
    many = [b"row/%d" % number for number in range(200)]
    assert [row for row, key in enumerate(many) if gone.holds(key)] == [3, 17, 101]
    assert gone.near(hash_keys(many)[1]).tolist() == [3, 17, 101]
    assert not any(map(Forgotten().holds, many))
    assert not len(Forgotten().near(hash_keys(many)[1]))


def test_a_shard_is_copied_without_records(local: str, tmp_path: Path) -> None:
    dataset = open_dataset(local)
    (shard, *_) = dataset.manifest.splits["train"].shards
    with open_records(str(dataset.folder), shard) as records:
        data = [bytes(record) for record in records.read(np.arange(len(records)))]
        with ShardWriter(str(tmp_path / "all"), str(tmp_path / "all.index")) as writer:
            assert copy_without(records, writer, []) == []
        assert writer.sha256 == shard.sha256
        with ShardWriter(str(tmp_path / "some"), str(tmp_path / "some.index")) as writer:
            assert copy_without(records, writer, [1, 3]) == [data[1], data[3]]
        assert writer.records == len(data) - 2


def test_a_record_is_found_by_its_key(output: str) -> None:
    dataset = open_dataset(output)
    (row,) = find_records(dataset.folder, dataset.manifest, b"row/17")
    assert b"row/17" in row.data
    assert find_records(dataset.folder, dataset.manifest, b"row/200") == []
    whole = list(dataset.evaluation_input(row.split, batch_size=1).as_numpy())
    assert whole[row.position][0]["price"].tolist() == [17 / 8]


@pytest.mark.slow
def test_later_builds_leave_the_rows_out_and_reconcile(tmp_path: Path) -> None:
    rows = [{"id": f"p{number}", "kind": "ab"[number % 2], "age": number} for number in range(40)]
    write_jsonl(tmp_path / "rows.jsonl", [*rows, {"id": "p99", "age": 1}])
    (tmp_path / "dataset.yaml").write_text(SPEC.format(tmp_path))
    spec, output = load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out")
    first = build(spec, output).manifest
    done = forget(output, [b"p3", b"p99"])
    assert (done.rows, done.rejects) == (1, 1)
    counts = done.manifest.splits
    assert sum(sum(split.label_counts or ()) for split in counts.values()) == 39
    again = build(spec, output)
    assert (again.is_new, again.manifest.version) == (False, done.manifest.version)
    with open(tmp_path / "rows.jsonl", "a") as file:
        file.write(json.dumps({"id": "p40", "kind": "a", "age": 40}) + "\n")
    second = build(spec, output)
    assert second.is_new
    assert second.manifest.rows == {"read": 42, "written": 40, "rejected": 0, "duplicates": 0, "forgotten": 2}
    assert second.manifest.provenance["forgotten"]["keys"] == 2
    assert "learned_of" not in second.manifest.provenance["forgotten"]
    assert verify(output).findings.problems == []
    assert digest(b"p3") not in keys(output)
    assert versions_with(output, read_forgotten(open_store(output))) == {first.version: 1}


@pytest.mark.nightly
@pytest.mark.slow
def test_the_next_build_reads_the_spans_that_held_the_rows_and_keeps_the_others(tmp_path: Path) -> None:
    def write(day: str) -> None:
        (tmp_path / day).mkdir()
        rows = ({"id": f"{day}-{number}", "kind": "ab"[number % 2], "age": number} for number in range(30))
        write_jsonl(tmp_path / day / "rows.jsonl", rows)

    for day in ("monday", "tuesday"):
        write(day)
    (tmp_path / "dataset.yaml").write_text(SPEC.format(tmp_path).replace("/rows.jsonl", "/{span}/rows.jsonl"))
    spec, output = load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out")
    build(spec, output)
    assert forget(output, [b"monday-3"]).rows == 1
    assert verify(output).findings.problems == []
    with raises(publishing.GateBreachedError, "rolled back") as again:  # the outdated report of monday is no damage
        rollback(output)
        build(spec, output)
    assert len(again.value.published.breaches) == 1
    forget(output)
    write("wednesday")
    published = build(spec, output)
    assert (published.built_spans, published.kept_spans) == (("monday", "wednesday"), ("tuesday",))
    assert (published.manifest.rows["written"], published.manifest.rows["forgotten"]) == (89, 1)
    assert digest(b"monday-3") not in keys(output)
    assert verify(output).findings.problems == []


def test_show_says_that_sources_at_urls_need_the_extra(
    local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dataset.yaml").write_text(SPEC.format("hdfs://host"))
    monkeypatch.setitem(sys.modules, "apache_beam.io.filesystems", None)
    with raises(UserError, "recordmill[build]", "missing: apache_beam"):
        app(["show", local, "--record", "row/17", "--spec", str(tmp_path / "dataset.yaml")], standalone_mode=False)


def test_show_says_where_a_record_lies(local: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = find_records(open_dataset(local).folder, open_dataset(local).manifest, b"row/17")
    app(["show", local, "--record", "row/17"], standalone_mode=False)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"row/17: split {row.split}, position {row.position:,}"
    assert second == f"  record {row.record} of {row.file}, at byte {row.offset:,}, {len(row.data):,} bytes"
    assert_names(third, "--spec dataset.yaml", "file and line")
    forget(local, [b"row/17"])
    app(["show", local, "--record", "row/17"], standalone_mode=False)
    assert "row/17: forgotten since 20" in capsys.readouterr().out
    app(["show", local, "--record", "row/17", "--version", NAMES[0]], standalone_mode=False)
    assert capsys.readouterr().out.splitlines()[0] == first
    with raises(DatasetError, "key 'nobody'"):
        app(["show", local, "--record", "nobody"], standalone_mode=False)


def damage(local: str, version: str, key: bytes) -> str:
    """Damages the record of a key; gives the shard's file."""
    folder = Path(local, "versions", version)
    (row,) = find_records(folder, read_manifest(folder), key)
    shard = folder / row.shard.file
    content = bytearray(shard.read_bytes())
    content[row.offset + 32] ^= 1
    shard.unlink()  # it may be a link
    shard.write_bytes(content)
    return row.shard.file


def test_a_damaged_old_version_holds_perhaps_some_and_is_purged(
    local: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(local, tmp_path, NAMES[1])
    shard = damage(local, NAMES[0], GONE[0])
    with raises(DatasetError, shard, "at byte", "checksum", "`recordmill verify`"):
        app(["show", local, "--version", NAMES[0], "--record", "row/3"], standalone_mode=False)
    app(["versions", "forget", local, *map(bytes.decode, GONE)], standalone_mode=False)
    assert_names(capsys.readouterr().out, NAMES[0], "perhaps", "forgotten rows")
    app(["versions", "prune", local, "--purge"], standalone_mode=False)
    assert not Path(local, "versions", NAMES[0]).exists()


@pytest.mark.parametrize("broken", [None, "{"])
def test_a_version_whose_rejects_are_gone_or_broken_holds_perhaps_some(
    local: str, tmp_path: Path, broken: str | None
) -> None:
    publish(local, tmp_path, NAMES[1])
    (rejects,) = Path(local, "versions", NAMES[0], "rejects").iterdir()
    rejects.unlink()
    if broken:
        rejects.write_text(broken)
    assert forget(local, [b"nobody"]).held_by == {NAMES[0]: -1}


def test_a_damaged_record_of_the_live_version_is_one_clear_line(local: str) -> None:
    shard = damage(local, NAMES[0], GONE[0])
    with raises(DatasetError, shard, "`recordmill verify`"):
        forget(local, GONE)


def test_a_version_whose_manifest_cannot_be_read_is_named(
    local: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(local, tmp_path, NAMES[1])
    manifest = Path(local, "versions", NAMES[0], "dataset.json")
    manifest.unlink()
    manifest.write_text("{")
    app(["versions", "forget", local, "row/3"], standalone_mode=False)
    assert_names(capsys.readouterr().out, f"\n{NAMES[0]}", "may hold", "dataset.json")
    app(["versions", "prune", local, "--purge"], standalone_mode=False)
    assert_names(capsys.readouterr().out, f"kept {NAMES[0]}", "may hold")


def test_a_version_that_is_held_back_is_removed(local: str, tmp_path: Path) -> None:
    publish(local, tmp_path, NAMES[1], holds_back=True)
    done = forget(local, GONE)
    assert done.held_by == {NAMES[0]: 3}
    assert [version.manifest.version for version in list_versions(local)] == [NAMES[0], done.manifest.version]


def test_without_a_live_version_nothing_is_written(tmp_path: Path) -> None:
    with raises(OutputError, "live", tmp_path, "written"):
        forget(str(tmp_path), GONE)
    assert not list(tmp_path.iterdir())
    publishing.check_output(str(tmp_path))
