"""An adopted version is a version: order, hosts, resumption, damage, buckets, commands; and it opens no other file."""

import json
import os
import random
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

from recordmill import (
    DamagedRecordError,
    Dataset,
    DatasetError,
    UserError,
    build,
    load_spec,
    open_dataset,
    open_tfrecords,
    serving_model,
)
from recordmill.pipeline.dataset import file_names
from recordmill.pipeline.dataset.file_names import allow
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, read_manifest
from recordmill.pipeline.export.export import export
from recordmill.pipeline.reader.metrics import FETCHED
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.prune import prune
from tests import emulators, tfrecords
from tests.messages import assert_names, raises
from tests.places import ADOPTING, place_of
from tests.test_adopt import run as main_code
from tests.test_written_places import changed

pytestmark = pytest.mark.usefixtures("home")
FILES, RECORDS = 3, 30
ALL = FILES * RECORDS


@pytest.fixture
def old(tmp_path: Path) -> Path:
    tfrecords.write_some(tmp_path / "old", FILES, RECORDS)
    return tmp_path / "old"


@pytest.fixture
def dataset(old: Path, tmp_path: Path) -> Dataset:
    return open_tfrecords(old, tmp_path / "out")


def put(path: Path, data: bytes) -> None:
    """Replaces a file: a process that has mapped the old one keeps it."""
    path.with_suffix(".new").write_bytes(data)
    os.replace(path.with_suffix(".new"), path)


def ids(batches: Any) -> list[list[int]]:
    return [features["id"].tolist() for features, _ in batches]


@pytest.mark.parametrize("shuffle", ["global", "blocks"])
@pytest.mark.parametrize("shares", [{}, {"train": 80, "test": 20}])
def test_a_training_killed_at_any_step_goes_on_on_any_number_of_hosts(
    old: Path, tmp_path: Path, shuffle: str, shares: dict[str, float]
) -> None:
    dataset = open_tfrecords(old, tmp_path / "out", splits=shares)

    def read(hosts: int, state: Any = None, stop: int | None = None) -> tuple[list[set[int]], Any]:
        inputs = [
            dataset.training_input(
                batch_size=12 // hosts, seed=3, epochs=2, shuffle=shuffle, host_index=host, host_count=hosts
            )
            for host in range(hosts)
        ]
        its = [(each if state is None else each.resume(state)).as_numpy() for each in inputs]
        rows = [ids(batch for _, batch in zip(range(stop or 99), each, strict=False)) for each in its]
        return [set().union(*map(set, step)) for step in zip(*rows, strict=True)], its[0].state()

    whole, _ = read(1)
    epoch = dataset.splits["train"] // 12
    assert len(whole) == 2 * epoch
    assert len(set().union(*whole[:epoch])) == 12 * epoch  # no record twice
    for step in range(0, len(whole), 3):
        state = read(1, stop=step)[1] if step else None
        for hosts in (1, 2, 3, 4):
            assert read(hosts, state)[0] == whole[step:], (step, hosts)


def test_every_flipped_byte_is_found_by_name_and_ends_a_training(dataset: Dataset, old: Path) -> None:
    wild = random.Random(1)
    shards = tuple(replace(each, sample=None) for each in dataset.manifest.splits["train"].shards)
    splits = {"train": replace(dataset.manifest.splits["train"], shards=shards)}
    blind = Dataset(dataset.folder, replace(dataset.manifest, splits=splits))  # as if the disk changed a bit: no times
    for _ in range(20):
        path = wild.choice(sorted(old.iterdir()))
        data = path.read_bytes()
        at = wild.randrange(len(data))
        put(path, data[:at] + bytes([data[at] ^ 1 << wild.randrange(8)]) + data[at + 1 :])
        found = verify(str(dataset.folder)).findings.problems
        size, place = len(data) // RECORDS, next(each for each in found if each.record is not None)
        assert place.file == str(path)
        assert place.offset is not None
        assert place.offset <= at < place.offset + size + 8
        assert place.file in {each.file for each in verify(str(dataset.folder), quick=True).findings.problems}
        with raises(DatasetError, path, "changed since it was adopted", "adopt the files again"):
            dataset.training_input(batch_size=1)
        train = blind.training_input(batch_size=1, with_key=True)
        with raises(DamagedRecordError, path, f"record {place.record}", "adopt the files again"):
            list(train.as_numpy())
        skipping = blind.training_input(batch_size=1, with_key=True, on_error="skip").as_numpy()
        read = {key for features, _ in skipping for key in features["key"].tolist()}
        assert len(read) == ALL - 1
        assert f"{path.name}:{place.record}".encode() not in read
        put(path, data)


FIRST = "train-00000-of-00003.tfrecord"
CHANGES: dict[str, Callable[[Path], Any]] = {
    "cut": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "shorter": lambda path: tfrecords.write(path, map(tfrecords.row, range(9))),  # in place, as TensorFlow does
    "longer": lambda path: tfrecords.write(path, map(tfrecords.row, range(99))),
    "as long": lambda path: tfrecords.write(path, map(tfrecords.row, reversed(range(RECORDS)))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read_is_named(dataset: Dataset, old: Path, change: str) -> None:
    facts = old / FIRST, "adopt the files again"
    source, iterations = dataset.source("train"), list[Any]()
    for options in ({"batch_size": 1}, {"batch_size": RECORDS}, {"batch_size": RECORDS, "on_error": "skip"}):
        given = dataset.training_input("train", seed=1, epochs=99, workers=0, threads=1, **options)
        iterations.append(given.as_numpy())
        next(iterations[-1])
    assert source[0][0]["id"] == 0
    CHANGES[change](old / FIRST)
    for act in (lambda: source[1], *(partial(list, each) for each in iterations)):
        with raises(DatasetError, *facts):
            act()


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_is_named_when_the_dataset_is_opened(dataset: Dataset, old: Path, change: str) -> None:
    CHANGES[change](old / FIRST)
    again, facts = open_dataset(dataset.folder.parents[1]), (old / FIRST, "adopt the files again")
    for act in (again.training_input, lambda **_: again.source("train")[0], lambda **_: list(again.records("train"))):
        with raises(DatasetError, *facts):
            act(batch_size=1)
    assert_names("\n".join(verify(str(dataset.folder)).lines()), *facts)


def test_what_only_seems_to_have_changed_is_read(dataset: Dataset, old: Path, tmp_path: Path) -> None:
    batches = dataset.evaluation_input("train", batch_size=RECORDS, workers=0).as_numpy()
    assert next(batches)[0]["id"].tolist() == [*range(RECORDS)]
    for path in old.iterdir():
        os.utime(path, (1, 1))
    assert next(batches)[0]["id"].tolist() == [*range(RECORDS, 2 * RECORDS)]
    shutil.copytree(old, tmp_path / "copy")
    shutil.rmtree(old)
    assert next(batches)[0]["id"].tolist() == [*range(2 * RECORDS, ALL)]  # deleted files stay until they are closed
    os.rename(tmp_path / "copy", old)
    assert len(list(dataset.training_input(batch_size=1).as_numpy())) == ALL


def upload(folder: Path, url: str) -> None:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    for path in folder.iterdir():
        boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/{path.name}", Body=path.read_bytes())


def test_a_bucket_gives_each_byte_once_and_the_records_of_a_folder(tmp_path: Path) -> None:
    for number in range(2):  # several blocks each
        rows = ({"id": number * 300 + at, "data": bytes([at % 251]) * 30_000} for at in range(300))
        tfrecords.write(tmp_path / "big" / f"part-{number}.tfrecord", rows)
    size = sum(path.stat().st_size for path in (tmp_path / "big").iterdir())
    options: dict[str, Any] = {"batch_size": 8, "seed": 1, "shuffle": "blocks", "epochs": 2, "workers": 0}
    local = open_tfrecords(tmp_path / "big", tmp_path / "local", label=None)
    with emulators.s3() as url:
        upload(tmp_path / "big", f"{url}/old")
        remote = open_tfrecords(f"{url}/old/part-*", f"{url}/out")
        rows = remote.training_input(**options, cache=tmp_path / "cache").as_numpy()
        read = [batch["id"].tolist() for batch in rows]
        assert read == [batch["id"].tolist() for batch in local.training_input(**options).as_numpy()]
        fetched = rows._counters.counts[FETCHED]

        assert size - 9 * 8 * 31_000 < fetched < 1.01 * size
        with raises(DatasetError, f"{url}/old", "files="), pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))  # as another user
            open_dataset(f"{url}/out").training_input(batch_size=1)
        assert open_dataset(f"{url}/out", files=f"{url}/old/part-*").source("train")[5]["id"] == 5
        assert main_code("verify", f"{url}/out") == 0
        first = tmp_path / "big" / "part-0.tfrecord"
        tfrecords.write(first, ({"id": at, "data": bytes([at % 250]) * 30_000} for at in range(300)))  # as long
        upload(tmp_path / "big", f"{url}/old")
        changed = f"{url}/old/{first.name}", "adopt the files again"
        with raises(DatasetError, *changed):
            open_dataset(f"{url}/out").source("train")[3]
        with raises(DatasetError, *changed):
            open_dataset(f"{url}/out").training_input(batch_size=1)


@pytest.mark.parametrize("is_remote", [True, False], ids=["remote files", "remote index"])
def test_files_and_index_may_lie_apart(is_remote: bool, old: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"splits": {"train": 80, "test": 20}, "label": None}
    expected = [dict(each.values) for each in open_tfrecords(old, tmp_path / "local", **options).records("train")]
    with emulators.s3() as url:
        upload(old, f"{url}/old")
        files, index = (f"{url}/old/train-*", tmp_path / "out") if is_remote else (old, f"{url}/out")
        dataset = open_tfrecords(files, index, **options)
        assert [dict(each.values) for each in dataset.records("train")] == expected
        rows = dataset.training_input("train", batch_size=1, seed=1, epochs=1, cache=tmp_path / "cache")
        assert len(list(rows.as_numpy())) == len(expected)


def test_commands_say_what_an_adopted_version_has_not(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (tmp_path / "a.yaml").write_text(
        "name: out\nsource: {format: jsonl, path: rows.jsonl}\nkey: id\nfeatures: {price: {kind: number}}\n"
    )
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "price": 1}\n')
    assert main_code("verify", out, "--spec", tmp_path / "a.yaml") not in (0, 3)
    assert_names(capsys.readouterr().err, "adopted", "--spec")
    with raises(UserError, out, "adopted", "another"):
        build(load_spec(str(tmp_path / "a.yaml")), str(out))
    with raises(DatasetError, "adopted", "serving"):
        serving_model(out)
    for arguments in (["show"], ["head"], ["versions", "list"], ["versions", "pin", "live"], ["history"], ["report"]):
        command = [*arguments[:2], out, *arguments[2:]] if arguments[0] == "versions" else [*arguments, out]
        more = ["--output", tmp_path / "r.html"] if arguments == ["report"] else []
        assert main_code(*command, *more) == 0
    assert main_code("versions", "prune", out) == 0
    assert_names(capsys.readouterr().out, "adopted files stay")


def test_a_prune_leaves_the_files(dataset: Dataset, old: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in old.iterdir()}
    tfrecords.write(old / "train-9.tfrecord", [tfrecords.row(99)])
    open_tfrecords(old, tmp_path / "out")
    prune(str(tmp_path / "out"), 1, 0)
    assert [each.name for each in (tmp_path / "out" / "versions").iterdir()] != [dataset.version]
    assert {path: path.read_bytes() for path in before} == before


def test_an_export_and_its_rows(dataset: Dataset, tmp_path: Path) -> None:
    assert main_code("export", tmp_path / "out", tmp_path / "parquet", "--to", "parquet") == 0
    table = pq.read_table(sorted((tmp_path / "parquet").rglob("*.parquet")))
    assert table["id"].to_pylist() == list(range(ALL))


def test_adopting_writes_into_its_output_and_the_cache_alone(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = bytearray((old / "train-00000-of-00003.tfrecord").read_bytes())
    data[30] ^= 1
    put(old / "train-00000-of-00003.tfrecord", bytes(data))
    shares = ["--split", "train=9", "--split", "test=1"]
    seen = changed(tmp_path, lambda: main_code("adopt", old, *shares, "--max-share", "1", "-o", tmp_path / "out"))
    places = {path: place_of(path) for path in seen - {"out", "."}}
    assert [path for path, place in places.items() if place is None] == []
    assert ADOPTING.keys() <= {*places.values()}


SECRET = {"id": 1, "label": 0, "text": b"secret", "size": 0.5}


def edited(dataset: Dataset, edit: Callable[[dict[str, Any]], None]) -> str:
    """Edits the manifest, as its author may have done; returns the dataset's folder."""
    path = Path(str(dataset.folder)) / MANIFEST_FILE
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))
    return str(path.parents[2])


def place(root: Any, file: str = "train-00000-of-00003.tfrecord") -> Callable[[dict[str, Any]], None]:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["splits"]["train"]["shards"][0] |= {"root": root, "file": file}

    return edit


ATTACKS = "other above inner link relative url no-root root-link link-above noted nul".split()


@pytest.mark.parametrize("command", ["reader", "verify", "head", "export"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_files_elsewhere_are_not_opened(
    dataset: Dataset, tmp_path: Path, attack: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tfrecords.write(tmp_path / "secret" / "train-00000-of-00003.tfrecord", [SECRET] * RECORDS)
    old = str((tmp_path / "old").resolve())
    os.symlink(secret, tmp_path / "old" / "link.tfrecord")
    os.symlink(secret.parent, tmp_path / "out" / "lnk")
    os.symlink(tmp_path, tmp_path / "out" / "up")
    if attack == "noted":  # the adopted folder became a link
        os.rename(old, tmp_path / "moved")
        os.symlink(secret.parent, old)
    edit = {
        "root-link": place("lnk"),
        "link-above": place("up/secret"),
        "noted": place(old),
        "nul": place("/secret\0"),
        "other": place(str(secret.parent)),
        "above": place(f"{old}/../secret"),
        "inner": place(old, "../secret/train-00000-of-00003.tfrecord"),
        "link": place(old, "link.tfrecord"),
        "relative": place("../secret"),
        "url": place("s3://secret/of-others"),
        "no-root": place(None, str(secret)),
    }[attack]
    output = edited(dataset, edit)
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: opened.append(str(path)) or real(path, *rest, **more))
    acts: dict[str, Callable[[], Any]] = {
        "verify": lambda: "\n".join(verify(output).lines()),
        "head": lambda: [row.values for row in open_dataset(output).records("train")],
        "export": lambda: export(open_dataset(output), "parquet", tmp_path / "copied"),
        "reader": lambda: open_dataset(output).training_input(batch_size=1),
    }
    try:
        lines = str(acts[command]())
    except UserError as error:
        lines = str(error)
    assert "secret/" not in "".join(map(os.path.realpath, opened))
    assert "b'secret'" not in lines
    assert "number" not in lines or command == "verify"
    assert any(word in lines for word in ("allow", "leaves", "outside", "broken", "adopted"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("frames", None), ("frames", 2**62), ("records", 31), ("kept", "../x"), ("kept_bytes", -1), ("root", 3)],
)
def test_a_shard_that_lies_is_refused_in_a_line(dataset: Dataset, field: str, value: Any) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["splits"]["train"]["shards"][0][field] = value

    output = edited(dataset, edit)
    with pytest.raises(DatasetError):
        list(open_dataset(output).training_input(batch_size=1).as_numpy())


def test_the_bits_of_a_split_are_as_many_as_its_file_has_records(dataset: Dataset) -> None:
    output = Path(edited(dataset, lambda manifest: manifest["splits"]["train"]["shards"][0].update(kept="bits")))
    bits = next(output.glob("**/dataset.json")).parent / "bits"
    bits.touch()
    os.truncate(bits, 2 << 30)  # without blocks
    tracemalloc.start()
    with raises(DatasetError, "bits", "expected"):
        list(open_dataset(output).training_input(batch_size=1).as_numpy())
    assert tracemalloc.get_traced_memory()[1] < 128 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("held", "fact"),
    [
        ({"names": ["id"], "dtype": "int32"}, "int32"),
        ({"names": ["a", "b"], "dtype": "int64"}, "2 features"),
        ({}, "names"),
    ],
)
def test_a_part_that_no_record_has_is_refused(dataset: Dataset, held: dict[str, Any], fact: str) -> None:
    output = edited(dataset, lambda manifest: manifest["features"]["id"].update(stored_as={"": held}))
    with raises(DatasetError, fact):
        open_dataset(output).training_input(batch_size=1)


def test_what_is_allowed(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(str(dataset.folder))
    manifest = read_manifest(folder)
    real = str((tmp_path / "old").resolve())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))

    def allows(root: str, *files: str) -> bool:
        shards = tuple(replace(each, root=root) for each in manifest.splits["train"].shards)
        given = replace(manifest, splits={"train": replace(manifest.splits["train"], shards=shards)})
        return all(isinstance(each.root, file_names.Allowed) for each in allow(given, folder, files).shards)

    assert not allows(real)
    assert all(allows(real, each) for each in (real, str(tmp_path), f"{real}/train-*", f"{real}/"))
    assert not any(allows(real, each) for each in (f"{real}er", f"{tmp_path}/ol", f"{real}/inner", "s3://b/old"))
    assert allows("s3://b/old", "s3://b/old/train-*")
    assert allows("s3://b/old/deep", "s3://b/old")
    assert not any(allows("s3://b/older", each) for each in ("s3://b/old", "s3://b/old*", "s3://a", "/"))
    assert not any(allows(f"s3://b/old/{up}/secret", "s3://b/old") for up in ("..", "%2e%2e", "a/%2E%2E/.."))
    assert allows("s3://b/100%/old", "s3://b/100%")
    assert allows(".")
    assert allows("inside/deep")


def test_links_that_stay_or_that_the_user_named_are_followed(old: Path, tmp_path: Path) -> None:
    current = tmp_path / "current"
    current.symlink_to(old)
    out = tmp_path / "out"
    dataset = open_tfrecords(f"{current}/train-*", out)  # adopted through a link, which then moves on
    current.unlink()
    current.symlink_to(tmp_path)
    assert len(open_dataset(out).source("train")) == ALL
    os.rename(old, out / "inside")
    (out / "lnk").symlink_to("inside")
    assert len(open_dataset(edited(dataset, place("lnk", "train-00000-of-00003.tfrecord"))).source("train")[5]) == 2
    with raises(DatasetError, old, "is missing"):
        list(open_dataset(out).records("train"))  # the others are where they were adopted
    old.symlink_to(out / "inside")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
        for given in (old, f"{old}/train-*", f"{old}/**/*.tfrecord"):
            assert len(list(open_dataset(out, files=given).records("train"))) == ALL


def test_a_folder_that_becomes_a_link_after_opening_is_not_followed(dataset: Dataset, tmp_path: Path) -> None:
    train, source = dataset.training_input(batch_size=1, workers=0), dataset.source("train")
    tfrecords.write_some(tmp_path / "secret", FILES, RECORDS)
    os.rename(tmp_path / "old", tmp_path / "moved")
    (tmp_path / "old").symlink_to(tmp_path / "secret")
    for act in (lambda: next(train.as_numpy()), lambda: source[0], lambda: dataset.training_input(batch_size=1)):
        with raises(DatasetError, tmp_path / "old", "adopt"):
            act()


def test_a_place_is_remembered_for_its_folder_and_user_alone(dataset: Dataset, tmp_path: Path) -> None:
    assert open_dataset(tmp_path / "out").training_input(batch_size=1)
    os.rename(tmp_path / "out", tmp_path / "moved")
    with raises(DatasetError, "/old'", "files="):
        open_dataset(tmp_path / "moved").training_input(batch_size=1)
    assert open_dataset(tmp_path / "moved", files=tmp_path / "old").training_input(batch_size=1)
    os.rename(tmp_path / "moved", tmp_path / "out")
    notes = tmp_path / "home" / "recordmill" / "adopted"
    notes.chmod(0o777)  # another user may have written there
    with raises(DatasetError, "files="):
        open_dataset(tmp_path / "out").training_input(batch_size=1)


def test_files_in_the_datasets_own_folder_move_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tfrecords.write_some(tmp_path / "out" / "data", 2, 5)
    open_tfrecords(tmp_path / "out" / "data", tmp_path / "out")
    os.rename(tmp_path / "out", tmp_path / "moved")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert len(open_dataset(tmp_path / "moved").source("train")) == 10


def test_an_index_that_cannot_be_written_opens(dataset: Dataset, old: Path, tmp_path: Path) -> None:
    """Training hosts mount it so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)  # root may write anywhere
        assert open_tfrecords(old, tmp_path / "out").version == dataset.version
        with raises(UserError, tmp_path / "new", "cannot be written"):
            open_tfrecords(old, tmp_path / "new")
