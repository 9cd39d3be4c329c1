"""Records of a version as people read them: chosen by split, key, class, position and span, and decoded by kind."""

from pathlib import Path
from typing import Any

import pytest

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.inspection.records import read_records
from recordmill.transforms.contract.kinds.base import Decoding
from recordmill.transforms.contract.kinds.text import DecodedText, TextDescription
from tests import published
from tests.messages import raises


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    output = tmp_path_factory.mktemp("small")
    published.write_version(output)
    return open_dataset(output)


def test_all_records_come_in_the_order_of_evaluation(small: Dataset) -> None:
    records = list(read_records(small))
    assert [record.position for record in records] == [*range(small.splits["train"]), *range(small.splits["test"])]
    for record in records:
        row = published.row(int(record.key.removeprefix("row/")))
        assert record.values["note"] == row["note"]
        assert record.values["price"] == row["price"]
        assert record.values["label"] == published.CLASSES[row["label"]]
        assert record.values["text"].text == " ".join(published.WORDS[id_ - 2] for id_ in row["text"])


def test_records_are_chosen_by_split_key_class_and_position(small: Dataset) -> None:
    test = list(read_records(small, "test"))
    assert {record.split for record in test} == {"test"}
    wanted = test[7]
    assert list(read_records(small, key=wanted.key)) == [wanted]
    assert list(read_records(small, "train", key=wanted.key)) == []
    assert list(read_records(small, "test", positions=[7, 3])) == [wanted, test[3]]
    dark = [record for record in test if record.values["label"] == "dark"]
    assert list(read_records(small, "test", label="dark")) == dark
    assert list(read_records(small, "test", label="dark", limit=2)) == dark[:2]
    assert [list(record.values) for record in read_records(small, "test", features=["label"], limit=1)] == [["label"]]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"split": "tset"}, ("split 'tset'", "`test`")),
        ({"span": "monday"}, ("span 'monday'", "none")),
        ({"label": "drak"}, ("class 'drak'", "`dark`", "dark, bright")),
        ({"positions": [0]}, ("positions", "split")),
        ({"split": "test", "positions": [1_000]}, ("1,000", "'test'")),
        ({"features": ["lable"]}, ("feature 'lable'",)),
    ],
)
def test_a_wrong_choice_says_what_there_is(small: Dataset, arguments: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(DatasetError, *facts):
        list(read_records(small, **arguments))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    folder = published.write_version(tmp_path)
    dataset = open_dataset(tmp_path)
    shard = folder / dataset.manifest.splits["test"].shards[0].file
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    with raises(DatasetError, "record 0", shard.name, "`recordmill verify`"):
        list(read_records(dataset, "test"))


@pytest.mark.parametrize(
    ("tokenizer", "words", "text"),
    [
        ("words", ["the", "cat"], "the cat"),
        ("characters", ["a", "▁", "b"], "a b"),
        ("bytes", ["<0xC3>", "<0xA9>", "<0x0A>"], "é\n"),
        ("wordpiece", ["play", "##ing", "now"], "playing now"),
        ("sentencepiece", ["▁the", "▁c", "<0xC3>", "<0xA9>", "t"], "the cét"),
    ],
)
def test_words_are_joined_as_their_tokenizer_cut_them(tokenizer: str, words: list[str], text: str) -> None:
    description = TextDescription(
        max_length=None, vocabulary_size=9, padding_id=0, unknown_id=1, first_id=4, begin_id=2, end_id=3,
        tokenizer=tokenizer,
    )  # fmt: skip
    vocabulary = ["", "[UNK]", "[BEGIN]", "[END]", *words]
    ids = [2, *range(4, len(vocabulary)), 3, 0, 0]
    shown = tuple(vocabulary[id_] for id_ in ids[:-2])
    assert description.text(ids, Decoding(vocabulary, {}, None)) == DecodedText(tuple(ids[:-2]), shown, text)
    assert description.text(ids, Decoding(None, {}, None)).text is None
