"""Rows by number and by key: `Dataset.source`."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import Dataset, DatasetError, open_dataset
from recordmill.pipeline.reader.batches import RowSource
from tests.messages import raises
from tests.published import write_version

GIVEN: dict[str, Any] = {"features": ["text", "price"], "text": "ragged", "with_key": True}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return open_dataset(write_version(tmp_path_factory.mktemp("rows") / "out"))


@pytest.fixture
def rows(dataset: Dataset) -> RowSource:
    return dataset.source("train", **GIVEN)


def key(row: Any) -> str:
    return str(row[0]["key"].decode())


def test_rows_are_those_of_the_evaluation(dataset: Dataset, rows: RowSource) -> None:
    [(features, labels)] = dataset.evaluation_input("train", batch_size=len(rows), **GIVEN).as_numpy()
    for number in (0, 3, len(rows) - 1):
        of_row, label = rows[number]
        assert all(of_row[name] == features[name][number] for name in ("key", "price"))
        assert label == labels[number]
        start, end = features["text"].splits[number : number + 2]
        np.testing.assert_array_equal(of_row["text"], features["text"].values[start:end])
    assert key(rows[-1]) == key(rows[len(rows) - 1])
    assert [key(row) for row in rows.__getitems__([5, np.int64(2), 5])] == [key(rows[each]) for each in (5, 2, 5)]


def test_there_is_no_row_beyond_the_last(rows: RowSource) -> None:
    for number in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError):
            rows[number]
    assert len(list(rows)) == len(rows)


@pytest.mark.parametrize("split", ["train", "test+train", "train[10:20]+test+train[:10]"])
def test_a_row_is_found_by_its_key(split: str, dataset: Dataset) -> None:
    rows = dataset.source(split, **GIVEN)
    assert [rows.number_of(key(rows[number])) for number in range(0, len(rows), 7)] == list(range(0, len(rows), 7))


@pytest.mark.parametrize("absent", ["row/200", "row\udcff", "elsewhere"])
def test_a_key_that_is_not_there_is_named(absent: str, dataset: Dataset, rows: RowSource) -> None:
    wanted = key(dataset.source("test", **GIVEN)[0]) if absent == "elsewhere" else absent
    with raises(DatasetError, "'train'", repr(wanted)):
        rows.number_of(wanted)


def test_a_source_goes_to_other_processes(rows: RowSource) -> None:
    again = pickle.loads(pickle.dumps(rows))  # noqa: S301
    assert (key(again[4]), again.number_of(key(rows[9]))) == (key(rows[4]), 9)
    assert rows.number_of(key(rows[9]).encode()) == 9, "a key as batches hold it"


@pytest.mark.parametrize(("option", "value"), [("host_count", 2), ("pad", True), ("on_error", "skip")])
def test_options_of_batches_are_refused(option: str, value: Any, dataset: Dataset) -> None:
    with raises(DatasetError, option, "batches"):
        dataset.source("train", **{option: value})


def test_rows_that_share_records_have_no_keys_of_their_own(tmp_path: Path) -> None:
    write_version(tmp_path / "out")
    dataset = open_dataset(tmp_path / "out")
    for split in dataset.manifest.splits.values():
        object.__setattr__(split, "documents", 1)
    with raises(DatasetError, "several rows", "key"):
        dataset.source("train").number_of("row/3")
