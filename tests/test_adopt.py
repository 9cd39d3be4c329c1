"""`recordmill adopt` and `open_tfrecords`: files are read once, described, and stay as they are."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from recordmill import Dataset, UserError, open_dataset, open_tfrecords
from recordmill.pipeline.adopt import adopt as adopting
from recordmill.pipeline.adopt.scanned import scan_file
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.placement import digest
from recordmill.pipeline.errors import code_of
from recordmill.pipeline.versions.history import read_history
from tests import tfrecords
from tests.messages import assert_names, raises


@pytest.fixture
def old(tmp_path: Path) -> Path:
    tfrecords.write_some(tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read."""
    names: list[str] = []

    def counting(files: Any, found: Any, *rest: Any) -> None:
        names.append(found.name)
        scan_file(files, found, *rest)

    monkeypatch.setattr(adopting, "scan_file", counting)
    return names


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    return int(end.value.code or 0)


def values(dataset: Dataset, split: str) -> list[dict[str, Any]]:
    return [dict(record.values) | {"key": record.key} for record in dataset.records(split)]


def keys(dataset: Dataset, split: str = "train", **options: Any) -> list[bytes]:
    batches = dataset.training_input(split, with_key=True, **options).as_numpy()
    return [key for features, _ in batches for key in features["key"].tolist()]


def expected(files: int = 3, records: int = 20) -> list[dict[str, Any]]:
    rows = [(file, tfrecords.row(file * records + at), at) for file in range(files) for at in range(records)]
    return [
        row | {"key": f"train-{file:05d}-of-{files:05d}.tfrecord:{at}", "label": str(row["label"])}
        for file, row, at in rows
    ]


def test_every_record_is_read_where_it_is(old: Path, tmp_path: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()}
    dataset = open_tfrecords({"train": f"{old}/train-*"}, tmp_path / "out")
    assert values(dataset, "train") == expected()
    assert sorted(keys(dataset, batch_size=7, drop_remainder=False)) == sorted(
        row["key"].encode() for row in expected()
    )
    assert dataset.label_counts("train") == {"0": 20, "1": 20, "2": 20}
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()} == before
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.index-*")) == 8 * (60 + 3)


@pytest.mark.parametrize(
    ("arguments", "splits"),
    [
        (["train-*", "--split", "train", "val-*", "--split", "validation"], {"train": 60, "validation": 5}),
        (["--split", "train", "train-*", "--split", "validation", "val-*"], {"train": 60, "validation": 5}),
        (["train-*", "val-*"], {"train": 60, "validation": 5}),
        (["."], {"train": 60, "validation": 5}),
        (["train-00000-of-00003.tfrecord"], {"train": 20}),
        (["t*", "v*", "--split", "all"], {"all": 65}),
    ],
)
def test_splits_are_named_by_the_command_or_by_the_files(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], splits: dict[str, int]
) -> None:
    tfrecords.write(old / "val-0.tfrecord", map(tfrecords.row, range(5)))
    monkeypatch.chdir(old)
    assert run("adopt", *arguments, "--output", tmp_path / "out") == 0
    assert open_dataset(tmp_path / "out").splits == splits


def test_shares_divide_files_by_the_keys_and_write_no_record(old: Path, tmp_path: Path) -> None:
    out, shares = tmp_path / "out", ["--split", "train=70", "--split", "test=30"]
    assert run("adopt", f"{old}/*", *shares, "-o", out) == 0
    dataset = open_dataset(out)
    parts = {split: {row["key"] for row in values(dataset, split)} for split in ("train", "test")}
    assert parts["train"] | parts["test"] == {row["key"] for row in expected()}
    assert not parts["train"] & parts["test"]
    assert 5 < len(parts["test"]) < 35
    assert dataset.label_counts("test") == {
        name: sum(row["label"] == name for row in values(dataset, "test")) for name in dataset.classes
    }
    tfrecords.write(old / "train-9.tfrecord", map(tfrecords.row, range(30)))
    run("adopt", f"{old}/*", *shares, "-o", out)
    assert {row["key"] for row in values(open_dataset(out), "test")} >= parts["test"]


def test_adopting_again_reads_only_what_changed(old: Path, tmp_path: Path, scanned: list[str]) -> None:
    out = tmp_path / "out"
    first, second, third = sorted(old.iterdir())
    assert (run("adopt", f"{old}/*", "-o", out), run("adopt", f"{old}/*", "-o", out)) == (0, 3)
    assert sorted(scanned) == [first.name, second.name, third.name]
    scanned.clear()
    times = second.stat().st_atime_ns, second.stat().st_mtime_ns
    tfrecords.write(second, [tfrecords.row(n) | {"text": b"NUMBER %d" % n} for n in range(20, 40)])
    os.utime(second, ns=times)  # its size and its time are those of before
    third.unlink()
    tfrecords.write(old / "train-9.tfrecord", [tfrecords.row(99)])
    assert run("adopt", f"{old}/*", "-o", out) == 0
    assert sorted(scanned) == [second.name, "train-9.tfrecord"]
    texts = [row["text"] for row in values(open_dataset(out), "train")]
    assert texts[20] == b"NUMBER 20"
    assert texts[-1] == b"number 99"
    assert len(texts) == 41


def test_a_killed_adoption_goes_on_with_the_files_that_are_done(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def dying(files: Any, found: Any, *rest: Any) -> None:
        if len(read) == 2:
            raise KeyboardInterrupt
        read.append(found.name)
        scan_file(files, found, *rest)

    monkeypatch.setattr(adopting, "cores", lambda: 1)
    monkeypatch.setattr(adopting, "scan_file", dying)
    with pytest.raises(KeyboardInterrupt):
        open_tfrecords(str(old), tmp_path / "out")
    assert not (tmp_path / "out" / "LATEST").exists()
    done = read.copy()
    read.clear()
    monkeypatch.setattr(
        adopting, "scan_file", lambda files, *rest: read.append(rest[0].name) or scan_file(files, *rest)
    )
    assert values(open_tfrecords(str(old), tmp_path / "out"), "train") == expected()
    assert len({*read, *done}) == len(read) + len(done) == 3


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"max_share": "2"}, "'2'"),
        ({"splits": {"": 1}}, "split"),
        ({"splits": {"a": 0}}, "{'a': 0}"),
        ({"splits": {"a": "x"}}, "'x'"),
    ],
)
def test_shares_out_of_range_are_refused(options: dict[str, Any], fact: str, tmp_path: Path) -> None:
    path = tfrecords.write(tmp_path / "a.tfrecord", map(tfrecords.row, range(3)))
    with raises(UserError, fact):
        open_tfrecords(path, tmp_path / "out", **options)


def test_damage_is_a_reject_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tfrecords.write(tmp_path / "old" / "a.tfrecord", map(tfrecords.row, range(10)))
    size = len(tfrecords.framed(tfrecords.example(tfrecords.row(0))))
    data = bytearray(path.read_bytes())
    data[3 * size + 20] ^= 1
    path.write_bytes(data[:-7])  # a crashed writer leaves half a record
    tfrecords.write(tmp_path / "old" / "b.tfrecord", [tfrecords.row(1), b"no example", {"label": b"one"}])
    out = tmp_path / "out"
    assert run("adopt", tmp_path / "old", "-o", out) == 5
    assert_names(capsys.readouterr().err, "4 of 13", "damaged_record: 2", f"{size - 7} bytes", "1.0%")
    assert not (out / "LATEST").exists()
    (entry,) = read_history(str(out))
    assert (entry["end"], entry["rejects"]["damaged_record"]) == ("failed", 2)
    assert run("adopt", tmp_path / "old", "-o", out, "--max-share", "0.5") == 0
    dataset = open_dataset(out)
    lines = [
        json.loads(line) for file in (dataset.folder / "rejects").iterdir() for line in file.read_text().splitlines()
    ]
    codes = {"a.tfrecord:3": "damaged_record", "a.tfrecord:9": "damaged_record", "b.tfrecord:1": "malformed_row"}
    assert [(line["id"], line["code"]) for line in lines] == [*codes.items(), ("b.tfrecord:2", "wrong_type")]
    assert_names(lines[0]["message"], f"byte {3 * size:,}", "checksum")
    assert_names(lines[1]["message"], f"byte {9 * size:,}", f"{size - 7} bytes of the file")
    assert_names(lines[2]["message"], "tf.train.Example")
    assert (lines[3]["column"], dataset.manifest.rows) == ("label", {"read": 13, "written": 9, "rejected": 4})
    assert [row["key"] for row in values(dataset, "train")] == [
        f"a.tfrecord:{at}" for at in (0, 1, 2, 4, 5, 6, 7, 8)
    ] + ["b.tfrecord:0"]
    assert_names(capsys.readouterr().out, "damaged_record", "wrong_type")
    assert run("verify", out) == 0


def test_what_does_not_fit_is_refused_in_a_line(old: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    file = next(old.iterdir())
    tfrecords.write(tmp_path / "more" / file.name, [tfrecords.row(1)])
    for given, facts in {
        f"{old}/none-*": ("none-* matches no file",),
        (f"{old}/*", str(file)): (file, "twice"),
        (f"{old}/*", f"{tmp_path}/more/*"): (file.name, "one name in keys"),
        str(tmp_path): (tmp_path, "ending of TFRecord"),
    }.items():
        with raises(UserError, *facts):
            open_tfrecords([given] if isinstance(given, str) else list(given), out)
    with raises(UserError, "labl", "did you mean `label`"):
        open_tfrecords(old, out, label="labl")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with raises(UserError, "notes.txt"):
        open_tfrecords(old, tmp_path / "full")


def test_keys_may_be_a_feature_of_the_records(tmp_path: Path) -> None:
    rows = [tfrecords.row(number) for number in range(9)] + [{"label": 1}]
    tfrecords.write(tmp_path / "old" / "a.tfrecord", rows)
    for key, names in (("text", [f"number {number}" for number in range(9)]), ("id", list(map(str, range(9))))):
        dataset = open_tfrecords(tmp_path / "old", tmp_path / key, key=key, max_share=1)
        assert [row["key"] for row in values(dataset, "train")] == names
        assert dataset.source("train").number_of(names[4]) == 4
        assert dataset.manifest.rejects["by_reason"] == {"missing_key": 1}
    with raises(UserError, "no record", "its key 'idd'", "hold: ", "id, ", "label"):
        open_tfrecords(tmp_path / "old", tmp_path / "none", key="idd")


def test_forgotten_records_are_in_no_order_and_stay_out(old: Path, tmp_path: Path) -> None:
    out, gone = tmp_path / "out", ["train-00001-of-00003.tfrecord:3", "train-00002-of-00003.tfrecord:19"]
    run("adopt", f"{old}/*", "-o", out)
    assert run("versions", "forget", out, *gone) == 0
    wanted = [row for row in expected() if row["key"] not in gone]
    assert values(open_dataset(out), "train") == wanted
    tfrecords.write(old / "train-9.tfrecord", [tfrecords.row(60)])
    assert run("adopt", f"{old}/*", "-o", out) == 0
    dataset = open_dataset(out)
    assert [row["key"] for row in values(dataset, "train")] == [*(row["key"] for row in wanted), "train-9.tfrecord:0"]
    assert sum(dataset.label_counts("train").values()) == 59
    assert dataset.manifest.rows["forgotten"] == 2
    assert not {*gone} & set(map(bytes.decode, keys(dataset, batch_size=1)))
    assert run("verify", out) == 0


NAMES = ["train-a.tfrecord", "train-b.tfrecord", "train-c.tfrecord"]


def numbers(out: Path) -> list[int]:
    return [row["id"] for row in values(open_dataset(out), "train")]


@pytest.mark.parametrize("listed", ["now", "by an earlier Recordmill"])
def test_a_forgotten_record_stays_out_when_its_file_has_another_name(tmp_path: Path, listed: str) -> None:
    out, old = tmp_path / "out", tmp_path / "old"
    for number, name in enumerate(NAMES[:2]):
        tfrecords.write(old / name, map(tfrecords.row, range(3 * number, 3 * number + 3)))
    run("adopt", f"{old}/*", "-o", out)
    if listed == "now":
        assert run("versions", "forget", out, f"{NAMES[0]}:1") == 0
    else:
        digests = {digest(f"{NAMES[0]}:1".encode()).hex(): "2026-01-01T00:00:00Z"}
        (out / "forgotten.json").write_text(json.dumps({"format": 1, "keys": digests}))
    (old / NAMES[0]).rename(old / NAMES[2])
    for rows in ([], [50, 51, 52]):  # then another file takes the name
        tfrecords.write(old / NAMES[0], map(tfrecords.row, rows)) if rows else None
        assert run("adopt", f"{old}/*", "-o", out) == 0
        assert sorted(numbers(out)) == [0, 2, 3, 4, 5, *rows]
    assert b"number 1" not in (out / "forgotten.json").read_bytes()
    assert run("verify", out) == 0


def test_a_forgotten_record_stays_out_of_a_file_that_is_written_anew_and_no_other_does(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "old" / NAMES[0]
    tfrecords.write(file, map(tfrecords.row, range(4)))
    run("adopt", file, "-o", out)
    assert run("versions", "forget", out, f"{NAMES[0]}:1") == 0
    for rows in ([7, 8, 9, 1], [1, 8, 9], [8, 9, 10]):
        tfrecords.write(file, [dict(reversed(tfrecords.row(row).items())) for row in rows])  # features in another order
        assert run("adopt", file, "-o", out) == 0
        assert numbers(out) == [row for row in rows if row != 1]
        assert run("verify", out) == 0
    tfrecords.write(file.with_name(NAMES[1]), map(tfrecords.row, range(20, 30)))
    assert run("adopt", file.parent, "-o", out) == 0
    assert sorted(numbers(out)) == [8, 9, 10, *range(20, 30)]


def test_a_forgotten_key_stays_out_of_every_file(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "old" / NAMES[0]
    tfrecords.write(file, map(tfrecords.row, range(4)))
    run("adopt", file, "-o", out, "--key", "text")
    assert run("versions", "forget", out, "number 1") == 0
    tfrecords.write(file.with_name(NAMES[1]), [tfrecords.row(1) | {"size": 9.5}, tfrecords.row(5)])
    assert run("adopt", file.parent, "-o", out, "--key", "text") == 0
    assert numbers(out) == [0, 2, 3, 5]


def test_a_version_that_lost_files_is_held_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a version of the files that are left was live before: then a rollback is the way."""
    out, old, versions = tmp_path / "out", tmp_path / "old", list[str]()
    for number, name in enumerate(NAMES[:2]):
        tfrecords.write(old / name, map(tfrecords.row, range(60 * number, 60 * number + 60)))
        assert run("adopt", f"{old}/*", "-o", out) == 0
        versions.append(open_dataset(out).version)
    (old / NAMES[1]).rename(tmp_path / "away")
    back = f"`recordmill versions rollback {out} {versions[0]}`"
    for name, remedy in (("out", back), ("new", f"`recordmill versions approve {tmp_path / 'new'}")):
        if name == "new":
            run("adopt", tmp_path / "away", f"{old}/*", "-o", tmp_path / name)
        assert run("adopt", f"{old}/*", "-o", tmp_path / name, "--metrics", tmp_path / "m.prom") == 4
        assert_names(capsys.readouterr().err, "120 → 60 records", remedy)
        with raises(UserError, "120 → 60 records", remedy):
            open_tfrecords(f"{old}/*", tmp_path / name)
    metrics = (tmp_path / "m.prom").read_text()
    assert 'recordmill_gate_figure{dataset="new",rule="rows_lost",subject="all"} 0.5\n' in metrics
    assert 'recordmill_build_rows{dataset="new",outcome="written"} 60\n' in metrics
    assert f'version="{open_dataset(tmp_path / "new").version}"' in metrics
    assert run("versions", "rollback", out, versions[0]) == run("versions", "approve", tmp_path / "new") == 0
    for name in ("out", "new"):
        assert len(open_tfrecords(f"{old}/*", tmp_path / name).source("train")) == 60


def test_a_rollback_is_not_undone(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    run("adopt", f"{old}/*", "-o", out)
    first = open_dataset(out).version
    tfrecords.write(old / "train-9.tfrecord", [tfrecords.row(60)])
    run("adopt", f"{old}/*", "-o", out)
    run("versions", "rollback", out)
    code = run("adopt", f"{old}/*", "-o", out)
    assert (code, open_dataset(out).version) == (4, first)
    assert_names(capsys.readouterr().err, "rolled back", f"{first} stays live", f"`recordmill versions approve {out} ")
    assert open_tfrecords(f"{old}/*", out).version == first


def test_names_beside_the_files_are_part_of_what_is_adopted(old: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("adopt", f"{old}/*.tfrecord", "-o", out)
    assert open_dataset(out).classes == ["0", "1", "2"]
    (old / "labels.txt").write_text("cat\ndog\neel\n")
    assert run("adopt", f"{old}/*.tfrecord", "-o", out) == 0
    assert open_dataset(out).classes == ["cat", "dog", "eel"]
    assert run("adopt", f"{old}/*.tfrecord", "-o", out) == 3


def test_a_file_that_changes_meanwhile_is_named(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def growing(files: Any, found: Any, *rest: Any) -> None:
        scan_file(files, found, *rest)
        if found.name.startswith("train-00001"):
            tfrecords.write(old / found.name, [tfrecords.row(0)])

    monkeypatch.setattr(adopting, "scan_file", growing)
    with raises(UserError, "train-00001-of-00003.tfrecord", "adopt again") as caught:
        open_tfrecords(old, tmp_path / "out")
    assert code_of(caught.value) == 75


def test_the_printed_spec_reads_the_same(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("adopt", f"{old}/*", "-o", tmp_path / "out")
    printed = capsys.readouterr().out
    (tmp_path / "spec.yaml").write_text("features:" + printed.split("features:")[1].rpartition("  in ")[0])
    assert run("adopt", f"{old}/*", "-o", tmp_path / "again", "--spec", tmp_path / "spec.yaml", "--label", "label") == 0
    first, second = open_dataset(tmp_path / "out"), open_dataset(tmp_path / "again")
    assert (second.features, second.label, second.classes) == (first.features, first.label, first.classes)
    assert values(second, "train") == values(first, "train")
