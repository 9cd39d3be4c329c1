"""Records that cannot be read: named, or left out one by one, in every form and from every process."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import DamagedRecordError, Dataset, DatasetError, mix, open_dataset
from tests import hand_made
from tests.messages import assert_names, raises
from tests.test_reader_input import FORMS

SHARD = "hand-train.tfrecord-00001-of-00004"  # rows 4, 5 and 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return hand_made.write_dataset(tmp_path)


def offsets(folder: Path) -> list[int]:
    return [int(at) for at in np.fromfile(folder / SHARD.replace("tfrecord", "index"), "<u8")]


def damage(folder: Path, record: int, at: int, value: bytes = b"\xff") -> Dataset:
    """Overwrites bytes of a record of the shard, counted from the record's first."""
    content = bytearray((folder / SHARD).read_bytes())
    start = offsets(folder)[record] + at
    content[start : start + len(value)] = value
    (folder / SHARD).write_bytes(content)
    return open_dataset(folder)


def keys(batches: Any) -> list[str]:
    return [key.decode() for features, *_ in batches for key in features["key"]]


CASES = [(40, b"\xff", "checksum"), (0, (1 << 40).to_bytes(8, "little"), "1,099,511")]


@pytest.mark.parametrize(("at", "value", "reason"), CASES)
def test_a_damaged_record_is_named(at: int, value: bytes, reason: str, folder: Path) -> None:
    dataset = damage(folder, 1, at, value)
    facts = "record 1", str(folder / SHARD), f"at byte {offsets(folder)[1]:,}", reason
    for workers in (0, 1):
        with raises(DamagedRecordError, *facts):
            list(dataset.evaluation_input("train", batch_size=4, workers=workers).as_numpy())


def test_balance_needs_the_label_of_a_damaged_record_too(folder: Path) -> None:
    given = damage(folder, 1, *CASES[0][:2]).training_input(batch_size=4, balance=True, on_error="skip")
    with raises(DamagedRecordError, SHARD, "balance=True"):
        next(given.as_numpy())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("at", "value", "reason"), CASES)
def test_skip_loses_exactly_that_record(
    at: int, value: bytes, reason: str, form: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = damage(folder, 1, at, value)
    given = dataset.evaluation_input("train", batch_size=4, on_error="skip", with_key=True)
    with caplog.at_level(logging.WARNING, "recordmill"):
        assert keys(FORMS[form](given)) == [f"row/{number}" for number in range(10) if number != 5]
    assert_names(caplog.text, "record 1", folder / SHARD)
    assert given.element_spec[1].shape == (None,)


def test_what_was_left_out_is_counted_and_too_many_are_an_error(folder: Path) -> None:
    dataset = damage(folder, 1, 40)
    for workers in (0, 2):
        batches = dataset.training_input(batch_size=5, on_error="skip", epochs=3, workers=workers).as_numpy()
        rows = [len(label) for _, label in batches]
        assert (sum(rows), batches.skipped) == (27, 3)
    given = dataset.training_input(batch_size=5, on_error="skip", max_skipped=1, epochs=3)
    with raises(DamagedRecordError, "max_skipped=1", "build again"):
        list(given.as_numpy())


def test_a_batch_of_which_nothing_is_left_does_not_come(folder: Path) -> None:
    dataset = damage(folder, 1, 40)
    given = dataset.evaluation_input("train", batch_size=1, on_error="skip")
    assert len(list(given.as_numpy())) == 9
    assert len(list(given.as_tf_data())) == 9
    state = given.as_numpy()
    for _ in range(6):
        next(state)
    assert state.step == 7  # the lost batch is counted too


def test_with_pad_a_damaged_record_is_a_filler_row_too(folder: Path) -> None:
    dataset = damage(folder, 1, 40)
    given = dataset.evaluation_input("train", batch_size=4, pad=True, on_error="skip", with_key=True)
    assert given.element_spec[1].shape == (4,)
    batches = given.as_numpy()
    seen = list(batches)
    assert [weight.tolist() for *_, weight in seen] == [[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 0]]
    there = [key for features, _, weight in seen for key in features["key"][weight > 0].tolist()]
    assert there == [f"row/{number}".encode() for number in range(10) if number != 5]
    assert batches.skipped == 1


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("kind", ["training", "mixture", "padded", "unpadded"])
def test_hosts_that_leave_records_out_have_as_many_batches(kind: str, batch_size: int, folder: Path) -> None:
    dataset = damage(folder, 1, 40)
    lost, sizes, skipped = [], [], 0
    for host in range(3):
        options = {"batch_size": batch_size, "with_key": True, "features": ["price"], "on_error": "skip"}
        options |= {"host_index": host, "host_count": 3}
        if kind == "training" or kind == "mixture":
            given = dataset.training_input("train", seed=4, epochs=None if kind == "mixture" else 2, **options)
            given = mix([given, given], [1, 1], epochs=2) if kind == "mixture" else given
        else:
            given = dataset.evaluation_input("train", pad=kind == "padded", **options)
        batches = given.as_numpy()
        seen = list(batches)
        sizes.append([len(features["key"]) for features, *_ in seen])
        lost += [key for features, *_ in seen for key in features["key"].tolist() if key == b"row/5"]
        skipped += batches.skipped
        if kind != "mixture":
            state = given.state(1)
            assert keys(given.resume(state).as_numpy()) == keys(seen[1:])
    assert len({len(of_host) for of_host in sizes}) == 1
    assert lost == []
    assert skipped >= 1
    assert kind == "unpadded" or {size for of_host in sizes for size in of_host} == {batch_size}


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_split_of_damaged_records_alone_ends(batch_size: int, folder: Path) -> None:
    for record in range(3):
        dataset = damage(folder, record, 40)
    options: dict[str, Any] = {"batch_size": batch_size, "pad": True, "on_error": "skip", "max_skipped": 7}
    given = dataset.evaluation_input("train[4:7]", **options)
    with raises(DamagedRecordError, "max_skipped=7", "build again"):
        list(given.as_numpy())


def test_a_picture_that_cannot_be_decoded_is_a_damaged_record(tmp_path: Path) -> None:
    """Its checksums are right: it was written so."""
    folder = hand_made.write_dataset(tmp_path, {**hand_made.FEATURES, "image": hand_made.image("raw")})
    text = (folder / "dataset.json").read_text()
    (folder / "dataset.json").write_text(text.replace('"encoding": "raw"', '"encoding": "jpeg"'))
    with raises(DamagedRecordError, "record 0", "00000-of-00004", "at byte 0", "image 'image'"):
        next(open_dataset(folder).evaluation_input("train", batch_size=2).as_numpy())


def test_verify_finds_what_sizes_do_not(folder: Path) -> None:
    dataset = damage(folder, 1, 40)
    dataset.training_input(batch_size=2)
    with raises(DatasetError, SHARD, "SHA-256", "expected", "build again"):
        dataset.training_input(batch_size=2, verify=True)
    assert len(dataset.training_input("validation", batch_size=2, verify=True)) == 2
