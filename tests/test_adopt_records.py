"""Odd records in adoption: empty lists, other types, forms and names, and what is left out of them."""

from pathlib import Path
from typing import Any

import pytest

from recordmill import open_tfrecords
from tests import tfrecords
from tests.messages import assert_names
from tests.published import example, feature, field
from tests.test_adopt_guess import ROWS, adopt, batch, read

pytestmark = pytest.mark.usefixtures("home")


def entry(name: bytes, value: bytes) -> bytes:
    return field(1, field(1, name) + field(2, value))


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [(b"\xff\xfe", feature(1), "udcff"), (b"", feature(1), "''"), (b"never", field(3, b""), "never")],
)
def test_features_that_cannot_be_read_are_left_out_and_said(
    name: bytes, value: bytes, shown: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def record(number: int) -> bytes:
        pairs = ((b"a", feature(number)), (name, value))
        return field(1, b"".join(entry(*pair) for pair in pairs))

    dataset = adopt(tmp_path, [record(number) for number in range(ROWS)])
    assert_names(caplog.text, shown, "left out")
    assert read(dataset) == [{"a": number} for number in range(ROWS)]


LEGAL = {  # the same list in the other forms that protocol buffers allow
    "unpacked": entry(b"a", field(3, b"\x08\x01\x08\xac\x02")),
    "several lists": entry(b"a", feature([1]) + feature([300])),
    "two of a name": entry(b"a", feature([7])) + entry(b"a", feature([1, 300])),
    "of two kinds": entry(b"a", feature(b"x") + feature([1, 300])),
}


@pytest.mark.parametrize("empty", [field(3, b""), b"", field(1, b"")])
def test_an_empty_list_of_any_type_is_missing(empty: bytes, tmp_path: Path) -> None:
    rows = [entry(b"a", empty if number == 3 else feature(number)) + entry(b"b", feature(1)) for number in range(ROWS)]
    dataset = adopt(tmp_path, [field(1, row) for row in rows])
    assert batch(dataset)["a"].tolist() == [number * (number != 3) for number in range(ROWS)]
    assert dataset.manifest.rejects["by_reason"] == {}


def test_keys_of_another_type_are_rejected(tmp_path: Path) -> None:
    odd = [{"id": 0.5, "a": 1}, {"id": b"x", "a": 1}, {"a": 1}, field(1, entry(b"id", field(3, b"")))]
    rows = [{"id": number, "a": 1} for number in range(ROWS)] + odd
    tfrecords.write(tmp_path / "old/train.tfrecord", rows)
    dataset = open_tfrecords(tmp_path / "old", tmp_path / "out", key="id")
    assert batch(dataset)["key"].tolist() == [b"%d" % number for number in range(ROWS)]
    assert dataset.manifest.rejects["by_reason"] == {"wrong_type": 1, "missing_key": 3}


@pytest.mark.parametrize("form", LEGAL)
def test_lists_in_other_legal_forms_are_read(form: str, tmp_path: Path) -> None:
    usual, unknown = entry(b"a", feature([1, 300])), field(9, b"unknown")
    rows = [field(1, LEGAL[form] if number % 2 else usual) + unknown * (number % 3) for number in range(ROWS)]
    dataset = adopt(tmp_path, rows)
    assert batch(dataset)["a"].tolist() == [[1, 300]] * ROWS
    assert [list(each["a"]) for each in read(dataset)] == [[1, 300]] * ROWS


def test_sequence_examples_are_lists_and_nested_ones_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def record(number: int) -> bytes:
        flat = b"".join(field(1, feature(step)) for step in range(number % 4))
        deep = field(1, feature([1, 2])) + field(1, feature([3]))
        return example({"id": number}) + field(2, entry(b"flat", flat) + entry(b"deep", deep))

    dataset = adopt(tmp_path, [record(number) for number in range(ROWS)])
    assert [list(each["flat"]) for each in read(dataset)] == [list(range(number % 4)) for number in range(ROWS)]
    assert batch(dataset)["id"].tolist() == list(range(ROWS))
    assert_names(caplog.text, "deep: left out", "list of lists")


def test_odd_names_become_different_ones(tmp_path: Path) -> None:
    row = {"é": 1, "a b": 2, "a.b": 3, "1x": 4, "key": 5, "x_length": 6}
    rows = [{**row, "x": [7] * (1 + number % 2)} for number in range(ROWS)]
    found = batch(adopt(tmp_path, rows))
    assert all(name.isascii() and name[0].isalpha() for name in found)
    assert found["key"].dtype == object
    assert found["x_length"].tolist() == [1, 2] * (ROWS // 2)
    columns = {found[name][0] for name in found if name not in ("key", "x", "x_length")}
    assert columns == set(row.values())


def test_a_feature_that_late_records_lack_is_optional(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"a": number, "b": number} if number < 3000 else {"a": number} for number in range(3010)]
    dataset = adopt(tmp_path, rows)
    assert_names(caplog.text, "b: ", "10 records", "optional")
    assert [dict(each) for each in read(dataset)][2999] == {"a": 2999, "b": 2999}
    assert sum(each.get("b") in (None, 0) for each in read(dataset)) == 11


@pytest.mark.parametrize(
    "stated", [None, {"label": {"kind": "category", "classes": ["a", "b"]}}, {"label": {"kind": "raw"}}]
)
def test_records_without_the_label_are_rejected(stated: Any, tmp_path: Path) -> None:
    rows = [{"a": number, **({"label": 1} if number % 2 else {})} for number in range(ROWS)]
    tfrecords.write(tmp_path / "old/train.tfrecord", rows)
    dataset = open_tfrecords(tmp_path / "old", tmp_path / "out", features=stated, label="label")
    (found,) = dataset.evaluation_input("train", batch_size=ROWS).as_numpy()
    assert found[1].tolist() == [1] * (ROWS // 2)
    assert dataset.manifest.rejects["by_reason"] == {"missing_value": ROWS // 2}
    assert "label_missing" not in found[0]


def test_records_of_another_type_are_rejected(tmp_path: Path) -> None:
    rows = [{"a": 0.5 if number % 10 == 0 else number} for number in range(ROWS)]
    dataset = adopt(tmp_path, rows)
    assert [each["a"] for each in read(dataset)] == [number for number in range(ROWS) if number % 10]
    assert dataset.manifest.rejects["by_reason"] == {"wrong_type": 2}
