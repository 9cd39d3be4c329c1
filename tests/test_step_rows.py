"""Rows of a step against runs that record their keys, steps of a row, and rows that a training leaves out."""

import json
import pickle
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import DamagedRecordError, Dataset, DatasetError, Input, mix, open_dataset, open_tfrecords
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.dataset.manifest_parts import Pack
from recordmill.pipeline.dataset.tfrecord import pack
from tests import published, tfrecords
from tests.messages import assert_names, raises

PACKED = {"text": "packed", "features": ["text"], "label": None}
LACKS = ("small, train", "6 keys, 0a", "--without FILE")
BAD = ["row/3", "row/17", "row/42", "row/111", "row/0", "row/199"]
ROWS, LENGTH = 200, 2


def write(folder: Path) -> Dataset:
    """A version of texts of up to 3 ids, packed at 2, so that some records are two pieces."""
    version = published.write_version(folder, ROWS)
    manifest, splits = read_manifest(version), {}
    for name, split in manifest.splits.items():
        texts = open_dataset(version).source(name, features=["text"], label=None, text="ragged")
        lengths, shards = iter([len(each["text"]) for each in texts]), []
        for shard in split.shards:
            of_shard = [next(lengths) for _ in range(shard.records)]
            index = pack(np.array(of_shard), LENGTH, split=True)
            described = index.describe(LENGTH, shard.file.replace("tfrecord", "pack-2"), 0, of_shard.count(0))
            (version / described.file).write_bytes(index.to_bytes())
            shards.append(replace(shard, packs=(described,)))
        splits[name] = replace(split, shards=tuple(shards))
    published.write_manifest(version, replace(manifest, splits=splits, packs=(Pack(LENGTH, ("text",)),)))
    return open_dataset(folder)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    dataset = write(tmp_path_factory.mktemp("damaged"))
    for shard in dataset.manifest.splits["train"].shards[:3]:
        data = bytearray((dataset.folder / shard.file).read_bytes())
        data[40] ^= 255
        (dataset.folder / shard.file).write_bytes(data)
    return dataset


def read(dataset: Dataset, *, mixed: Any = None, **options: Any) -> Input:
    """An input of two epochs of the split train, or of both splits by the weights `mixed`."""
    options = {"batch_size": 6, "seed": 3, "with_key": True, "text": "padded"} | options
    if mixed is None:
        return dataset.training_input("train", **{"epochs": 2} | options)
    less = {name: value for name, value in options.items() if name != "without"}
    inputs = [dataset.training_input("train", **options), dataset.training_input("test", **less)]
    return mix(inputs, mixed, seed=5, epochs=2)


def recorded(given: Input) -> dict[int, list[list[str]]]:
    """Each step's keys, a list for each row of the batch."""
    found, batches = {}, given.as_numpy()
    for batch in batches:
        keys = (batch if isinstance(batch, dict) else batch[0])["key"]
        rows = map(keys.row, range(len(keys.splits) - 1)) if hasattr(keys, "splits") else ([key] for key in keys)
        found[batches.step - 1] = [[key.decode() for key in row] for row in rows]
    return found


def told(given: Input, steps: Sequence[int]) -> dict[int, list[list[str]]]:
    found = {}
    for step in steps:
        rows = given.rows(step)
        places = range(1 + max((row.place for row in rows), default=-1))
        found[step] = [[row.key for row in rows if row.place == place] for place in places]
    return found


FORMS = {
    "records": {},
    "blocks": {"shuffle": "blocks"},
    "in order": {"shuffle": "none", "drop_remainder": False},
    "balanced": {"balance": True},
    "bucketed": {"text": "bucketed", "batch_size": 1},
    "packed": PACKED,
    "packed in blocks": {**PACKED, "shuffle": "blocks"},
    "mixed": {"mixed": [3, 1]},
    "mixed by step": {"mixed": {0: [3, 1], 2: [1, 1]}},
    "mixed and packed": {**PACKED, "mixed": [3, 1]},
    "without": {"without": BAD},
    "packed without": {**PACKED, "without": BAD},
    "mixed without": {"mixed": [3, 1], "without": [key for key in BAD if key != "row/3"]},
}


@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.parametrize("form", FORMS)
def test_a_step_has_the_rows_that_a_run_records(form: str, hosts: int, dataset: Dataset) -> None:
    for host in range(hosts):
        given = read(dataset, host_index=host, host_count=hosts, **FORMS[form])
        steps = recorded(given)
        assert len(steps) == 2 * given.batches_per_epoch > 0
        assert told(given, [*steps]) == steps


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("form", ["records", "packed", "mixed", "without", "mixed and packed"])
def test_damaged_records_are_skipped_or_replaced_as_in_the_run(form: str, hosts: int, damaged: Dataset) -> None:
    given = read(damaged, host_index=hosts - 1, host_count=hosts, on_error="skip", **FORMS[form])
    steps = recorded(given)
    assert told(given, [*steps]) == steps
    if hosts == 1:
        with pytest.raises(DamagedRecordError):
            told(read(damaged, **FORMS[form]), [*steps])


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize("form", ["records", "blocks", "in order", "bucketed", "packed", "packed in blocks"])
def test_rows_left_out_move_no_other_row(form: str, hosts: int, dataset: Dataset) -> None:
    options = FORMS[form] | {"drop_remainder": False, "without": BAD + BAD[:2]}
    each = [read(dataset, host_index=host, host_count=hosts, **options) for host in range(hosts)]
    whole = [read(dataset, host_index=host, host_count=hosts, **{**options, "without": ()}) for host in range(hosts)]
    for given, before in zip(each, whole, strict=True):
        left, all_, of_epoch = recorded(given), recorded(before), before.batches_per_epoch
        assert len(left) == len(given) == 2 * given.batches_per_epoch
        if form != "bucketed" and given.batches_per_epoch == of_epoch:
            same = [
                [key for key in row if key not in BAD] == found or not {*row} - {*BAD}
                for step in range(2 * of_epoch)
                for row, found in zip(all_[step], left[step], strict=False)
            ]
            assert all(same)
    found = Counter(key for given in each for step in recorded(given).values() for row in step for key in row)
    expected = Counter(key for given in whole for step in recorded(given).values() for row in step for key in row)
    assert found == Counter({key: count for key, count in expected.items() if key not in BAD})


def test_a_pack_loses_the_piece_and_its_row_only_if_nothing_is_left(dataset: Dataset) -> None:
    whole, left = (read(dataset, **PACKED, epochs=1, batch_size=1, without=without) for without in ([], BAD))
    empty = sum({*keys} <= {*BAD} for [keys] in recorded(whole).values())
    assert 0 < empty < sum(bool({*keys} & {*BAD}) for [keys] in recorded(whole).values())
    assert (len(left), len(whole)) == (len(whole) - empty, len(recorded(whole)))
    for step, batch in enumerate(left.as_numpy()):
        assert batch["text_segments"].max() == len(batch["key"].values) > 0
        assert sum(row.share for row in left.rows(step)) == pytest.approx(1)


def test_a_state_knows_the_list(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("\n".join([*reversed(BAD), ""]))
    given, plain = read(dataset, without=BAD), read(dataset)
    steps, state = recorded(given), json.loads(json.dumps(given.state(step=2)))
    of_file = read(dataset, without=tmp_path / "bad.txt", batch_size=3, host_count=2).resume(state)
    assert recorded(of_file) == {step: rows[:3] for step, rows in steps.items() if step >= 2}
    for other, its in ((plain, state), (read(dataset, without=BAD[:2]), state), (given, plain.state(step=2))):
        with raises(DatasetError, "without", "6 keys", "start_step=2"):
            other.resume(its)
    mixed = read(dataset, mixed=[3, 1], without=BAD[1:])
    assert recorded(mixed.resume(mixed.state(step=3))) == {
        step: rows for step, rows in recorded(mixed).items() if step >= 3
    }
    with raises(DatasetError, "5 keys"):
        read(dataset, mixed=[3, 1]).resume(mixed.state(step=3))


def test_a_training_goes_on_at_its_step_without_rows_to_come(dataset: Dataset) -> None:
    plain = recorded(read(dataset, epochs=1, drop_remainder=False))
    bad = [row.key for row in read(dataset).rows(7)]
    later = recorded(read(dataset, epochs=1, drop_remainder=False, without=bad, start_step=6))
    keys = Counter(key for step in [*range(6), *later] for [key] in ({**plain, **later})[step])
    assert keys == Counter({row[0]: 1 for step in plain.values() for row in step if row[0] not in bad})
    assert later[6] == plain[6]


@pytest.mark.parametrize(("without", "facts"), [
    (["row/3", "row/1000"], ("1 of 2 keys", "row/1000", "--record")),
    ("nowhere.txt", ("nowhere.txt", "one a line")),
    ([3], ("got 3",)),
    (None, ("None", "list of keys")),
    ([f"row/{number}" for number in range(ROWS)], ("all ", "'train'")),
    (["row/42"], ("1 of 1 key ", "'train'", "small")),
])  # fmt: skip
def test_wrong_lists(without: Any, facts: tuple[str, ...], dataset: Dataset) -> None:
    with raises(DatasetError, *facts):
        read(dataset, without=without)


@pytest.mark.parametrize("options", [{}, PACKED])
@pytest.mark.parametrize(("split", "bad", "some"), [
    ("train", BAD, "4 of 6 keys"),
    ("train", [BAD[0], BAD[-1]], None),
    ("train[:50%]", None, "1 of 2 keys"),
])  # fmt: skip
def test_keys_of_other_splits_are_counted(
    split: str, bad: Any, some: str, options: Any, dataset: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    if bad is None:  # the first and the last row that the order reads
        keys = [keys for step in recorded(read(dataset, **options, shuffle="none", epochs=1)).values() for keys in step]
        bad = [keys[0][0], keys[-1][0]]
    for host in range(2):
        dataset.training_input(split, batch_size=2, host_index=host, host_count=2, without=bad, **options)
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == (some is not None)
    assert_names(logged, *([some, split] if some else []))


@pytest.mark.parametrize("number", [-1, 1.5, 7.0, "7", None])
@pytest.mark.parametrize("ask", [
    lambda given, number: given.rows(number),
    lambda given, number: given.steps_of("row/7", epoch=number),
    lambda given, number: given.set_epoch(number),
    lambda given, number: given.state(step=number or "None"),
])  # fmt: skip
def test_steps_and_epochs_are_whole_numbers(ask: Any, number: Any, dataset: Dataset) -> None:
    with raises(DatasetError, "whole number", number):
        ask(read(dataset), number)


def test_steps_may_be_numpys(dataset: Dataset) -> None:
    given = read(dataset)
    assert given.rows(np.int64(7)) == given.rows(7)  # type: ignore[arg-type]
    assert given.steps_of("row/7", np.int64(1)) == given.steps_of("row/7", 1)  # type: ignore[arg-type]


def test_any_collection_goes_to_worker_processes(dataset: Dataset) -> None:
    given = [read(dataset, without=without, epochs=1) for without in (BAD, dict.fromkeys(BAD).keys(), iter(BAD))]
    first, *others = (pickle.loads(pickle.dumps(each.source.open())).request for each in given)
    assert all(each.gone.tolist() == first.gone.tolist() and each.given == first.given for each in others)


def test_an_empty_split_takes_a_list(dataset: Dataset) -> None:
    assert dataset.training_input("train[:0]", batch_size=2, without=BAD).batches_per_epoch == 0


@pytest.mark.parametrize("form", ["records", "packed", "mixed", "balanced", "packed without"])
def test_the_steps_of_a_key(form: str, dataset: Dataset) -> None:
    given = read(dataset, host_index=1, host_count=2, batch_size=3, **FORMS[form])
    steps = recorded(given)
    for key in ("row/3", "row/7", "row/14"):
        for epoch in (0, 1):
            of_epoch = range(epoch * given.batches_per_epoch, (epoch + 1) * given.batches_per_epoch)
            assert given.steps_of(key, epoch) == [step for step in of_epoch if key in sum(steps[step], [])]
    with raises(DatasetError, "row/1000"):
        given.steps_of("row/1000")
    with raises(DatasetError, "epoch", "-1"):
        given.steps_of("row/3", -1)


def test_places_lead_to_records_and_adopted_files(dataset: Dataset, tmp_path: Path, home: Path) -> None:
    for row in read(dataset, mixed=[3, 1]).rows(3):
        [record] = dataset.records(row.split, positions=[row.position])
        assert (record.key, row.file, row.line, row.dataset) == (row.key, None, None, "small")
    tfrecords.write_some(tmp_path / "old")
    adopted = open_tfrecords(tmp_path / "old", tmp_path / "out")
    for row in adopted.training_input(batch_size=4).rows(2):
        assert row.key == f"{Path(str(row.file)).name}:{int(row.line or 0) - 1}"
    with raises(DatasetError, "-1"):
        read(dataset).rows(-1)


@pytest.mark.parametrize(("form", "hosts"), [
    ("records", 1), ("blocks", 2), ("balanced", 1), ("bucketed", 1), ("packed", 2), ("mixed", 1), ("without", 3),
    ("mixed by step", 1), ("mixed without", 2), ("packed without", 1),
])  # fmt: skip
def test_show_needs_a_state_alone(
    form: str, hosts: int, dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"batch_size": 6 // hosts, "host_count": hosts} | FORMS[form]
    given = [read(dataset, host_index=host, **options) for host in range(hosts)]
    (tmp_path / "state.json").write_text(json.dumps({"input": given[0].state(step=2)}))
    (tmp_path / "bad.txt").write_text("\n".join(FORMS[form].get("without", ())))
    without = ["--without", str(tmp_path / "bad.txt")] if "without" in form else []
    state = ["--state", str(tmp_path / "state.json"), "--hosts", str(hosts), *without]
    assert show(dataset, "3", *state, capsys=capsys) == [row.key for each in given for row in each.rows(3)]


KEYS = "(row/[0-9]+)  "


def show(
    dataset: Dataset, step: str, *options: str, capsys: pytest.CaptureFixture[str], found: str = KEYS
) -> list[Any]:
    """The keys that `recordmill show --step` prints, or what else is found."""
    with pytest.raises(SystemExit) as ended:
        main(["show", str(dataset.folder.parent.parent), "--step", step, *options])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.err) == (0, "")
    return re.findall(found, shown.out)


def test_show_names_a_mixtures_datasets_and_takes_their_list_once(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path)
    published.write_manifest(other.folder, replace(other.manifest, name="other"))
    places, options = [dataset, open_dataset(tmp_path)], {"batch_size": 6, "features": [], "with_key": True}
    (tmp_path / "bad.txt").write_text("\n".join(BAD))
    (tmp_path / "one.txt").write_text(BAD[0])
    files = [f"--without={tmp_path}/{name}.txt" for name in ("one", "bad")]
    (tmp_path / "run").mkdir()
    for lists, given in (([BAD, BAD], files[1:]), ([BAD, [BAD[0]]], files), ([(), [BAD[0]]], files[:1])):
        inputs = [each.training_input(**options, without=bad) for each, bad in zip(places, lists, strict=True)]
        both = mix(inputs, [1, 1])
        (tmp_path / "run" / "training.json").write_text(json.dumps({"input": both.state(step=0)}))
        state = ("--state", str(tmp_path / "run"), "--mixed", str(tmp_path), *given)
        expected = [(row.key, row.dataset) for row in both.rows(7)]
        assert show(dataset, "7", *state, capsys=capsys, found=KEYS + r".*, of (\w+) ") == expected
    with pytest.raises(SystemExit):
        main(["show", str(dataset.folder.parent.parent), "--step", "7", *state[:-1], files[1]])
    assert_names(capsys.readouterr().err, "other, train", "1 key,", "--without FILE", "got 6 keys,", "bad.txt")


def test_show_takes_the_options_too_and_draws(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = dataset.training_input("test", batch_size=6, seed=4)
    options = ("--batch-size", "6", "--seed", "4", "--split", "test", "--output", str(tmp_path / "step.png"))
    assert show(dataset, "5", *options, capsys=capsys) == [row.key for row in given.rows(5)]
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("hosts", [1, 2])
def test_show_prints_a_steps_rows_as_json(hosts: int, dataset: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--batch-size", "6", "--hosts", str(hosts), "--json"]
    [found] = show(dataset, "5", *options, capsys=capsys, found=r"(?s)\A.*\Z")
    given = [dataset.training_input("train", batch_size=6, host_count=hosts, host_index=host) for host in range(hosts)]
    expected = [(host, row.place, row.key, row.position) for host, each in enumerate(given) for row in each.rows(5)]
    assert [(row["host"], row["row"], row["key"], row["position"]) for row in json.loads(found)] == expected
    assert json.loads(found)[0]["values"].keys() == dataset.features.keys()


@pytest.mark.parametrize(("state", "options", "facts"), [
    (None, ["--step", "1"], ("--state", "--batch-size")),
    (None, ["--seed", "0"], ("--step N",)),
    ({}, ["--step", "1", "--seed", "1"], ("--state alone",)),
    ("", ["--step", "1"], ("not JSON", "state.json")),
    ({"seed": 1}, ["--step", "1"], ("global_batch_size", "state.json")),
    ({"version": "v9"}, ["--step", "1"], ("v9", "--mixed")),
    ({"version": ["v9"]}, ["--step", "1"], ("version", "v9", "--mixed")),
    ({"mixed": [{}], "quotas": [1]}, ["--step", "1"], ("None", "--mixed")),
    ({"mixed": []}, ["--step", "1"], ("steps []",)),
    ({"mixed": [], "quotas": [[0, ["x"]]]}, ["--step", "1"], ("quotas", "'x'")),
    ({"mixed": [], "quotas": [[0, [1]]]}, ["--step", "1"], ("[1] for 0",)),
    ({}, ["--step", "1", "--without", "/dev/null"], ("/dev/null", "leave the file out")),
    ({"without": "6 keys, 0a"}, ["--step", "1", "--without", "/dev/null"], (*LACKS, "got 0 keys", "/dev/null")),
    ({"without": "6 keys, 0a"}, ["--step", "1"], (*LACKS, "got none")),
    ({"without": ["x"]}, ["--step", "1"], ("['x']", "got none")),
    ({}, ["--step", "1", "--json", "--output", "x.png"], ("--output", "no --json")),
    ({}, ["--step", "1", "--mixed", "/dev"], ("/dev ", "leave it out")),
    (None, ["--step", "1", "--batch-size", "6", "--mixed", "/dev"], ("--mixed", "--state")),
    (None, ["--step", "1", "--state", "nowhere.json"], ("nowhere.json", "(No such file or directory)")),
    (None, ["--step", "1", "--state", "/dev"], ("/dev/training.json", "(No such file or directory)")),
    ({}, ["--step", "1", "--record", "row/3"], ("--record", "give one")),
    ({}, ["--step", "1", "--output", "/dev/null/x.png"], ("/dev/null/x.png", "no folder /dev/null", "--output")),
    ({"step": -1}, ["--step", "1"], ("-1", "`state()`")),
    ({}, ["--step", "1", "--hosts", "4"], ("--hosts", "4", "global batch size 6")),
])  # fmt: skip
def test_wrong_questions(
    state: Any,
    options: list[str],
    facts: tuple[str, ...],
    dataset: Dataset,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "state.json"
    if state is not None:
        whole = state if state in ("", {"seed": 1}) else read(dataset).state(step=1) | state
        file.write_text(json.dumps(whole) if whole else "")
        options = [*options, "--state", str(file)]
    with pytest.raises(SystemExit):
        main(["show", str(dataset.folder.parent.parent), *options])
    assert_names(capsys.readouterr().err, *facts)
